"""The ``wheelmark`` command: one module a command, the handler bound to its parser.

Logs and progress go to stderr, data to stdout; ``--json`` gives machines one JSON document. A command module
has ``NAME``, ``HELP``, ``add_arguments(parser)`` and ``run(args) -> int``; it imports the rooms it needs
inside ``run``, so that ``wheelmark --help`` stays instant.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

import wheelmark
from wheelmark.errors import INTERRUPTS, Exit, Terminated, WheelmarkError, notes_of

COMMANDS = (
    "check",
    "plan",
    "doctor",
    "build",
    "test",
    "baseline",
    "sign",
    "publish",
    "copy",
    "evidence",
    "gate",
    "compare",
    "verify",
    "facts",
    "policy",
    "install",
    "pull",
    "hook",
    "audit-installed",
    "audit-log",
    "lock",
    "trust",
    "docs",
    "environment",
)

__all__ = ["COMMANDS", "build_parser", "main"]


def build_parser(asked: str = "") -> argparse.ArgumentParser:
    """The whole command line; ``--help`` in the docs is generated from it.

    Args:
        asked: The one command that is to be parsed, if that is known: the others are then not imported.
    """
    parser = argparse.ArgumentParser(prog="wheelmark", description=wheelmark.__doc__)
    parser.add_argument("--version", action="version", version=f"wheelmark {wheelmark.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in (asked,) if asked in COMMANDS else COMMANDS:
        module = importlib.import_module(f"wheelmark.cli.{name.replace('-', '_')}")
        command = commands.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no traceback for an error raised on purpose."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names come from outside: one that this terminal cannot say must not end a command.
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        args = build_parser(words[0] if words else "").parse_args(words)
    except KeyboardInterrupt:
        print("wheelmark: interrupted; nothing was begun", file=sys.stderr)
        return int(Exit.INTERRUPTED)
    return _run(args)


def _run(args: argparse.Namespace) -> int:
    """Run a command that was understood."""
    try:
        with _terminated_as_interrupted():
            return _delivered(int(args.run(args)))
    except WheelmarkError as error:
        if args.json:
            print(json.dumps(error.as_json(), indent=2))
        print(f"wheelmark {args.command}: {error}", file=sys.stderr)
        return int(error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has gone; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.INTERNAL)
    except KeyboardInterrupt as error:
        ended = isinstance(error, Terminated)
        word = "terminated" if ended else "interrupted"
        lines = [f"wheelmark {args.command}: {word}; nothing half-written was left", *notes_of(error)]
        print("\n  so far:       ".join(lines), file=sys.stderr)
        return int(Exit.TERMINATED if ended else Exit.INTERRUPTED)
    except INTERRUPTS:
        raise
    except BaseException as error:  # a defect must not end with exit code 1, which says "rejected"
        if os.environ.get("WHEELMARK_DEBUG"):
            raise
        print(
            f"wheelmark {args.command}: internal error: {type(error).__name__}: {error}\n"
            "  likely cause: a defect in Wheelmark\n"
            "  next step:    run again with WHEELMARK_DEBUG=1 and report the traceback",
            file=sys.stderr,
        )
        return int(Exit.INTERNAL)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM raises ``Terminated`` in here, once: what is undone on the way out is not ended by a second one."""

    def end(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    # Whoever set it already (``nohup``-like ignoring, a program that calls ``main``) keeps it.
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _delivered(code: int) -> int:
    """A command's exit code once its answer is written; an answer that is lost is a failure, never success."""
    if sys.stdout is None:  # closed by the caller, who wants the code alone
        return code
    try:
        sys.stdout.flush()
    except OSError:
        # Otherwise the interpreter would try once more at its end, and end with a code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or int(Exit.INTERNAL)
    return code
