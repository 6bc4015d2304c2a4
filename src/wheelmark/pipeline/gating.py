"""The ``test`` stage: every declared gate on the very bytes that ``build`` left in the release directory.

Gates of different wheels run side by side; the performance gate runs alone, afterwards, so that nothing else
disturbs what it measures. Each result is evidence, written as a file; a FAILED one does not stop the others, so
that one run tells everything that is wrong.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime as dt
import importlib
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import wheelmark
from wheelmark import digests, strictjson
from wheelmark.config import Declaration
from wheelmark.errors import StateError, ToolError, WheelmarkError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates.audit import service_setting
from wheelmark.gates.context import Context, Gate
from wheelmark.gates.repeat import SecondBuild
from wheelmark.lock.environment import locked_environment
from wheelmark.pipeline.building import read_built, read_inputs
from wheelmark.pipeline.buildrecord import Built, BuiltWheel
from wheelmark.pipeline.imagegating import NAMES as IMAGE_GATES
from wheelmark.pipeline.imagegating import (
    GatedImage,
    gate_images,
    image_contexts,
    image_evidence_path,
)
from wheelmark.pipeline.imaging import ReleaseImage
from wheelmark.pipeline.importing import SUFFIX, imports_of, merge
from wheelmark.pipeline.planning import PlannedTarget, make_plan
from wheelmark.pipeline.progress import Progress, seconds
from wheelmark.pipeline.workspace import Workspace, holding
from wheelmark.release import Step, Steps
from wheelmark.targets import Target

_RECORD = "tested.json"
ALONE = ("performance",)
"""Gates that measure time and tolerate no neighbour."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gated:
    """One gate's answer for one wheel."""

    wheel: BuiltWheel
    evidence: Evidence
    seconds: float
    resumed: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tested:
    """Every answer."""

    wheels: tuple[Gated, ...]
    images: tuple[GatedImage, ...]

    @property
    def all(self) -> tuple[Gated | GatedImage, ...]:
        """Of wheels, then of images."""
        return (*self.wheels, *self.images)


def evidence_path(wheel: BuiltWheel, gate: str) -> str:
    """Where evidence stands, relative to the release directory."""
    return f"evidence/{Path(wheel.path).name}/{gate}.json"


@holding
def test(workspace: Workspace, progress: Progress) -> Tested:
    """Run every gate that the declaration names for what was built.

    Raises:
        StateError: Nothing was built, or a wheel or an image changed since.
    """
    built = read_built(workspace)
    _check_sources(workspace, built)
    plan = {str(planned.row.target): planned for planned in make_plan(workspace).targets}
    second = SecondBuild(
        declaration=workspace.declaration,
        targets=[wheel.target for wheel in built.wheels],
        work=workspace.directory.state / "second-build",
        environments=workspace.environments,
        images=bool(built.images),
    )
    contexts = _contexts(workspace, built, plan, second, progress)
    work = [(wheel, gate) for wheel in built.wheels for gate in contexts[wheel.target].row.gates]
    together = [item for item in work if item[1] not in ALONE]
    alone = [item for item in work if item[1] in ALONE]

    def one(item: tuple[BuiltWheel, str]) -> Gated:
        return _run_gate(
            workspace, built, item[0], item[1], context=contexts[item[0].target], progress=progress
        )

    with progress.stage("gates"):
        # The repeat gates come last: all of them wait for one second build, and would hold up the others.
        ordered = sorted(together, key=lambda item: item[1] == "repeat")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            done = list(pool.map(one, ordered))
        done += [one(item) for item in alone]
    planned = {target: item.image for target, item in plan.items() if item.image is not None}
    with progress.stage("gates of images"):
        images = gate_images(
            workspace,
            built.images,
            image_contexts(workspace, built.images, planned, second.image),
            progress,
            wheelmark_digest=_own_digest(),
        )
    order = {(wheel.path, gate): index for index, (wheel, gate) in enumerate(work)}
    results = sorted(done, key=lambda item: order[item.wheel.path, item.evidence.gate])
    return _write_evidence(workspace, built, results, images)


