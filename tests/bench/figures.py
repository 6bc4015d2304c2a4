"""What pages of figures have in common: ranges, where and when, and a part's place in its page."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Sequence

from wheelmark.errors import ConfigError

_IDLE = 0.5
"""Load of a machine that does nothing else."""


def spread(values: Sequence[float]) -> str:
    """The median, and the smallest and largest."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def surroundings(command: str, machine: str, programs: Sequence[str], *, load: float | None = None) -> str:
    """Day, command, machine, versions, and whether the machine did other things meanwhile.

    Args:
        command: What measures it again.
        machine: Model, CPUs, system.
        programs: Whose versions count.
        load: Of the last minute; asked for if not given.
    """
    load = os.getloadavg()[0] if load is None else load
    busy = f"the machine was loaded by other work ({load:.1f})" if load > _IDLE else f"idle ({load:.1f})"
    versions = "".join(f", {name} {version_of(name)}" for name in programs)
    return f"Measured {dt.datetime.now(tz=dt.UTC):%Y-%m-%d} with `{command}` on {machine}{versions}; load before it: {busy}."


def version_of(program: str) -> str:
    """A program's version, as it says it."""
    found = shutil.which(program)
    if found is None:
        return "absent"
    done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    words = next(iter((done.stdout or done.stderr).splitlines()), "").split()
    return next((word.lstrip("v") for word in words if word.lstrip("v")[:1].isdigit()), "unknown")


def placed(page: str, part: str, text: str) -> str:
    """The page with this text in the part's place, and everything else as it was.

    Raises:
        ConfigError: The page has no such place, or more than one (``bench-page``).
    """
    begin, end = f"<!-- {part}: written by", f"<!-- end of {part} -->"
    pattern = re.compile(f"({re.escape(begin)}[^\n]*-->\n).*?({re.escape(end)})", re.DOTALL)
    written, count = pattern.subn(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page)
    if count != 1:
        raise ConfigError(
            f"the page has {count} places for {part}",
            fix=f"one line `{begin} … -->` and one line `{end}`",
            reason="bench-page",
        )
    return written
