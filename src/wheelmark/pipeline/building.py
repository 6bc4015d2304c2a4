"""The ``build`` stage: locked inputs in; kernels, wheels and their descriptions out.

1. Plan: which targets this machine builds.  2. Environment: triton and torch's headers, by hash.
3. Compile: kernels for every GPU target and the native library for every host, side by side.
4. Assemble: one wheel a target, its SBOM embedded.  5. Describe: the detached SBOM of the finished bytes.
6. Images: one for each target that has a recipe, around the finished wheel (``imaging``).
7. Leave behind exactly this: files of an earlier build are removed, and what was built is written down.
"""

from __future__ import annotations

import concurrent.futures
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheelmark import digests
from wheelmark.build.kernels import CompiledKernels, compile_kernels
from wheelmark.build.native import NativeLibrary, build_native
from wheelmark.build.wheel import assemble_wheel
from wheelmark.config import HostArch, TargetRow
from wheelmark.config.recipe import project_recipes
from wheelmark.confinement import obstacle
from wheelmark.errors import StateError, WheelmarkError
from wheelmark.lock.environment import Environment, locked_environment
from wheelmark.lock.plan import runtime_lock
from wheelmark.manifest import Kind
from wheelmark.pipeline.buildrecord import Built, BuiltWheel, read_record
from wheelmark.pipeline.imaging import Payload, build_images
from wheelmark.pipeline.planning import Plan, PlannedTarget, make_plan
from wheelmark.pipeline.progress import Progress
from wheelmark.pipeline.revision import check_revision, read_revision
from wheelmark.pipeline.workspace import Workspace, holding
from wheelmark.release import ReleaseDirectory
from wheelmark.sbom import describe_wheel, embedded_document, validate
from wheelmark.targets import Target

_RECORD = "build.json"
_BUNDLES = "bundles"
RECIPES = "containers"
"""Folder of the image recipes."""


@holding
def build(workspace: Workspace, progress: Progress) -> Built:
    """Build every planned target into the release directory."""
    written = (workspace.directory.root, workspace.directory.state, workspace.cache, workspace.environments)
    revision = read_revision(
        workspace.declaration.root,
        outputs=[folder for folder in written if not workspace.source.is_relative_to(folder)],
    )
    check_revision(revision, snapshot=workspace.snapshot, release=workspace.release)
    plan = make_plan(workspace)
    for item in (*plan.not_built, *plan.no_images):
        progress.note(f"not built: {item.target}: {item.reason}; {item.fix}")
    if obstacle():
        progress.note(f"the project's code does not run confined here: {obstacle()}")
    with progress.stage("build environment"):
        environment = locked_environment(
            [workspace.build_lock], cache=workspace.environments, progress=progress.note
        )
    kernels, natives = _compile(workspace, plan, environment, progress)
    with progress.stage("wheels and descriptions"):
        wheels = tuple(
            _wheel(workspace, planned, kernels.get(planned.row.target), natives[planned.row.host])
            for planned in plan.buildable
        )
        build_lock = workspace.directory.take(workspace.build_lock, f"locks/{workspace.build_lock.name}")
    payloads = {
        wheel.target: Payload(path=wheel.path, sha256=wheel.sha256, sbom=wheel.sbom) for wheel in wheels
    }
    with progress.stage("images"):
        images, without = build_images(workspace, plan.buildable, payloads, progress)
    built = Built(
        wheels=wheels,
        images=images,
        not_built=(*plan.absent, *without),
        snapshot=workspace.snapshot or revision.is_snapshot,
        commit=revision.commit,
        inputs=read_inputs(workspace),
        build_lock=f"locks/{build_lock.name}",
        files={
            path: digests.sha256_file(workspace.directory / path)
            for path in (
                f"locks/{build_lock.name}",
                *(
                    path
                    for wheel in wheels
                    for path in (wheel.path, wheel.sbom, wheel.lock, *wheel.code_objects)
                ),
                *sorted({path for image in images for path in (*image.files, *image.locks)}),
            )
        },
    )
    _tidy(workspace, built)
    workspace.remember(_RECORD, built.as_json())
    if no_longer_signed(workspace.directory, built):
        progress.note(
            f"{workspace.directory.root} is no longer the release that was signed there: its statements are about other "
            "files; next: nox -s test sign"
        )
    return built


def no_longer_signed(directory: ReleaseDirectory, built: Built) -> bool:
    """Whether the release directory holds a signed release that is not of the files just built."""
    if not directory.manifest_path.is_file() or not any((directory / _BUNDLES).glob("*")):
        return False
    try:
        manifest = directory.read_manifest()
    except WheelmarkError:
        return True
    signed = {entry.path: entry.sha256 for entry in manifest.entries if entry.kind is not Kind.EVIDENCE}
    return signed != dict(built.files) or manifest.snapshot != built.snapshot


