"""All code that the hook runs: who could write it decides what starts.

That is what the interpreter finds by its path: what an import hook finds elsewhere (some editable installations) is not seen.

Looked at when the hook is installed and by ``wheelmark hook status``, not at each start: it takes some tenths of a second.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from wheelmark.errors import ConfigError
from wheelmark.verify.policy import permissions

_MAX_FILES = 500_000
_SECONDS = 30
_PATHS = "import json, sys; print(json.dumps(sys.path))"


def check_code(python: Path) -> None:
    """Refuse an interpreter whose code, or any code that it imports, somebody else could write.

    Args:
        python: The interpreter that runs the hook, isolated (``-I``).

    Raises:
        ConfigError: Such a file or folder (``policy-permissions``); an interpreter that does not run (``hook-config``).
    """
    permissions.check_ownership(python)
    if (settings := python.parent.parent / "pyvenv.cfg").is_file():
        permissions.check_ownership(settings)
    count, waiting, seen = 0, _places(python), set[str]()
    while waiting:
        place = waiting.pop()
        if (real := os.path.realpath(place)) in seen:
            continue
        seen.add(real)
        if not place.is_dir():
            permissions.check_ownership(place)
            continue
        permissions.check_folder(place)
        for path in _below(place):
            count += 1
            if count > _MAX_FILES:
                raise ConfigError(
                    f"{place} holds too many files to be looked at",
                    fix="give the hook an environment of its own: python3 -m venv /opt/wheelmark",
                    reason="hook-config",
                )
            if not path.is_symlink():
                permissions.check_entry(path, path.lstat())
            elif os.access(path, os.R_OK):
                waiting.append(path)  # what it leads to; where that cannot be read, nothing of it is run


def _places(python: Path) -> list[Path]:
    """Folders and archives that it imports from, those that are there."""
    command = [str(python), "-I", "-c", _PATHS]
    environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            check=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(
            f"{python} does not run: {str(error)[:200]}",
            fix="install wheelmark into an environment that works, and run wheelmark hook install from it",
            reason="hook-config",
        ) from error
    return [Path(item) for item in dict.fromkeys(found) if os.access(item, os.R_OK)]


def _below(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(root, name)
