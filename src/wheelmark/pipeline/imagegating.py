"""Image gates in the ``test`` stage: every image of the release directory, held to every image gate.

Containers run one after another and last: they use every CPU, and one store. A result is kept as those of wheels are, and
found again by everything that it depends on.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime as dt
import importlib
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelmark import digests
from wheelmark.errors import ToolError, WheelmarkError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates.audit import service_setting
from wheelmark.gates.image import context as gate_context
from wheelmark.gates.image.context import ImageContext, ImageGate, SecondImage
from wheelmark.gates.image.repeat import EXPECTED
from wheelmark.lock.debian.advisories import VARIABLE
from wheelmark.manifest import IMAGES
from wheelmark.pipeline.imageplan import PlannedImage
from wheelmark.pipeline.imaging import ReleaseImage
from wheelmark.pipeline.progress import Progress, seconds
from wheelmark.pipeline.workspace import Workspace
from wheelmark.release import Step
from wheelmark.targets import Target

NAMES = tuple(f"image-{module}" for module in gate_context.GATES)
"""Every image gate, in the order in which they are shown."""
ALONE = ("run",)
"""Gates that use the whole machine."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GatedImage:
    """One gate's answer for one image."""

    image: ReleaseImage
    evidence: Evidence
    seconds: float
    resumed: bool


def image_evidence_path(image: ReleaseImage, gate: str) -> str:
    """Where evidence stands, relative to the release directory."""
    return f"evidence/{image.target}.image/{gate}.json"


def image_contexts(
    workspace: Workspace,
    images: Sequence[ReleaseImage],
    planned: Mapping[str, PlannedImage],
    second: Callable[[str], SecondImage],
) -> dict[str, ImageContext]:
    """Target -> what its image's gates are given."""
    directory = workspace.directory
    return {
        image.target: ImageContext(
            declaration=workspace.declaration,
            row=workspace.declaration.row(Target.parse(image.target)),
            recipe=planned[image.target].recipe,
            layout=directory / IMAGES,
            sha256=image.sha256,
            layers={layer.name: layer.sha256 for layer in image.layers},
            stand_in=image.stand_in,
            inputs=image.inputs,
            sbom=directory / image.sbom,
            debian_lock=directory / image.debian_lock if image.debian_lock else None,
            cache=workspace.environments,
            second=_bound(second, image.target),
        )
        for image in images
    }


def _bound(second: Callable[[str], SecondImage], target: str) -> Callable[[], SecondImage]:
    return lambda: second(target)


def gate_images(
    workspace: Workspace,
    images: Sequence[ReleaseImage],
    contexts: Mapping[str, ImageContext],
    progress: Progress,
    *,
    wheelmark_digest: str,
) -> tuple[GatedImage, ...]:
    """Run every image gate on every image.

    Args:
        workspace: Places and choices.
        images: What was built.
        contexts: By target.
        progress: Told of each result.
        wheelmark_digest: Of this package: another one may judge otherwise.
    """

    def one(item: tuple[ReleaseImage, str]) -> GatedImage:
        image, module = item
        return _run_gate(
            workspace, image, module, contexts[image.target], progress, wheelmark_digest=wheelmark_digest
        )

    work = [(image, module) for module in gate_context.GATES for image in images]
    together = [item for item in work if item[1] not in ALONE]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        done = list(pool.map(one, together))
    done += [one(item) for item in work if item[1] in ALONE]
    order = {(image.target, f"image-{module}"): index for index, (image, module) in enumerate(work)}
    return tuple(sorted(done, key=lambda item: order[item.image.target, item.evidence.gate]))


def _run_gate(
    workspace: Workspace,
    image: ReleaseImage,
    module: str,
    context: ImageContext,
    progress: Progress,
    *,
    wheelmark_digest: str,
) -> GatedImage:
    gate: ImageGate = importlib.import_module(f"wheelmark.gates.image.{module}")
    step = Step(
        name=f"gate/image/{module}/{image.target}",
        inputs={
            "image": image.sha256,
            "sbom": digests.sha256_file(context.sbom),
            "inputs": image.inputs,
            "settings": _settings(workspace, module),
            "machine": platform.machine(),
            "wheelmark": wheelmark_digest,
        },
    )
    record = workspace.steps.finished(step)
    if record is not None:
        evidence = Evidence.from_json(record.result["evidence"])
        return GatedImage(image=image, evidence=evidence, seconds=record.result["seconds"], resumed=True)
    begun = time.monotonic()
    evidence = judge_image_gate(gate, context)
    took = round(time.monotonic() - begun, 3)
    if evidence.verdict is not Verdict.FAILED:
        workspace.steps.record(step, [], {"evidence": evidence.as_json(), "seconds": took})
    progress.note(
        f"{image.target} {gate.NAME}: {evidence.verdict.value} ({evidence.level.value}, {seconds(took)})"
    )
    return GatedImage(image=image, evidence=evidence, seconds=took, resumed=False)


def judge_image_gate(gate: ImageGate, context: ImageContext) -> Evidence:
    """The gate's evidence; a gate that breaks is an answer too, and never a good one."""
    try:
        return gate.run(context)
    except ToolError as error:
        return _broken(gate, context, error, Verdict.UNCHECKED, Level.NONE)
    except WheelmarkError as error:
        return _broken(gate, context, error, Verdict.FAILED, Level.STATIC)


def _broken(
    gate: ImageGate, context: ImageContext, error: WheelmarkError, verdict: Verdict, level: Level
) -> Evidence:
    """Evidence that says what stopped a gate, and the next step."""
    next_step = f"; next: {error.fix}" if error.fix else ""
    return context.evidence(
        gate.NAME,
        verdict,
        level,
        f"{error.what.splitlines()[0][:300]}{next_step[:300]}",
        reason=error.reason,
        details={"error": str(error)[-8000:]},
    )


def _settings(workspace: Workspace, module: str) -> dict[str, Any]:
    """What a gate's answer depends on besides the image."""
    declaration = workspace.declaration
    if module == "repeat":
        path = declaration.root / EXPECTED
        return {"expected": digests.sha256_file(path) if path.is_file() else ""}
    if module == "run":
        return {"module": declaration.gates.correctness.module}
    if module != "audit":
        return {}
    service, debian = service_setting(declaration), os.environ.get(VARIABLE, "")
    found = {"service": service, "debian": debian, "day": f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}"}
    found["age"] = str(declaration.gates.audit.max_age_days)
    for name, folder in (("advisories", declaration.root / service), ("debian-data", Path(debian or "-"))):
        if folder.is_dir():
            found[name] = digests.sha256_tree(folder)
    return found
