"""The program that an engine starts: a few lines of shell, which let a container start only at the hook's own word.

An engine takes exit code 0 for "yes". An interpreter can end with 0 without having decided anything: a ``.pth`` file, a
``sitecustomize`` or a library that calls ``exit``. So the hook says yes with a code that nothing else ends with, and the
launcher makes 0 of that one alone. Where the interpreter is gone, the shell's 126 or 127 says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from wheelmark.errors import ConfigError

ACCEPTED = 42
"""Exit code of the hook where it was started by the launcher and the container may start."""
FLAG = "--launched"
FILE = "hook.sh"
SHELL = "/bin/sh"


def launcher(command: Sequence[str]) -> str:
    """The script.

    Args:
        command: The hook's program and arguments; ``FLAG`` is added.

    Raises:
        ConfigError: A path that cannot be written into a script (``hook-config``).
    """
    for part in command:
        if not part.isprintable():
            raise ConfigError(
                f"{part!r} cannot be part of a command", fix="name a path without it", reason="hook-config"
            )
    return f"""#!{SHELL}
# Written by wheelmark hook install. Only the hook's own word lets a container start.
{shlex.join([*command, FLAG])}
code=$?
[ "$code" -eq {ACCEPTED} ] && exit 0
[ "$code" -eq 0 ] && echo "wheelmark: refused a container: the hook's interpreter ended before the hook had decided" >&2
[ "$code" -eq 0 ] && exit 1
exit "$code"
"""
