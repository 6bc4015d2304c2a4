"""Compile what is not in the cache: worker processes in parallel, one forked process for each target in them.

A death while one variant is compiled is that variant's refusal; the rest of its target goes on in a fresh process.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelmark.build.kernels.cache import ObjectCache, tree_digest
from wheelmark.build.kernels.declaration import KernelDeclaration, KernelDeclarations, matches
from wheelmark.build.kernels.toolchain import CompilerFiles
from wheelmark.build.kernels.variants import DTYPES, DeclaredVariant, expand
from wheelmark.build.kernels.worker_process import SCRIPT, Gone, WorkerProcess
from wheelmark.errors import BuildError
from wheelmark.targets import Backend, Target

SILENCE = 900.0
"""Seconds that one step of a worker may take; the longest measured variant took 12."""

_TRITON_BACKEND = {Backend.CUDA: "cuda", Backend.ROCM: "hip"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """One variant's object and what is known of it besides its bytes."""

    data: bytes
    facts: Mapping[str, Any]
    metadata: Mapping[str, Any]


@dataclasses.dataclass(kw_only=True)
class TargetWork:
    """What is to be done for one target, and what has come of it."""

    target: Target
    variants: Mapping[tuple[str, str], DeclaredVariant]
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    """Source digests by kernel."""
    done: dict[tuple[str, str], Compiled] = dataclasses.field(default_factory=dict)
    refused: dict[tuple[str, str], tuple[str, str]] = dataclasses.field(default_factory=dict)
    """Reason and text."""
    asked: tuple[str, ...] = ()
    """Device queries that the project's modules made while they were imported."""
    cached: int = 0
    compiled: int = 0

    def refuse(self, kernel: str, variant: str | None, reason: str, text: str) -> None:
        """Refuse one variant, or all of a kernel."""
        for key in self.variants:
            if key[0] == kernel and variant in {None, key[1]} and key not in self.done:
                self.refused.setdefault(key, (reason, text))

    @property
    def open(self) -> list[tuple[str, str]]:
        """Variants that are neither done nor refused."""
        return [key for key in self.variants if key not in self.done and key not in self.refused]


def triton_target(target: Target) -> dict[str, Any]:
    """The words that a worker makes Triton's ``GPUTarget`` from."""
    limits = target.limits
    return {
        "backend": _TRITON_BACKEND[target.backend],
        "arch": target.arch.removeprefix("sm"),
        "warp": limits.warp if limits is not None else 0,
    }


def target_work(files: Sequence[KernelDeclarations], target: Target) -> TargetWork:
    """All declared variants of a target, as work."""
    return TargetWork(
        target=target,
        variants={
            (kernel.name, variant.name): variant
            for file in files
            for kernel in file.kernels
            for variant in expand(kernel, target)
        },
    )


