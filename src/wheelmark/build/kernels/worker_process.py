"""One kernel worker as a process: started without what it must not see, spoken to in JSON lines.

The worker imports the project's code, so it runs confined and its environment is made from nothing: no home, no
tokens, no state folder of the pipeline, no proxy settings. Paths that reach the assembler have the same length in every run: with
address randomization off, what still moves its memory is the length of its arguments and environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wheelmark.build.kernels.toolchain import CompilerFiles
from wheelmark.confinement import confined
from wheelmark.errors import BuildError, ToolError

SCRIPT = Path(__file__).with_name("worker")
_SHOWN = 2000
_CHUNK = 1 << 16


class Gone(Exception):  # noqa: N818 - seen and answered by the scheduler
    """The worker's pipe closed, or it said nothing for too long.

    Args:
        reason: ``kernel-abort`` or ``kernel-timeout``.
        text: What is known.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def worker_environment(scratch: Path) -> dict[str, str]:
    """The whole environment of a worker; nothing of the caller's own enters."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(scratch / "home"),
        "TMPDIR": str(scratch / "tmp"),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "TRITON_HOME": str(scratch / "home"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TRITON_DISABLE_LINE_INFO": "1",
        "TRITON_PTXAS_PATH": str(scratch / "bin" / "ptxas"),
        "TRITON_PTXAS_BLACKWELL_PATH": str(scratch / "bin" / "ptxas-blackwell"),
    }


def prepare_scratch(scratch: Path, compiler: CompilerFiles) -> None:
    """Make the folders that a worker writes to, and the short names of the assemblers."""
    for name in ("home", "tmp", "triton", "bin", "out"):
        (scratch / name).mkdir()
    for name in ("ptxas", "ptxas-blackwell"):
        (scratch / "bin" / name).symlink_to(compiler.folder / "backends" / "nvidia" / "bin" / name)


class WorkerProcess:
    """A running worker; a context manager, which ends it."""

    def __init__(
        self, compiler: CompilerFiles, scratch: Path, preload: Sequence[str], timeout: float
    ) -> None:
        self._timeout = timeout
        self._buffer = bytearray()
        self._log = scratch / f"log-{time.monotonic_ns()}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                # -P: no folder of the caller's on sys.path; -s: no user site. (-I would drop PYTHONHASHSEED.)
                confined([str(compiler.python), "-P", "-s", str(SCRIPT)]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
                env=worker_environment(scratch),
                start_new_session=True,
            )
        self._mark = 0
        try:
            self._greet(preload)
        except BaseException:
            self.close()
            raise

    def _greet(self, preload: Sequence[str]) -> None:
        self.say({"preload": list(preload)})
        ready = self.hear()
        if ready.get("address_randomization") is not False:
            raise ToolError(
                "address space randomization cannot be turned off for the kernel compiler",
                cause="a sandbox forbids personality(ADDR_NO_RANDOMIZE); without it kernels are not reproducible",
                fix="allow it (docker: --security-opt seccomp=unconfined), or build outside of the sandbox",
                reason="address-randomization",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def say(self, message: object) -> None:
        """Send one message: its length, a newline, JSON.

        Raises:
            Gone: The worker has ended.
        """
        body = json.dumps(message).encode()
        stream = self._process.stdin
        try:
            if stream is not None:
                stream.write(b"%d\n" % len(body) + body)
                stream.flush()
        except BrokenPipeError as error:
            raise self._gone() from error

    def hear(self) -> dict[str, Any]:
        """The next event.

        Raises:
            Gone: The worker ended, or said nothing within the limit.
            BuildError: What it said is no event: the project wrote to the worker's own pipe.
        """
        until = time.monotonic() + self._timeout
        while b"\n" not in self._buffer:
            self._fill(until)
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or "event" not in event:
            raise BuildError(
                f"a kernel worker said {line[:80]!r}, which is no event",
                cause="code of the project wrote to the worker's pipe",
                reason="kernel-worker",
            )
        return event

    def mark(self, offset: int) -> None:
        """From this byte of the worker's log on ``output`` counts; the worker says it, or it would be a race."""
        self._mark = offset

    def output(self) -> str:
        """The end of what the worker and the compilers in it printed since ``mark``."""
        with self._log.open("rb") as stream:
            stream.seek(max(self._mark, self._log.stat().st_size - 4 * _SHOWN))
            return stream.read().decode("utf-8", "replace").strip()[-_SHOWN:]

    def close(self) -> None:
        """End the worker and all that it started."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self.kill()

    def _fill(self, until: float) -> None:
        stream = self._process.stdout
        if stream is None:
            raise self._gone()
        ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            self.kill()
            raise Gone("kernel-timeout", f"it took longer than {self._timeout:,.0f} s")
        data = os.read(stream.fileno(), _CHUNK)
        if not data:
            raise self._gone()
        self._buffer += data

    def kill(self) -> None:
        """End the worker at once, with the compilers that it runs: its session is its own."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _gone(self) -> Gone:
        code = self._process.wait()
        text = f"the worker ended with {f'signal {-code}' if code < 0 else f'exit status {code}'}"
        return Gone("kernel-abort", f"{text}\n{self.output()}".strip())