def _write_evidence(
    workspace: Workspace, built: Built, results: Sequence[Gated], images: Sequence[GatedImage]
) -> Tested:
    """Put what counts into the release directory: this machine's evidence, and what other machines gave."""
    shown: list[Gated] = []
    keep: set[str] = set()
    for wheel in built.wheels:
        mine = {item.evidence.gate: item for item in results if item.wheel is wheel}
        own = tuple(item.evidence for item in mine.values())
        for evidence in merge(own, imports_of(workspace.directory, wheel)):
            relative = evidence_path(wheel, evidence.gate)
            workspace.directory.write(relative, digests.canonical_json(evidence.as_json()))
            keep.add(relative)
            run = mine.get(evidence.gate)
            took, resumed = (run.seconds, run.resumed) if run and not evidence.imported else (0.0, True)
            shown.append(Gated(wheel=wheel, evidence=evidence, seconds=took, resumed=resumed))
    for item in images:
        relative = image_evidence_path(item.image, item.evidence.gate)
        workspace.directory.write(relative, digests.canonical_json(item.evidence.as_json()))
        keep.add(relative)
    workspace.directory.remove_except("evidence", keep)
    workspace.remember(_RECORD, {path: digests.sha256_file(workspace.directory / path) for path in keep})
    return Tested(wheels=tuple(shown), images=tuple(images))


def read_evidence(workspace: Workspace, built: Built) -> dict[str, tuple[tuple[str, Evidence], ...]]:
    """Path of a wheel, or of an image's manifest -> (evidence path, evidence) of every gate that it is held to.

    Raises:
        StateError: A gate did not run on these bytes (reason ``not-tested``), or its evidence is not what ``test``
            wrote (``changed-since-test``).
    """
    written = workspace.recall(_RECORD) or {}
    found: dict[str, tuple[tuple[str, Evidence], ...]] = {}
    for wheel in built.wheels:
        gates = list(workspace.declaration.row(Target.parse(wheel.target)).gates)
        extra = (f"{item.evidence.gate}{SUFFIX}" for item in imports_of(workspace.directory, wheel))
        gates += [gate for gate in extra if (workspace.directory / evidence_path(wheel, gate)).is_file()]
        found[wheel.path] = tuple(
            _read_one(workspace, wheel, gate, evidence_path(wheel, gate), written) for gate in gates
        )
    for image in built.images:
        found[image.path] = tuple(
            _read_one(workspace, image, gate, image_evidence_path(image, gate), written)
            for gate in IMAGE_GATES
        )
    return found


def _read_one(
    workspace: Workspace,
    artifact: BuiltWheel | ReleaseImage,
    gate: str,
    relative: str,
    written: Mapping[str, str],
) -> tuple[str, Evidence]:
    path, sha256 = workspace.directory / relative, written.get(relative)
    if sha256 is not None and path.is_file():
        if digests.sha256_file(path) != sha256:
            raise StateError(
                f"{path} is not the evidence that the gate wrote",
                cause="it was changed after the test",
                fix="nox -s test sign",
                reason="changed-since-test",
            )
        evidence = Evidence.from_json(strictjson.loads(path.read_bytes(), what=relative))
        if evidence.subject == artifact.sha256 and evidence.gate == gate:
            return relative, evidence
    raise StateError(
        f"gate {gate} has not run on {Path(artifact.path).name} as it is now",
        fix="nox -s test",
        reason="not-tested",
    )


def _check_sources(workspace: Workspace, built: Built) -> None:
    """Gates compare the wheel with the sources that made it; those must still be there."""
    now = read_inputs(workspace)
    changed = sorted(name for name in {*now, *built.inputs} if now.get(name) != built.inputs.get(name))
    if changed:
        raise StateError(
            f"{', '.join(changed)} changed since the build",
            cause="the wheels in the release directory were built from something else",
            fix="nox -s build test",
            reason="changed-since-build",
        )


def _contexts(
    workspace: Workspace,
    built: Built,
    plan: Mapping[str, PlannedTarget],
    second: SecondBuild,
    progress: Progress,
) -> dict[str, Context]:
    declaration = workspace.declaration
    environment = locked_environment(
        [workspace.build_lock], cache=workspace.environments, progress=progress.note
    )
    contexts = {}
    for wheel in built.wheels:
        row = declaration.row(Target.parse(wheel.target))
        contexts[wheel.target] = Context(
            declaration=declaration,
            row=row,
            wheel=workspace.directory / wheel.path,
            sha256=wheel.sha256,
            sbom=workspace.directory / wheel.sbom,
            lock=workspace.directory / wheel.lock,
            cache=workspace.environments,
            build_lock=workspace.build_lock,
            build_python=environment.python,
            declared_variants=_expected(plan[wheel.target].variants, wheel),
            toolchain=wheel.toolchain,
            second=_bind(second, wheel.target),
        )
    return contexts


