"""Run a command in namespaces of its own: ``enter.py HIDDEN… -- COMMAND…``. A script; it imports nothing of ours.

1. New mount and process namespaces; where the user is not root, a user namespace that grants them
   (user_namespaces(7)).
2. Each hidden folder that exists gets an empty, read-only file system on top.
3. A child that is the first process of its namespace mounts the ``/proc`` of that namespace, and starts the
   command as *its* child: the first process would be deaf to signals such as SIGABRT (pid_namespaces(7)).
4. The command runs without the capabilities that could undo this: for root they are dropped from the bounding set,
   for anybody else they end with exec (capabilities(7)).

It ends as the command ended: with its exit status, or by the same signal.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys

NEWNS, NEWUSER, NEWPID = 0x00020000, 0x10000000, 0x20000000
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, RECURSIVE, PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000
DROP_BOUND, DEATH_SIGNAL = 24, 1
SYS_PTRACE, SYS_ADMIN = 19, 21
CANNOT = 125
STATUS = struct.Struct("i")
_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    """Confine this process, run the command in a descendant, and end as it ended."""
    split = arguments.index("--")
    hidden, command = arguments[:split], arguments[split + 1 :]
    try:
        enter(hidden)
    except OSError as error:
        print(f"cannot be confined: {error}", file=sys.stderr)
        return CANNOT
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(reader)
        os._exit(first_process(command, writer))
    os.close(writer)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    status = os.read(reader, STATUS.size)
    os.waitpid(first, 0)
    return end_as(STATUS.unpack(status)[0]) if status else CANNOT


def enter(hidden: list[str]) -> None:
    """Steps 1 and 2."""
    user, group = os.getuid(), os.getgid()
    check(_libc.unshare(NEWNS | NEWPID | (NEWUSER if user else 0)), "unshare")
    if user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as stream:  # noqa: PTH123 - kept free of imports
                stream.write(text)
    check(_libc.mount(b"none", b"/", None, RECURSIVE | PRIVATE, None), "mount /")
    flags = READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC
    for folder in hidden:
        if os.path.isdir(folder):  # noqa: PTH112 - kept free of imports
            empty = b"mode=0700,size=4k"
            check(_libc.mount(b"none", os.fsencode(folder), b"tmpfs", flags, empty), f"mount {folder}")


def first_process(command: list[str], writer: int) -> int:
    """Step 3: the namespace's first process; tells how the command ended."""
    check(_libc.prctl(DEATH_SIGNAL, signal.SIGKILL), "prctl")
    try:
        check(_libc.mount(b"proc", b"/proc", b"proc", NO_SUID | NO_DEVICES | NO_EXEC, None), "mount /proc")
    except OSError as error:
        print(f"cannot be confined: {error}", file=sys.stderr)
        return CANNOT
    child = os.fork()
    if child == 0:
        os.close(writer)
        run(command)
    while True:
        ended, status = os.wait()
        if ended == child:
            os.write(writer, STATUS.pack(status))
            return 0


def run(command: list[str]) -> None:
    """Step 4; does not return."""
    try:
        if os.getuid() == 0:
            for capability in (SYS_ADMIN, SYS_PTRACE):
                check(_libc.prctl(DROP_BOUND, capability, 0, 0, 0), "prctl")
        os.execv(command[0], command)  # noqa: S606 - no shell
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127)


def end_as(status: int) -> int:
    """End as the command did; returns the exit status where it ended by itself."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    # A core file would be this process's, of no use to anybody.
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)
    return 128 + number


def check(result: int, what: str) -> None:
    """Raise what a call of the C library answered."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
