"""One worker process: its own originals for as long as it lives, and ranges of mutants of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from fuzz import corpus, engine

_kept: dict[str, Any] = {}


def begin(kinds: str) -> None:
    """Make the originals."""
    folder = tempfile.TemporaryDirectory(prefix="wheelmark-fuzz-")
    holder = corpus.subjects(Path(folder.name), frozenset(filter(None, kinds.split(","))))
    _kept.update(folder=folder, holder=holder, subjects=holder.__enter__())


def chunk(seed: int, first: int, count: int, until: float) -> engine.Tally:
    """Judge some mutants."""
    return engine.run(_kept["subjects"], seed, range(first, first + count), until=until)
