"""Declared kernels in, manifests and code objects out, for any number of targets.

First the quick question: is everything that could change a target's result as it was? Then its stored result is
taken, every object checked by digest, and no Triton is started. Otherwise a worker imports the project and
gives each variant's key; what the cache has is taken from it, the rest compiled.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import wheelmark
from wheelmark import digests
from wheelmark.binaries.kernelmanifest import Kernel, KernelManifest, Toolchain, Variant, read_kernel_manifest
from wheelmark.build.kernels.cache import ObjectCache, tree_digest
from wheelmark.build.kernels.declaration import KernelDeclarations
from wheelmark.build.kernels.objects import Refusal, Unfit, describe_object
from wheelmark.build.kernels.scheduler import Scheduler, TargetWork, target_work
from wheelmark.build.kernels.toolchain import CompilerFiles, assembler_version, read_compiler
from wheelmark.build.kernels.variants import load_all
from wheelmark.build.kernels.worker_process import prepare_scratch
from wheelmark.errors import BuildError, ConfigError, InputError
from wheelmark.targets import Target, known_ids

_FOLDER = "kernels"
"""Of the pipeline's cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledKernels:
    """All code objects of one target."""

    target: Target
    manifest: KernelManifest
    objects: Mapping[str, bytes]
    """By file name, as the manifest names them."""
    refused: tuple[Refusal, ...]
    """Optional variants that are absent."""
    device_queries: tuple[str, ...]
    """What the project's modules asked of a device while they were imported."""
    cached: int
    """Variants taken from the cache."""
    compiled: int
    """Variants compiled in this run."""


def compile_kernels(
    declarations: Sequence[Path],
    source_root: Path,
    targets: Sequence[Target],
    *,
    python: Path,
    cache: Path,
    workers: int = 0,
    progress: Callable[[str], None] = lambda _text: None,
) -> Mapping[Target, CompiledKernels]:
    """Compile every declared kernel for every target.

    Args:
        declarations: Kernel declaration files.
        source_root: The project's source folder; all that an import of it may read is under it.
        targets: GPU targets.
        python: The build environment's interpreter: it has Triton, and what the project imports.
        cache: The pipeline's cache folder; ``kernels`` in it is used, and made where absent.
        workers: Worker processes; 0 means one for each CPU.
        progress: Told of each compiled variant and each finished target.

    Raises:
        ConfigError: A declaration says something that does not hold.
        BuildError: A variant was refused that is not optional; all of them are listed (reason: that of the
            refusals where they agree, else ``kernels-refused``). Nothing of that target is left out silently.
        ToolError: The build environment has no Triton, or workers cannot run here.
    """
    files = load_all(declarations)
    _check_targets(targets)
    compiler = read_compiler(python)
    store = ObjectCache(cache / _FOLDER)
    keys = _result_keys(declarations, files, source_root, compiler, targets)
    found: dict[Target, CompiledKernels] = {}
    for target in targets:
        stored = _stored(store, keys[target], target)
        if stored is not None:
            found[target] = stored
            progress(f"{target}: nothing changed, {stored.cached} variants from the cache")
    work = [target_work(files, target) for target in targets if target not in found]
    refusals: list[Refusal] = []
    if work:
        with scratch_folder(compiler) as scratch:
            Scheduler(
                files,
                compiler,
                source_root=source_root,
                cache=store,
                scratch=scratch,
                workers=workers,
                progress=progress,
            ).run(work)
        for item in work:
            result = _assemble(item, compiler)
            failed = [refusal for refusal in result.refused if not refusal.optional]
            refusals += failed
            if not failed:
                _store(store, keys[item.target], result)
            found[item.target] = result
            progress(f"{item.target}: {result.compiled} variants compiled, {result.cached} from the cache")
    if refusals:
        raise _refused(refusals)
    return {target: found[target] for target in targets}


