"""One kernel pack: a directory of compiled kernels with their manifest, as ``kernels/<target>/`` of a release holds it.

The manifest lists its objects by digest, so a statement about the manifest covers them; each is read and compared all
the same, and a statement that names objects has to be right about each. The name of the subject is compared: it is
``kernels/<target>/manifest.json``, with the target that the manifest itself names.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from wheelmark import digests
from wheelmark.binaries.kernelmanifest import NAME, KernelManifest, read_kernel_manifest
from wheelmark.binaries.kernelobjects import Problem, check_objects
from wheelmark.errors import INTERRUPTS, InputError
from wheelmark.plainfiles import open_plain, read_bounded, read_start
from wheelmark.verify import alone
from wheelmark.verify.artifact import LARGEST_OBJECT, ArtifactFacts, LazyFiles
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Examiner
from wheelmark.verify.factscache import FactsCache
from wheelmark.verify.gathering import BUNDLE
from wheelmark.verify.policy import Kind, Policy
from wheelmark.verify.verdict import Report

_MAX_FILES = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelPackFacts(ArtifactFacts):
    """What a kernel pack's bytes say; ``sha256`` is its manifest's."""

    kernels: KernelManifest | None = None
    """``None`` where it could not be read."""

    @property
    def target(self) -> str:
        """Id of the target that the manifest names."""
        return str(self.kernels.target) if self.kernels is not None else ""


def verify_one_kernel_pack(
    path: Path,
    policy: Policy,
    *,
    circumstances: Circumstances,
    bundles: Sequence[Path] = (),
    cache: FactsCache | None = None,
) -> Report:
    """Verify a kernel pack with the bundle beside its manifest, those given, and those of the release it lies in.

    Args:
        path: The directory.
        policy: Whom to trust and what to ask for.
        circumstances: The clock, the channel, and what this machine has seen.
        bundles: Further bundles; each has to be about this pack.
        cache: Facts of bundles from earlier runs.

    Raises:
        InputError: The manifest cannot be read.
        ConfigError: The policy has no requirement for kernel packs of this target.
    """
    pack = examine_kernel_pack(path)
    examiner = Examiner(policy.roots, policy.keys, cache=cache)
    sources = [
        *alone.files([*alone.beside(path / NAME), *bundles], meant=True),
        *alone.files(alone.around(path.absolute().parent.parent), meant=False),
    ]
    objects = {f"{_folder(pack)}/{name}": sha256 for name, sha256 in pack.files.items()}
    judged = alone.judge_alone(
        pack,
        Kind.KERNEL_PACK,
        alone.examine_sources(sources, examiner),
        policy,
        examiner=examiner,
        circumstances=circumstances,
        members=objects,
    )
    return Report(path=str(path), policy=policy.source, verdicts=judged.verdicts, steps=judged.steps)


def examine_kernel_pack(path: Path) -> KernelPackFacts:
    """Read a kernel pack and find what is wrong with its bytes.

    Raises:
        InputError: The folder or its manifest cannot be read.
    """
    names = _names(path)
    data = read_bounded(path / NAME, LARGEST_OBJECT)
    facts = KernelPackFacts(path=path.name, name="", sha256=digests.sha256(data), size=len(data))
    problems = [
        Problem(reason="unaccounted-file", text=f"{name}: a link, a folder or a device, and no plain file")
        for name, plain in names.items()
        if not plain
    ]
    others = [name for name, plain in names.items() if plain and name not in {NAME, NAME + BUNDLE}]
    sha256: dict[str, str] = {}

    def read(name: str) -> bytes:
        data = _read_object(path / name)
        sha256[name] = digests.sha256(data)
        return data

    try:
        manifest = read_kernel_manifest(data)
        problems += check_objects(manifest, LazyFiles(others, read))
    except InputError as error:
        found = Problem(reason=error.reason, text=error.what)
        return dataclasses.replace(facts, name=NAME, problems=(*problems, found))
    except INTERRUPTS:
        raise
    except BaseException as error:  # noqa: BLE001 - row 44: anything a library raises is a refusal
        found = Problem(reason="library", text=f"{type(error).__name__}: {str(error)[:300]}")
        return dataclasses.replace(facts, name=NAME, problems=(*problems, found))
    facts = dataclasses.replace(facts, kernels=manifest, files=sha256, problems=tuple(problems))
    return dataclasses.replace(facts, name=f"{_folder(facts)}/{NAME}")


def _folder(pack: KernelPackFacts) -> str:
    return f"kernels/{pack.target}"


def _names(path: Path) -> dict[str, bool]:
    """Every name in the folder, and whether it is a plain file."""
    found: dict[str, bool] = {}
    try:
        with os.scandir(path) as items:
            for item in items:
                found[item.name] = item.is_file(follow_symlinks=False)
                if len(found) > _MAX_FILES:
                    raise InputError(f"{path} holds more than {_MAX_FILES:,} files", reason="input-limit")
    except OSError as error:
        raise InputError(f"cannot read the folder {path}: {error.strerror}", reason="unreadable") from error
    return dict(sorted(found.items()))


def _read_object(path: Path) -> bytes:
    with open_plain(path) as stream:
        data = read_start(stream, path, LARGEST_OBJECT + 1)
    if len(data) > LARGEST_OBJECT:
        raise InputError(f"{path.name} is over {LARGEST_OBJECT:,} bytes", reason="input-limit")
    return data
