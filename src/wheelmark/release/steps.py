"""Resume: a step is skipped when its inputs hash to what they did and its outputs are still those bytes.

Times are never looked at. A step's key is a digest over everything that it reads; its outputs are hashed
again before they are believed.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One unit of work that can be skipped."""

    name: str
    """Unique in a release, for instance ``gate/abi/cuda-sm90``."""
    inputs: Mapping[str, Any]
    """JSON values that determine the result: digests, versions, settings. Never paths or times."""

    @property
    def key(self) -> str:
        """sha256 over the inputs."""
        return digests.sha256(digests.canonical_json({"name": self.name, "inputs": dict(self.inputs)}))


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepRecord:
    """What a finished step left behind."""

    key: str
    outputs: Mapping[str, str]
    """Path relative to the release directory -> sha256."""
    result: Any
    """A JSON value that the step computed."""


class Steps:
    """Records of finished steps, beside the release directory.

    Args:
        folder: Where records are kept.
        outputs_root: The release directory that output paths are relative to.
    """

    def __init__(self, folder: Path, outputs_root: Path) -> None:
        self._folder = folder
        self._root = outputs_root

    def finished(self, step: Step) -> StepRecord | None:
        """The record of ``step`` if it may be skipped: same key, and every output has its digest."""
        try:
            value = strictjson.load_object(self._path(step).read_bytes(), what=f"record of {step.name}")
            record = StepRecord(key=value["key"], outputs=value["outputs"], result=value["result"])
        except (OSError, InputError, KeyError):
            return None
        if record.key != step.key:
            return None
        for relative, sha256 in record.outputs.items():
            path = self._root / relative
            if not path.is_file() or path.is_symlink() or digests.sha256_file(path) != sha256:
                return None
        return record

    def record(self, step: Step, outputs: Iterable[Path], result: Any = None) -> StepRecord:
        """Remember that ``step`` is finished; written atomically, after its outputs."""
        record = StepRecord(
            key=step.key,
            outputs={
                path.relative_to(self._root).as_posix(): digests.sha256_file(path) for path in sorted(outputs)
            },
            result=result,
        )
        path = self._path(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(dataclasses.asdict(record), sort_keys=True), encoding="utf-8")
        temporary.replace(path)
        return record

    def _path(self, step: Step) -> Path:
        return self._folder / f"{digests.sha256(step.name.encode())[:24]}.json"