def _expected(declared: Mapping[str, tuple[str, ...]], wheel: BuiltWheel) -> dict[str, tuple[str, ...]]:
    """What has to be in the wheel: what is declared, without optional variants that this arch refused."""
    return {
        kernel: tuple(name for name in names if f"{kernel}/{name}" not in wheel.left_out)
        for kernel, names in declared.items()
    }


def _bind(second: SecondBuild, target: str) -> Any:
    return lambda: second.wheel(target)


def _run_gate(
    workspace: Workspace, built: Built, wheel: BuiltWheel, name: str, *, context: Context, progress: Progress
) -> Gated:
    gate: Gate = importlib.import_module(f"wheelmark.gates.{name}")
    step = Step(
        name=f"gate/{name}/{wheel.target}", inputs=_gate_inputs(workspace, wheel, name, context, built.inputs)
    )
    steps: Steps = workspace.steps
    record = steps.finished(step)
    if record is not None:
        evidence = Evidence.from_json(record.result["evidence"])
        return Gated(wheel=wheel, evidence=evidence, seconds=record.result["seconds"], resumed=True)
    begun = time.monotonic()
    evidence = judge_gate(gate, context)
    took = round(time.monotonic() - begun, 3)
    if evidence.verdict is not Verdict.FAILED:
        steps.record(step, [], {"evidence": evidence.as_json(), "seconds": took})
    progress.note(
        f"{wheel.target} {name}: {evidence.verdict.value} ({evidence.level.value}, {seconds(took)})"
    )
    return Gated(wheel=wheel, evidence=evidence, seconds=took, resumed=False)


def judge_gate(gate: Gate, context: Context) -> Evidence:
    """The gate's evidence; a gate that breaks is an answer too, and never a good one."""
    try:
        return gate.run(context)
    except ToolError as error:
        verdict, level, reason = Verdict.UNCHECKED, Level.NONE, error.reason
        text = str(error)
    except WheelmarkError as error:
        verdict, level, reason = Verdict.FAILED, Level.STATIC, error.reason
        text = str(error)
    return context.evidence(
        gate.NAME, verdict, level, text.splitlines()[0][:300], reason=reason, details={"error": text[-8000:]}
    )


def _gate_inputs(
    workspace: Workspace, wheel: BuiltWheel, name: str, context: Context, inputs: Mapping[str, str]
) -> dict[str, Any]:
    """Everything that a gate's answer depends on."""
    settings = json.loads(json.dumps(dataclasses.asdict(workspace.declaration.gates), default=str))
    return {
        "wheel": wheel.sha256,
        "sbom": digests.sha256_file(context.sbom),
        "lock": digests.sha256_file(context.lock),
        "build_lock": digests.sha256_file(context.build_lock),
        "toolchain": wheel.toolchain,
        "variants": {kernel: list(names) for kernel, names in context.declared_variants.items()},
        "settings": settings,
        "files": _settings_files(workspace.declaration, name),
        "sources": dict(inputs) if name == "repeat" else {},
        "machine": platform.machine(),
        "python": platform.python_version(),
        "wheelmark": _own_digest(),
    }


def _settings_files(declaration: Declaration, name: str) -> dict[str, str]:
    """Digests of files that a gate's settings name, and what the audit's answer ages with."""
    found = {}
    baseline = declaration.gates.performance.baseline
    if name == "performance" and baseline is not None and (declaration.root / baseline).is_file():
        found["baseline"] = digests.sha256_file(declaration.root / baseline)
    if name == "audit":
        service = service_setting(declaration)
        found |= {"service": service, "day": f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}"}
        if (declaration.root / service).is_dir():
            found["advisories"] = digests.sha256_tree(declaration.root / service)
    return found


def _own_digest() -> str:
    """Digest of this package: another Wheelmark may judge otherwise."""
    root = Path(wheelmark.__file__).parent
    lines = [
        f"{digests.sha256_file(root / name)}  {name}\n"
        for name in digests.tree_files(root)
        if name.endswith((".py", ".c"))
    ]
    return digests.sha256("".join(lines).encode())