def source_digests(
    declarations: Sequence[Path],
    source_root: Path,
    *,
    python: Path,
    target: Target | None = None,
    cache: Path | None = None,
) -> Mapping[str, str]:
    """The digest of each kernel's source and all that it calls, as manifests record it.

    Args:
        declarations: Kernel declaration files.
        source_root: The project's source folder, or the folder that an installed wheel's packages are in: where a
            declaration is not in it, it takes the place of the declaration's own folder.
        python: The build environment's interpreter.
        target: The target to import for; the first that each file's kernels are for where absent. It matters only
            to modules that probe the device.
        cache: Where a result is kept for as long as nothing changes; absent: none is.

    Raises:
        ConfigError: A declaration says something that does not hold.
        BuildError: A kernel cannot be imported or described.
    """
    files = load_all(declarations)
    compiler = read_compiler(python)
    everywhere = [Target.parse(name) for name in known_ids()]
    candidates = [target] if target is not None else [item for item in everywhere if item.is_gpu]
    store = None if cache is None else ObjectCache(cache / _FOLDER)
    key = ""
    if store is not None:
        keys = _result_keys(declarations, files, source_root, compiler, candidates)
        key = digests.sha256(digests.canonical_json(["sources", *keys.values()]))
        stored = store.result(key)
        if stored is not None:
            return {str(name): str(digest) for name, digest in stored.items()}
    found: dict[str, str] = {}
    wanted = {kernel.name for file in files for kernel in file.kernels if any(map(kernel.is_for, candidates))}
    with scratch_folder(compiler) as scratch:
        for candidate in candidates:
            if wanted <= found.keys():
                break
            work = target_work(files, candidate)
            if not work.variants:
                continue
            Scheduler(
                files,
                compiler,
                source_root=source_root,
                cache=None,
                scratch=scratch,
                workers=1,
                progress=lambda _text: None,
            ).run([work])
            lost = [_refusal(work, key) for key in work.refused if key[0] not in work.sources]
            if lost:
                raise _refused(lost)
            found = {**work.sources, **found}
    result = {name: found[name] for name in sorted(found)}
    if store is not None:
        store.put_result(key, dict(result))
    return result


def _check_targets(targets: Sequence[Target]) -> None:
    for target in targets:
        if not target.is_gpu:
            raise ConfigError(f"no kernels are compiled for {target}", reason="kernel-target")


@contextmanager
def scratch_folder(compiler: CompilerFiles) -> Iterator[Path]:
    """A folder for workers, whose path has the same length in every run (see ``worker_process``)."""
    short = Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it
    base = short if os.access(short, os.W_OK | os.X_OK) else None
    scratch = Path(tempfile.mkdtemp(prefix="wheelmark-", dir=base))
    try:
        prepare_scratch(scratch, compiler)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _result_keys(
    declarations: Sequence[Path],
    files: Sequence[KernelDeclarations],
    source_root: Path,
    compiler: CompilerFiles,
    targets: Sequence[Target],
) -> Mapping[Target, str]:
    """For each target a key over everything that its result follows from."""
    roots = [source_root, *(folder for file in files for folder in file.folders(source_root))]
    covered = [
        root
        for index, root in enumerate(path.resolve() for path in roots)
        if not any(root.is_relative_to(other.resolve()) for other in roots[:index])
    ]
    common = {
        "declarations": [digests.sha256_file(path) for path in declarations],
        "sources": [tree_digest(root) for root in covered],
        "environment": compiler.environment,
        "toolchain": compiler.digest,
        "python": compiler.python_version,
        "pipeline": tree_digest(Path(wheelmark.__file__).parent / "build" / "kernels"),
        "readers": tree_digest(Path(wheelmark.__file__).parent / "binaries"),
        "limits": digests.sha256_file(Path(wheelmark.__file__).parent / "targets.py"),
    }
    return {
        target: digests.sha256(digests.canonical_json({**common, "target": str(target)}))
        for target in targets
    }