class Scheduler:
    """Runs the work of several targets.

    Args:
        files: The declarations.
        source_root: The project's source folder.
        compiler: The build environment.
        cache: Where objects are looked up and stored; ``None`` when only sources are described.
        scratch: An empty folder for everything that workers write.
        workers: Processes at a time; 0 means one for each CPU.
        progress: Told of each finished step.
        silence: Seconds that one step may take.
    """

    def __init__(
        self,
        files: Sequence[KernelDeclarations],
        compiler: CompilerFiles,
        *,
        source_root: Path,
        cache: ObjectCache | None,
        scratch: Path,
        workers: int,
        progress: Callable[[str], None],
        silence: float = SILENCE,
    ) -> None:
        self._files = files
        self._source_root = source_root
        self._compiler = compiler
        self._cache = cache
        self._scratch = scratch
        self._workers = workers or len(os.sched_getaffinity(0))
        self._progress = progress
        self._silence = silence
        self._queue: collections.deque[TargetWork] = collections.deque()
        self._stop = threading.Event()
        self._live: list[WorkerProcess] = []
        self._toolchain_key = {
            "toolchain": compiler.digest,
            "python": compiler.python_version,
            "worker": tree_digest(SCRIPT),
        }

    def run(self, work: Sequence[TargetWork]) -> None:
        """Do all of ``work``; results are put into it.

        Raises:
            BuildError: A worker failed in a way that is no variant's fault.
            ToolError: Workers cannot run here.
        """
        # The longest first, or the last target would run alone: ROCm takes about twice as long.
        self._queue.extend(
            sorted(work, key=lambda item: (item.target.backend is not Backend.ROCM, -len(item.variants)))
        )
        count = min(self._workers, len(work))
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            running = [pool.submit(self._serve) for _ in range(count)]
            try:
                for future in concurrent.futures.as_completed(running):
                    future.result()
            except BaseException:
                # Or the pool would wait until each worker has done with its target.
                self._stop.set()
                for worker in list(self._live):
                    worker.kill()
                raise

    def _serve(self) -> None:
        worker: WorkerProcess | None = None
        try:
            while self._queue and not self._stop.is_set():
                try:
                    item = self._queue.popleft()
                except IndexError:
                    return
                while not self._stop.is_set() and (worker is None or not self._attempt(worker, item)):
                    self._end(worker)
                    worker = self._start()
                    self._live.append(worker)
        finally:
            self._end(worker)

    def _end(self, worker: WorkerProcess | None) -> None:
        if worker is not None:
            worker.close()
            if worker in self._live:
                self._live.remove(worker)

    def _start(self) -> WorkerProcess:
        preload = dict.fromkeys(module for file in self._files for module in file.preload)
        try:
            return WorkerProcess(self._compiler, self._scratch, list(preload), self._silence)
        except Gone as gone:
            raise BuildError(
                f"a kernel worker cannot start: {gone}",
                cause="the build environment is incomplete",
                fix="remove the environment, and let `nox -s build` make it again",
                reason="kernel-worker",
            ) from gone

    def _attempt(self, worker: WorkerProcess, item: TargetWork) -> bool:
        """Run a target's open work in forked processes until none is left.

        Returns:
            Whether ``worker`` can go on; if not, the target is to be tried again with another.
        """
        while item.open:
            try:
                step, ended = _Conversation(worker, item, self._cache, self._scratch, self._progress).hold(
                    self._job(item)
                )
            except _Lost as lost:
                _blame(item, lost.step, lost.gone.reason, str(lost.gone))
                return False
            if ended["signal"] == 0 and ended["code"] == 0:
                return self._finished(item)
            name = (
                f"signal {signal.Signals(ended['signal']).name}"
                if ended["signal"]
                else f"exit {ended['code']}"
            )
            _blame(item, step, "kernel-abort", f"the process ended with {name}\n{worker.output()}".strip())
        return True

    def _output(self, item: TargetWork) -> Path:
        folder = self._scratch / "out" / str(item.target)
        folder.mkdir(exist_ok=True)
        return folder

    def _finished(self, item: TargetWork) -> bool:
        if self._cache is not None and item.open:
            raise BuildError(
                f"the kernel process for {item.target} left out {len(item.open)} variants: {item.open[0]}",
                reason="kernel-worker",
            )
        return True

    def _job(self, item: TargetWork) -> dict[str, Any]:
        todo = set(item.open)
        return {
            "job": "compile" if self._cache is not None else "digest",
            "target": triton_target(item.target),
            "output": str(self._output(item)),
            "key": {**self._toolchain_key, "target": str(item.target)},
            "files": [
                {
                    "folders": [str(folder) for folder in file.folders(self._source_root)],
                    "device": _device(file, item.target),
                    "kernels": [
                        _kernel(kernel, item, todo)
                        for kernel in file.kernels
                        if any(name == kernel.name for name, _ in todo)
                    ],
                }
                for file in self._files
            ],
        }


class _Lost(Exception):  # noqa: N818 - carries what was under way
    def __init__(self, step: Mapping[str, Any], gone: Gone) -> None:
        super().__init__(str(gone))
        self.step = step
        self.gone = gone


