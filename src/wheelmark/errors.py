"""Every error that Wheelmark raises on purpose, and the exit code that each ends a command with.

A message has three parts: *what* failed, the likely *cause*, and the next step (*fix*); where work was done before, a
note (``add_note``) says what of it stays. A refusal by the
verifier is a value (see ``wheelmark.verify``), not an exception; what stands here is raised where work
cannot go on.
"""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Sequence

INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What a clause for everything that a library may raise lets pass. It has to catch ``BaseException``: a panic of a
library in Rust is one (``pyo3_runtime.PanicException``), and no ``Exception``."""


class Exit(enum.IntEnum):
    """Exit codes of the ``wheelmark`` command. Stable: scripts depend on them."""

    OK = 0
    REJECTED = 1
    """Evidence is bad: a signature, a digest, an identity or a gate's result says no."""
    USAGE = 2
    """The command line could not be understood (argparse's own code)."""
    MISSING = 3
    """Evidence that the policy asks for is not there."""
    UNCHECKED = 4
    """Something could not be checked, and the policy does not let that pass."""
    CONFIG = 5
    """A declaration, a policy or a trust root cannot be used."""
    INPUT = 6
    """An input is malformed or over a limit."""
    BUILD = 7
    """A kernel, a native library or a wheel could not be built."""
    LOCK = 8
    """A dependency is not locked, or differs from its lock."""
    TOOL = 9
    """A program or package that this step needs is not on this machine."""
    GATE = 10
    """A gate FAILED on an artifact."""
    SIGN = 11
    """Signing did not complete: no identity, no timestamp, or the result did not verify."""
    BUSY = 12
    """Another run holds the release directory."""
    COMMAND = 13
    """A program that was run failed."""
    STATE = 14
    """The release directory is not in the state that this step needs (for instance: not built yet)."""
    MACHINE = 15
    """Nothing of the release fits this machine, or what was named does not."""
    REGISTRY = 16
    """A registry of images cannot be reached, lets nobody in, or does not do what registries do."""
    INTERNAL = 70
    """A defect in Wheelmark itself (sysexits EX_SOFTWARE)."""
    INTERRUPTED = 130
    """Ctrl-C (128 and SIGINT's number); nothing half-written was left."""
    TERMINATED = 143
    """SIGTERM (128 and its number); nothing half-written was left."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends a command as Ctrl-C does, with everything undone that a Ctrl-C undoes."""


def notes_of(error: BaseException) -> tuple[str, ...]:
    """What was done before an error and stays, a sentence each: its notes (``add_note``)."""
    return tuple(getattr(error, "__notes__", ()))


class WheelmarkError(Exception):
    """Base of all errors raised on purpose.

    Args:
        what: What failed, in one sentence, naming the file, target or value.
        cause: The likely cause.
        fix: The next step: a command where there is one.
        reason: Stable reason code (kebab-case) for machines; the class's default where absent.
    """

    exit_code: Exit = Exit.INTERNAL
    reason: str = "internal"

    def __init__(self, what: str, *, cause: str = "", fix: str = "", reason: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.fix = fix
        if reason:
            self.reason = reason

    def __str__(self) -> str:
        lines = [self.what]
        if self.cause:
            lines.append(f"  likely cause: {self.cause}")
        if self.fix:
            lines.append(f"  next step:    {self.fix}")
        lines += [f"  so far:       {note}" for note in notes_of(self)]
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """The same facts for ``--json``."""
        return {
            "error": type(self).__name__,
            "reason": self.reason,
            "exit_code": int(self.exit_code),
            "what": self.what,
            "cause": self.cause,
            "fix": self.fix,
            "so_far": list(notes_of(self)),
        }


class ConfigError(WheelmarkError):
    """``wheelmark.toml``, a kernel declaration, a policy or a trust root cannot be used."""

    exit_code = Exit.CONFIG
    reason = "config"


class InputError(WheelmarkError):
    """Input bytes are malformed or over a limit."""

    exit_code = Exit.INPUT
    reason = "input"


class BuildError(WheelmarkError):
    """A kernel, native library or wheel could not be built."""

    exit_code = Exit.BUILD
    reason = "build"


class LockError(WheelmarkError):
    """A dependency is not locked, or its bytes differ from the lock."""

    exit_code = Exit.LOCK
    reason = "lock"


class ToolError(WheelmarkError):
    """A program or package that this step needs is absent or too old."""

    exit_code = Exit.TOOL
    reason = "tool"


class GateError(WheelmarkError):
    """At least one gate FAILED."""

    exit_code = Exit.GATE
    reason = "gate"


class SignError(WheelmarkError):
    """Signing did not complete."""

    exit_code = Exit.SIGN
    reason = "sign"


class BusyError(WheelmarkError):
    """Another run holds the release directory."""

    exit_code = Exit.BUSY
    reason = "busy"


class StateError(WheelmarkError):
    """The release directory is not in the state that this step needs."""

    exit_code = Exit.STATE
    reason = "state"


class MachineError(WheelmarkError):
    """Nothing of a release fits this machine or environment, or what was named does not."""

    exit_code = Exit.MACHINE
    reason = "machine"


class RegistryError(WheelmarkError):
    """A registry of images cannot be reached, refuses, or answers what it must not."""

    exit_code = Exit.REGISTRY
    reason = "registry-answer"


class RejectedError(WheelmarkError):
    """A verdict other than accepted, raised where a caller asked for verified bytes and got none."""

    exit_code = Exit.REJECTED
    reason = "rejected"


class CommandError(WheelmarkError):
    """A program that was run ended with a failure.

    Args:
        command: The argument vector, as it was run.
        code: Its exit status (negative: the signal that ended it).
        output: What it printed; the last 4,000 characters are shown, indented.
    """

    exit_code = Exit.COMMAND
    reason = "command"

    def __init__(
        self, command: Sequence[str], code: int, output: str, *, cause: str = "", fix: str = ""
    ) -> None:
        self.command = tuple(command)
        self.code = code
        self.output = output
        shown = textwrap.indent(output.strip()[-4000:], "    ")
        ended = f"signal {-code}" if code < 0 else f"exit {code}"
        super().__init__(f"{' '.join(command)} failed ({ended})\n{shown}".rstrip(), cause=cause, fix=fix)