def _assemble(item: TargetWork, compiler: CompilerFiles) -> CompiledKernels:
    variants: dict[str, list[Variant]] = {}
    objects: dict[str, bytes] = {}
    for key in item.variants:
        if key not in item.done:
            continue
        kernel, variant = key
        compiled = item.done[key]
        file = f"{kernel}.{variant}.{item.target.code_object}"
        try:
            described = describe_object(
                name=variant,
                file=file,
                target=item.target,
                data=compiled.data,
                facts=compiled.facts,
                metadata=compiled.metadata,
            )
        except Unfit as unfit:
            item.refused[key] = (unfit.reason, str(unfit))
            continue
        variants.setdefault(kernel, []).append(described)
        objects[file] = compiled.data
    sample = next(iter(objects.values()), b"")
    assembler = assembler_version(compiler, item.target, sample) if sample else "none"
    return CompiledKernels(
        target=item.target,
        manifest=KernelManifest(
            target=item.target,
            toolchain=Toolchain(triton=compiler.triton, assembler=assembler, digest=compiler.digest),
            kernels=tuple(
                Kernel(name=name, source_digest=item.sources[name], variants=tuple(group))
                for name, group in variants.items()
            ),
        ),
        objects=objects,
        refused=tuple(_refusal(item, key) for key in item.variants if key in item.refused),
        device_queries=item.asked,
        cached=item.cached,
        compiled=item.compiled,
    )


def _refusal(item: TargetWork, key: tuple[str, str]) -> Refusal:
    reason, text = item.refused[key]
    return Refusal(
        target=item.target,
        kernel=key[0],
        variant=key[1],
        reason=reason,
        text=text,
        optional=item.variants[key].optional,
    )


def _refused(refusals: Sequence[Refusal]) -> BuildError:
    reasons = {refusal.reason for refusal in refusals}
    alike: dict[tuple[str, str, str], list[Refusal]] = {}
    for refusal in refusals:
        alike.setdefault((refusal.kernel, refusal.reason, refusal.text), []).append(refusal)
    listed = "\n".join(_listed(group) for group in alike.values())
    count = len(refusals)
    return BuildError(
        f"{count} kernel variant{'s were' if count > 1 else ' was'} refused:\n{listed}",
        fix="mend the kernel or its declaration, or mark it optional there (docs: kernel declarations)",
        reason=reasons.pop() if len(reasons) == 1 else "kernels-refused",
    )


def _listed(alike: Sequence[Refusal]) -> str:
    """One entry for all variants of a kernel that were refused with the same words."""
    first, *others = alike
    entry = textwrap.indent(str(first), "    ").removeprefix("    ")
    if not others:
        return f"  - {entry}"
    names: dict[str, list[str]] = {}
    for refusal in others:
        names.setdefault(str(refusal.target), []).append(refusal.variant)
    same = "; ".join(f"for {target} {', '.join(variants)}" for target, variants in names.items())
    return f"  - {entry}\n    and with the same words {len(others)} more: {same}"


def _store(store: ObjectCache, key: str, result: CompiledKernels) -> None:
    store.put_result(
        key,
        {
            "manifest": result.manifest.as_bytes().decode(),
            "asked": list(result.device_queries),
            "refused": [
                {"kernel": item.kernel, "variant": item.variant, "reason": item.reason, "text": item.text}
                for item in result.refused
            ],
        },
    )


def _stored(store: ObjectCache, key: str, target: Target) -> CompiledKernels | None:
    value: Mapping[str, Any] | None = store.result(key)
    if value is None:
        return None
    try:
        manifest = read_kernel_manifest(str(value["manifest"]).encode())
    except InputError:
        return None
    objects: dict[str, bytes] = {}
    for _, variant in manifest.variants():
        data = store.blob(variant.object.sha256)
        if data is None:
            return None
        objects[variant.object.file] = data
    return CompiledKernels(
        target=target,
        manifest=manifest,
        objects=objects,
        refused=tuple(Refusal(target=target, optional=True, **item) for item in value["refused"]),
        device_queries=tuple(value["asked"]),
        cached=len(objects),
        compiled=0,
    )