class _Conversation:
    """One job from its first word to the end of its process."""

    def __init__(
        self,
        worker: WorkerProcess,
        item: TargetWork,
        cache: ObjectCache | None,
        scratch: Path,
        progress: Callable[[str], None],
    ) -> None:
        self._worker = worker
        self._item = item
        self._cache = cache
        self._scratch = scratch
        self._progress = progress
        self._described: dict[tuple[str, str], tuple[str, Mapping[str, Any]]] = {}
        self._step: Mapping[str, Any] = {}

    def hold(self, job: object) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Hold it.

        Returns:
            The last step that was begun, and how the process ended.
        """
        try:
            self._worker.say(job)
            while True:
                event = self._worker.hear()
                if event["event"] == "exited":
                    return self._step, event
                self._take(event)
        except Gone as gone:
            raise _Lost(self._step, gone) from gone

    def _take(self, event: dict[str, Any]) -> None:
        item, word = self._item, event["event"]
        if word == "begin":
            self._step = event
            self._worker.mark(event.get("at", 0))
        elif word == "kernel":
            item.sources[event["kernel"]] = event["source_digest"]
        elif word == "refused":
            item.refuse(event["kernel"], event["variant"], event["reason"], event["text"])
        elif word == "described":
            self._described[event["kernel"], event["variant"]] = (event["key"], event["facts"])
        elif word == "all-described":
            item.asked = tuple(sorted({*item.asked, *event["asked"]}))
            if self._cache is not None:
                self._worker.say({"compile": self._not_cached(self._cache)})
        elif word == "compiled" and self._cache is not None:
            self._store(event, self._cache)

    def _not_cached(self, cache: ObjectCache) -> list[tuple[str, str]]:
        missing = []
        for name, (key, facts) in self._described.items():
            hit = cache.get(key)
            if hit is None:
                missing.append(name)
            else:
                metadata, data = hit
                self._item.done[name] = Compiled(data=data, facts=facts, metadata=metadata)
                self._item.cached += 1
        return missing

    def _store(self, event: dict[str, Any], cache: ObjectCache) -> None:
        name = event["kernel"], event["variant"]
        file = self._scratch / "out" / str(self._item.target) / Path(event["file"]).name
        try:
            data = file.read_bytes()
            file.unlink()
        except OSError as error:
            raise BuildError(
                f"the kernel process for {self._item.target} gave no object for {name[0]}, {name[1]}",
                reason="kernel-worker",
            ) from error
        key, facts = self._described[name]
        cache.put(key, event["metadata"], data)
        self._item.done[name] = Compiled(data=data, facts=facts, metadata=event["metadata"])
        self._item.compiled += 1
        self._progress(f"{self._item.target}: {name[0]}.{name[1]} compiled, {len(data):,} bytes")


def _blame(item: TargetWork, step: Mapping[str, Any], reason: str, text: str) -> None:
    """Refuse what was under way when a process ended early."""
    if not step:
        raise BuildError(
            f"the kernel process for {item.target} ended before it did anything: {text}",
            reason="kernel-worker",
        )
    before = len(item.open)
    item.refuse(step["kernel"], step["variant"], reason, text)
    if len(item.open) == before:
        raise BuildError(
            f"the kernel process for {item.target} ended after its work on {step['kernel']}: {text}",
            reason="kernel-worker",
        )


def _kernel(kernel: KernelDeclaration, item: TargetWork, todo: set[tuple[str, str]]) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "module": kernel.module,
        "attribute": kernel.attribute,
        "import": kernel.import_mode.value,
        "autotune": kernel.autotune.value,
        "variants": [
            {
                "name": variant.name,
                "arguments": {
                    name: {**argument.as_json(), "itemsize": DTYPES.get(argument.dtype, 0)}
                    for name, argument in variant.arguments.items()
                },
                "constants": dict(variant.constants),
                "options": dict(variant.options),
            }
            for (owner, _), variant in item.variants.items()
            if owner == kernel.name and (owner, variant.name) in todo
        ],
    }


def _device(file: KernelDeclarations, target: Target) -> dict[str, Any]:
    for device in file.devices:
        if matches(device.targets, target):
            return {"name": device.name, "properties": dict(device.properties)}
    return {"name": "", "properties": {}}
