"""What a kernel worker says and hears: it says one JSON object a line, and hears a length, a newline, JSON.

The process that was started imports Triton (and what the declarations preload) once, then forks a process for
each job, so that each target has one of its own and a compiler that aborts takes nothing else along. While a
child works, the parent waits: the child alone owns the two pipes.

    hears {"preload": [...]}                         says {"event": "ready", …}
    hears {"job": "capture", "call": …}              says in the child: captured (launches) or refused, end
    hears {"job": "compile" | "digest", "target": …} says in the child:
          begin (step, kernel, variant)   what it is about to do: whoever reads knows what a death was caused by
          kernel (source_digest) · described (key, facts) · refused (reason, text) · asked (device queries)
          all-described                   hears {"compile": [[kernel, variant], …]}
          compiled (file, metadata) …     end
                                                     says {"event": "exited", "signal": …, "code": …}
"""

# ruff: noqa: INP001 - a folder of scripts that another interpreter runs, not a package of wheelmark

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import platform
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend

from .capture import recording
from .closure import Unknowable, source_digest
from .resolve import Refused, Resolved, find, resolve, unwrap
from .shims import shimmed

_PTX_VERSION = re.compile(r"^\.version (\d+\.\d+)", re.MULTILINE)


class _Lines:
    """The two pipes. Unbuffered on purpose: after a fork nobody may hold what is meant for another."""

    def __init__(self) -> None:
        # Imported projects and compilers print; what they print goes to standard error.
        self._in, self._out = os.dup(0), os.dup(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)

    def say(self, event: str, **fields: Any) -> None:
        data = json.dumps({"event": event, **fields}).encode() + b"\n"
        while data:
            data = data[os.write(self._out, data) :]

    def hear(self) -> Any:
        length = bytearray()
        while not length.endswith(b"\n"):
            length += self._read(1)
        body = bytearray()
        while len(body) < int(length):
            body += self._read(int(length) - len(body))
        return json.loads(body)

    def _read(self, size: int) -> bytes:
        data = os.read(self._in, size)
        if not data:
            os._exit(0)  # the other side is gone
        return data


def serve(*, address_randomization: bool) -> None:
    """Serve jobs until the pipe closes."""
    lines = _Lines()
    for module in lines.hear()["preload"]:
        # A module that does not import is refused with the kernels that need it.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    sys.dont_write_bytecode = True  # nothing is written into the project's folders
    lines.say(
        "ready",
        address_randomization=address_randomization,
        triton=triton.__version__,
        python=platform.python_version(),
    )
    while True:
        job = lines.hear()
        child = os.fork()
        if child == 0:
            _child(lines, job)
        _, status = os.waitpid(child, 0)
        signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        lines.say("exited", signal=signal, code=0 if signal else os.WEXITSTATUS(status))


def _child(lines: _Lines, job: Any) -> None:
    code = 1
    try:
        _Job(lines, job).run()
        code = 0
    except BaseException:  # noqa: BLE001 - reported to the other side, as the end of this process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Job:
    """One target's kernels, in a process of their own."""

    def __init__(self, lines: _Lines, job: Any) -> None:
        self._lines = lines
        self._job = job
        target = job["target"]
        arch = int(target["arch"]) if target["backend"] == "cuda" else target["arch"]
        self._target = GPUTarget(target["backend"], arch, target["warp"])
        self._backend = make_backend(self._target)
        self._ready: dict[tuple[str, str], Resolved] = {}
        self._asked: list[str] = []
        self._written = 0

    def run(self) -> None:
        if self._job["job"] == "capture":
            with self._refusing("", None, "capture"):
                self._capture()
            self._lines.say("end")
            return
        for file in self._job["files"]:
            sys.path[:0] = [folder for folder in file["folders"] if folder not in sys.path]
        for file in self._job["files"]:
            for kernel in file["kernels"]:
                with self._refusing(kernel["name"], None, "import"), self._devices(file, kernel):
                    self._kernel(kernel)
        self._lines.say("all-described", asked=sorted(set(self._asked)))
        if self._job["job"] == "compile":
            for kernel, variant in self._lines.hear()["compile"]:
                with self._refusing(kernel, variant, "compile"):
                    self._compile(kernel, variant)
        self._lines.say("end")

    def _capture(self) -> None:
        sys.path[:0] = self._job["folders"]
        module, _, function = self._job["call"].partition(":")
        launches: list[dict[str, Any]] = []
        with shimmed(self._target, {}, self._asked.append), recording(launches):
            find(module, function)()
        self._lines.say("captured", launches=launches)

    @contextlib.contextmanager
    def _refusing(self, kernel: str, variant: str | None, step: str) -> Iterator[None]:
        sys.stderr.flush()
        # Where in standard error, a file, the output of this step begins.
        self._lines.say("begin", step=step, kernel=kernel, variant=variant, at=os.lseek(2, 0, os.SEEK_CUR))
        try:
            yield
        except Refused as refusal:
            self._lines.say(
                "refused", kernel=kernel, variant=variant, reason=refusal.reason, text=str(refusal)
            )
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a project or compiler raises
            text = f"{type(error).__name__}: {error}"
            self._lines.say("refused", kernel=kernel, variant=variant, reason=f"kernel-{step}", text=text)

    def _devices(self, file: Any, kernel: Any) -> contextlib.AbstractContextManager[None]:
        if kernel["import"] == "shimmed":
            return shimmed(self._target, file["device"], self._asked.append)
        return contextlib.nullcontext()

    def _kernel(self, kernel: Any) -> None:
        found = find(kernel["module"], kernel["attribute"])
        function, _ = unwrap(found)
        try:
            source = source_digest(function)
        except Unknowable as error:
            raise Refused(
                "kernel-global", f"it reads a value of type {error}, which has no stable description"
            ) from error
        self._lines.say("kernel", kernel=kernel["name"], source_digest=source)
        for variant in kernel["variants"]:
            name = variant["name"]
            with self._refusing(kernel["name"], name, "argument"):
                resolved = resolve(found, variant, self._backend, free=kernel["autotune"] == "free")
                self._ready[kernel["name"], name] = resolved
                everything = {**self._job["key"], "source": source, "call": resolved.key}
                digest = hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()
                self._lines.say(
                    "described", kernel=kernel["name"], variant=name, key=digest, facts=resolved.facts
                )

    def _compile(self, kernel: str, variant: str) -> None:
        resolved = self._ready[kernel, variant]
        function = resolved.function
        if function.is_gluon():
            from triton.experimental.gluon._runtime import GluonASTSource as Source  # noqa: PLC0415 - rare
        else:
            from triton.compiler import ASTSource as Source  # noqa: PLC0415
        source = Source(function, resolved.signature, resolved.constants, resolved.attributes)
        result = triton.compile(source, target=self._target, options=dict(vars(resolved.options)))
        data = result.asm[self._backend.binary_ext]
        self._written += 1
        file = Path(self._job["output"]) / f"{self._written}.bin"
        file.write_bytes(data)
        metadata = result.metadata
        version = _PTX_VERSION.search(result.asm["ptx"]) if "ptx" in result.asm else None
        self._lines.say(
            "compiled",
            kernel=kernel,
            variant=variant,
            file=file.name,
            metadata={
                "entry": metadata.name,
                "num_warps": metadata.num_warps,
                "shared": metadata.shared,
                "global_scratch": getattr(metadata, "global_scratch_size", 0) or 0,
                "profile_scratch": getattr(metadata, "profile_scratch_size", 0) or 0,
                "tensor_memory": getattr(metadata, "tmem_size", 0) or 0,
                "ptx_version": version[1] if version else "",
            },
        )
