"""What the pipeline does while it runs: processes started, files opened for writing, files put in place; and its sudden death.

Python's audit events (PEP 578), written down by a ``sitecustomize`` that a clone's commands import; nothing in the pipeline
knows of it. Where asked, the process kills itself with SIGKILL just before it puts the n-th file in place.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from checkouts import Checkout

_SITE = """
import json, os, signal, sys

log = open(os.environ["WATCH_LOG"], "a")
kill_at, root, count = int(os.environ.get("WATCH_KILL", "0")), os.environ["WATCH_ROOT"], 0

def watch(event, arguments):
    global count
    if event == "subprocess.Popen":
        note = ["started", [os.fsdecode(item) for item in arguments[1]]]
    elif event == "open" and isinstance(arguments[0], (str, bytes)) and arguments[2] & 0o1103:
        note = ["opened", os.path.abspath(os.fsdecode(arguments[0]))]
    elif event == "os.rename":
        note = ["placed", os.path.abspath(os.fsdecode(arguments[1]))]
    else:
        return
    if note[0] == "placed" and note[1].startswith(root + "/"):
        count += 1
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    log.write(json.dumps(note) + "\\n")
    log.flush()

sys.addaudithook(watch)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """Where a watched command writes what it does."""

    folder: Path
    dist: Path

    def variables(self, checkout: Checkout, *, kill_at: int = 0) -> Mapping[str, str]:
        """For ``Checkout.run``; with ``kill_at``, die before the n-th file of the release directory is in place."""
        return {
            "PYTHONPATH": f"{self.folder}:{checkout.root / 'src'}",
            "WATCH_LOG": str(self.folder / "log"),
            "WATCH_ROOT": str(self.dist),
            "WATCH_KILL": str(kill_at),
        }

    def _notes(self, kind: str) -> list[object]:
        path = self.folder / "log"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return [note[1] for note in map(json.loads, lines) if note[0] == kind]

    @property
    def started(self) -> list[list[str]]:
        """Command lines of processes."""
        return [list(map(str, note)) for note in self._notes("started") if isinstance(note, list)]

    @property
    def opened_in_dist(self) -> list[str]:
        """Files of the release directory that were opened for writing: half-written if the run dies then."""
        return [str(path) for path in self._notes("opened") if str(path).startswith(f"{self.dist}/")]

    @property
    def placed_in_dist(self) -> list[str]:
        """Files put into the release directory, whole."""
        return [str(path) for path in self._notes("placed") if str(path).startswith(f"{self.dist}/")]

    @property
    def compilations(self) -> list[list[str]]:
        """Processes that compile: kernel workers, and a compiler that is not just asked who it is."""
        return [
            command
            for command in self.started
            if ("-o" in command and "-I" not in command)
            or any(item.endswith("/worker") for item in command)
            or "build" in command[2:4]
        ]


def watch(checkout: Checkout, folder: Path) -> Watch:
    """Begin to watch; the log starts empty."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    return Watch(folder=folder, dist=checkout.dist)
