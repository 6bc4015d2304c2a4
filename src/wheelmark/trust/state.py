"""Where this machine keeps what only its owner may read: signing keys, its own root, imported roots.

The folder is ``$WHEELMARK_STATE``, else ``wheelmark`` under the XDG state home (XDG Base Directory
Specification: ``$XDG_STATE_HOME``, else ``~/.local/state``). It is made with mode 0700 and refused when anybody
else can enter it: a root that others can replace is no root.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from wheelmark.errors import ConfigError

VARIABLE = "WHEELMARK_STATE"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OWN = f"name a folder that you own: on the command line, or the state directory in {VARIABLE}"


def state_directory(*, create: bool = False) -> Path:
    """The state directory, checked; made where absent if ``create``.

    Raises:
        ConfigError: Others have access to it, or it is not ours (reason ``state-permissions``), or it is no
            folder that can be used (reason ``state-directory``).
    """
    path = state_path()
    if create:
        private_directory(path)
    elif path.exists():
        check_private(path)
    return path


def embedded_directory(state: Path | None = None) -> Path:
    """The folder of this machine's embedded trust domain, which may not exist yet."""
    return (state or state_directory()) / "embedded"


def embedded_root_path(state: Path | None = None) -> Path:
    """The trusted root of this machine's embedded trust domain, which may not exist yet."""
    return embedded_directory(state) / "trusted_root.json"


def private_directory(path: Path) -> Path:
    """Make ``path`` with mode 0700, or check the one that is there.

    Raises:
        ConfigError: As ``state_directory``.
    """
    try:
        # Whoever can write to a folder above could put another one in its place; a wide umask must not let them.
        for folder in reversed(path.parents):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        # The mode of mkdir is cut by the umask, never widened: there is no moment when others can enter.
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {path}: {error.strerror}",
            fix=_OWN,
            reason="state-directory",
        ) from error
    return check_private(path)


def check_private(path: Path) -> Path:
    """Refuse a folder that somebody else owns or can enter.

    Raises:
        ConfigError: As ``state_directory``.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(
            f"cannot look at the folder {path}: {error.strerror}",
            fix=_OWN,
            reason="state-directory",
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path} is no folder", fix=_OWN, reason="state-directory")
    if status.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} belongs to user {status.st_uid}, and this is user {os.geteuid()}",
            cause="a folder of another user was named, or sudo kept the environment",
            fix=_OWN,
            reason="state-permissions",
        )
    if status.st_mode & _OTHERS:
        raise ConfigError(
            f"{path} can be entered by others (mode {stat.S_IMODE(status.st_mode):04o})",
            cause="it was made by other means than wheelmark, or its mode was changed",
            fix=f"chmod 700 {path}; if it holds keys that others may have read: wheelmark trust rotate",
            reason="state-permissions",
        )
    return path


def write_private(path: Path, data: bytes) -> None:
    """Put ``data`` in place of ``path`` with mode 0600: readers see the old bytes or the new, and a crash leaves either.

    Raises:
        OSError: The file system refused.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def state_path() -> Path:
    """Where the state directory is configured to be, unchecked; it may not exist."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    home = os.environ.get("XDG_STATE_HOME", "")
    # The specification: a relative path in the variable is to be ignored.
    base = Path(home) if os.path.isabs(home) else Path.home() / ".local" / "state"  # noqa: PTH117 - of a string
    return base / "wheelmark"