def read_built(workspace: Workspace) -> Built:
    """What ``build`` wrote down, with the bytes of every file checked again.

    Raises:
        StateError: Nothing was built here (reason ``not-built``), what was written down cannot be read (``build-record``),
            or a file changed since (``changed-since-build``).
    """
    built = read_record(workspace.directory.state / _RECORD, workspace.directory.root)
    for relative, sha256 in built.files.items():
        file = workspace.directory / relative
        if not file.is_file() or file.is_symlink() or digests.sha256_file(file) != sha256:
            raise StateError(
                f"{file} is not the file that was built",
                cause="it was changed or removed after the build",
                fix="nox -s build test sign",
                reason="changed-since-build",
            )
    return built


def _compile(
    workspace: Workspace, plan: Plan, environment: Environment, progress: Progress
) -> tuple[Mapping[Target, CompiledKernels], Mapping[HostArch, NativeLibrary]]:
    declaration = workspace.declaration
    gpu = [planned.row.target for planned in plan.buildable if planned.row.target.is_gpu]
    hosts = sorted({planned.row.host for planned in plan.buildable}, key=lambda host: host.value)
    include = environment.site_packages / "torch" / "include"
    with progress.stage("compile"), concurrent.futures.ThreadPoolExecutor(1) as pool:
        natives = pool.submit(
            lambda: {
                host: build_native(
                    declaration,
                    host,
                    torch_include=include,
                    cache=workspace.cache,
                    progress=progress.note,
                )
                for host in hosts
            }
        )
        kernels: Mapping[Target, CompiledKernels] = (
            compile_kernels(
                [workspace.source / path for path in declaration.kernels.declarations],
                workspace.source,
                gpu,
                python=environment.python,
                cache=workspace.cache,
                workers=declaration.kernels.workers,
                progress=progress.note,
            )
            if gpu
            else {}
        )
        return kernels, natives.result()


def _wheel(
    workspace: Workspace,
    planned: PlannedTarget,
    kernels: CompiledKernels | None,
    native: NativeLibrary,
) -> BuiltWheel:
    begun = time.monotonic()
    declaration, row, directory = workspace.declaration, planned.row, workspace.directory
    lock = runtime_lock(declaration.root, row.torch_build)
    with tempfile.TemporaryDirectory(prefix="wheelmark-wheel-") as folder:
        made = assemble_wheel(
            declaration,
            row,
            native=native,
            kernels=kernels,
            output=Path(folder),
            sbom=lambda files: embedded_document(files, declaration=declaration, row=row, native=native),
        )
        document = describe_wheel(
            made, declaration=declaration, row=row, lock=lock, native=native, kernels=kernels
        )
        validate(document)
        wheel = directory.take(made, f"wheels/{made.name}")
    sbom = directory.write(f"sbom/{wheel.name}.cdx.json", document)
    locked = directory.take(lock, f"locks/{lock.name}")
    objects = [] if kernels is None else _code_objects(directory.write, row, kernels)
    relative = [path.relative_to(directory.root).as_posix() for path in (wheel, sbom, locked, *objects)]
    return BuiltWheel(
        target=str(row.target),
        path=relative[0],
        sha256=digests.sha256_file(wheel),
        size=wheel.stat().st_size,
        sbom=relative[1],
        lock=relative[2],
        code_objects=tuple(relative[3:]),
        left_out=tuple(f"{item.kernel}/{item.variant}" for item in kernels.refused) if kernels else (),
        toolchain=digests.sha256(
            f"{native.toolchain}\n{kernels.manifest.toolchain.digest if kernels else ''}".encode()
        ),
        seconds=round(time.monotonic() - begun, 3),
    )


def _code_objects(write: Any, row: TargetRow, kernels: CompiledKernels) -> list[Path]:
    folder = f"kernels/{row.target}"
    files = {"manifest.json": kernels.manifest.as_bytes(), **kernels.objects}
    return [write(f"{folder}/{name}", data) for name, data in sorted(files.items())]


def read_inputs(workspace: Workspace) -> dict[str, str]:
    """Digests of what the project put in, by name; for the provenance."""
    root = workspace.declaration.root
    inputs = {"wheelmark.toml": digests.sha256_file(root / "wheelmark.toml")}
    locks = root / "lockfiles"
    for path in sorted([*locks.glob("*.txt"), *locks.glob("debian-*.json")]):
        inputs[f"lockfiles/{path.name}"] = digests.sha256_file(path)
    recipes = {*(root / RECIPES).glob("*.toml"), *project_recipes(workspace.declaration)}
    for path in sorted(recipes):
        inputs[path.relative_to(root).as_posix()] = digests.sha256_file(path)
    lines = [
        f"{digests.sha256_file(workspace.source / name)}  {name}\n"
        for name in digests.tree_files(workspace.source)
        if "__pycache__" not in name and not name.endswith((".pyc", ".so"))
    ]
    inputs[str(workspace.declaration.project.source)] = digests.sha256("".join(lines).encode())
    return inputs


def _tidy(workspace: Workspace, built: Built) -> None:
    """Remove what an earlier build left: other wheels, and a closing that no longer holds."""
    directory = workspace.directory
    keep = set(built.files) | {f"{wheel.path}.sigstore.json" for wheel in built.wheels}
    for folder in ("wheels", "kernels", "sbom", "locks"):
        directory.remove_except(folder, keep)
