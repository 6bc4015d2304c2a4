"""What a person watching sees: timed steps on stderr, folded in CI logs, and a table at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TextIO

_MINUTE = 60.0
_KIB = 1024


@dataclasses.dataclass(kw_only=True)
class Progress:
    """Writes progress to ``stream``; safe to use from several threads."""

    stream: TextIO = dataclasses.field(default_factory=lambda: sys.stderr)
    started: float = dataclasses.field(default_factory=time.monotonic)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def note(self, text: str) -> None:
        """One line, stamped with the seconds since the start."""
        with self._lock:
            print(f"[{time.monotonic() - self.started:7.1f}s] {text}", file=self.stream, flush=True)

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """A stage with its own time; a fold in GitHub's log."""
        folds = os.environ.get("GITHUB_ACTIONS") == "true"
        if folds:
            print(f"::group::{title}", file=self.stream, flush=True)
        self.note(title)
        begun = time.monotonic()
        try:
            yield
        finally:
            self.note(f"{title}: {seconds(time.monotonic() - begun)}")
            if folds:
                print("::endgroup::", file=self.stream, flush=True)


def seconds(value: float) -> str:
    """``12.3 s`` or ``4 min 05 s``."""
    if value < _MINUTE:
        return f"{value:.1f} s"
    return f"{int(value // _MINUTE)} min {int(value % _MINUTE):02d} s"


def size(count: int) -> str:
    """Bytes for people: ``812 B``, ``44.1 KiB``, ``1.2 MiB``."""
    if count < _KIB:
        return f"{count} B"
    if count < _KIB * _KIB:
        return f"{count / _KIB:.1f} KiB"
    return f"{count / _KIB / _KIB:.1f} MiB"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain columns, as wide as their longest cell."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
