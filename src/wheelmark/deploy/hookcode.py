"""All code that the hook runs: who could write it decides what starts.

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
    count = 0
    for folder in _folders(python):
        permissions.check_folder(folder)
        for path in _below(folder):
            count += 1
            if count > _MAX_FILES:
                raise ConfigError(
                    f"{folder} holds too many files to be looked at",
                    fix="give the hook an environment of its own: python3 -m venv /opt/wheelmark",
                    reason="hook-config",
                )
            if path.is_symlink():
                continue  # whoever could change it could write the folder that it is in
            permissions.check_entry(path, path.lstat())


def _folders(python: Path) -> list[Path]:
    """Where it imports from, those that are there."""
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
    return [Path(item) for item in dict.fromkeys(found) if Path(item).is_dir()]


def _below(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(root, name)
