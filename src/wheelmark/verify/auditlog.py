"""The audit log: one line of JSON for each verdict, appended and never changed.

Each line holds the sha256 of the line before (of its bytes without the line break), so that a line that was changed,
put in or taken out shows. What was done to the end does not (lines taken off, the last one changed): send the file
elsewhere, or note the last line's digest. A
report is written with one call, flushed to the disk, under a lock; if that fails, the file is cut back to what it was
and the verification that was to be written down has not accepted anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_never

import wheelmark
from wheelmark import digests, strictjson
from wheelmark.errors import ConfigError, InputError
from wheelmark.verify.verdict import Accepted, Missing, Rejected, Report, Unchecked, Verdict, printable

SCHEMA = "https://wheelmark.dev/audit-log/v1"
_LONGEST_LINE = 1 << 20
_LIMITS = strictjson.Limits(size=_LONGEST_LINE, depth=4, items=100, string=_LONGEST_LINE)
_LONGEST_TEXT = 4000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_KEEP = "keep the file as it is for whoever looks into it, and name a new one"
_NAME_ONE = "name a file of yours, or a new one in a folder that is there"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chain:
    """How far the lines of a log follow one another."""

    lines: int
    """How many do, from the first on."""
    last_sha256: str
    """Digest of the last of them; empty where there is none."""
    bad_line: int = 0
    """Number of the first that does not, from 1; 0: all do."""
    problem: str = ""
    """What is wrong with it."""


class AuditLog:
    """An append-only file of mode 0600.

    Args:
        path: Made when the first report is written; its folder has to be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, report: Report, *, now: dt.datetime | None = None) -> None:
        """Write a line for each verdict of a report.

        Args:
            report: What was found, whatever it was.
            now: The clock of the verification; now where it is not given.

        Raises:
            ConfigError: It cannot be written, is no private plain file, or its last line is torn (``audit-log``).
        """
        time = (now or dt.datetime.now(dt.UTC)).astimezone(dt.UTC).isoformat()
        with self._open(os.O_RDWR | os.O_CREAT | os.O_APPEND) as descriptor:
            size = os.fstat(descriptor).st_size
            previous = self._last(descriptor, size)
            lines = b""
            for verdict in report.verdicts or (None,):
                line = digests.canonical_json(_entry(report, verdict, time, previous))
                lines += line + b"\n"
                previous = digests.sha256(line)
            try:
                written = os.write(descriptor, lines)
                if written != len(lines):
                    raise OSError(0, "only a part of it was written")  # noqa: TRY301 - handled as any other failure
                os.fsync(descriptor)
            except BaseException as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                if not isinstance(error, OSError):
                    raise  # an interrupt: what was to be written down was not answered
                raise self._unusable(
                    f"cannot be written: {error.strerror}", "the disk is full or broken"
                ) from error

    def check_ready(self) -> None:
        """Find out before the work that its report could not be written down; nothing is written.

        Raises:
            ConfigError: As ``append``.
        """
        if os.path.lexists(self._path):
            with self._open(os.O_RDWR | os.O_APPEND) as descriptor:
                self._last(descriptor, os.fstat(descriptor).st_size)
        elif not os.access(self._path.absolute().parent, os.W_OK | os.X_OK):
            raise self._unusable("cannot be made: there is no such folder, or it is not yours", "", _NAME_ONE)

    def check(self) -> int:
        """The number of lines, each of which follows the one before.

        Raises:
            ConfigError: A line is malformed or does not follow (``audit-log``); the text says which.
        """
        chain = self.examine()
        if chain.bad_line:
            raise self._unusable(f"line {chain.bad_line} {chain.problem}", "it was changed by hand")
        return chain.lines

    def examine(self) -> Chain:
        """How far the chain holds.

        Raises:
            ConfigError: It cannot be opened, or is no private plain file (``audit-log``).
        """
        with self._open(os.O_RDONLY) as descriptor, open(descriptor, "rb", closefd=False) as stream:
            previous, count = "", 0
            while line := stream.readline(_LONGEST_LINE + 1):
                if problem := _broken(line, previous):
                    return Chain(lines=count, last_sha256=previous, bad_line=count + 1, problem=problem)
                previous, count = digests.sha256(line[:-1]), count + 1
        return Chain(lines=count, last_sha256=previous)

    @contextlib.contextmanager
    def _open(self, flags: int) -> Iterator[int]:
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for ever.
            descriptor = os.open(
                self._path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, stat.S_IRUSR | stat.S_IWUSR
            )
        except OSError as error:
            raise self._unusable(f"cannot be opened: {error.strerror}", "", _NAME_ONE) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise self._unusable("is no plain file", "", _NAME_ONE)
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
                raise self._unusable(
                    "belongs to somebody else, or others have access to it",
                    "",
                    f"chmod 600 {self._path} if it is yours, or name another",
                )
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _last(self, descriptor: int, size: int) -> str:
        """Digest of the last line; empty for an empty file."""
        if not size:
            return ""
        start = max(0, size - _LONGEST_LINE - 2)
        tail = os.pread(descriptor, size - start, start)
        lines = tail.split(b"\n")
        if lines[-1] or (len(lines) < 3 and start):  # noqa: PLR2004 - a whole line has a break before and after it
            raise self._unusable(
                "ends within a line",
                "the machine stopped while it was written, or something else wrote to it",
            )
        return digests.sha256(lines[-2])

    def _unusable(self, what: str, cause: str, fix: str = _KEEP) -> ConfigError:
        return ConfigError(
            f"the audit log {self._path} {what}",
            cause=cause,
            fix=fix,
            reason="audit-log",
        )


def _broken(line: bytes, previous: str) -> str:
    """What is wrong with a line; empty where it is ours and follows ``previous``."""
    try:
        entry = strictjson.load_object(line, what="the line", limits=_LIMITS)
        canonical = digests.canonical_json(entry) + b"\n" == line
    except InputError as error:
        return f"is none of ours: {error.what}"
    if entry.get("schema") != SCHEMA:
        return "is none of ours: another schema"
    if entry.get("previous") != previous:
        return (
            "does not follow the line before: that one was changed, or lines were put in or taken out there"
        )
    return "" if canonical else "is not as it was written"


def _shown(text: str) -> str:
    return printable(text)[:_LONGEST_TEXT]


def _entry(report: Report, verdict: Verdict | None, time: str, previous: str) -> dict[str, Any]:
    """One line; ``None`` where a report has no verdict at all."""
    entry: dict[str, Any] = {
        "schema": SCHEMA,
        "time": time,
        "wheelmark": wheelmark.__version__,
        "path": _shown(report.path),
        "policy": _shown(report.policy),
        "policySha256": report.policy_sha256,
        "accepted": report.accepted,
        "subject": "",
        "sha256": "",
        "verdict": "none",
        "previous": previous,
    }
    if verdict is None:
        return entry
    entry |= {
        "subject": _shown(verdict.subject),
        "sha256": verdict.sha256,
        "verdict": type(verdict).__name__.lower(),
    }
    match verdict:
        case Accepted():
            return entry | {
                "root": verdict.root,
                "signer": verdict.signer,
                "identity": _shown(verdict.identity),
                "signed": verdict.time.isoformat(),
                "promotion": verdict.promotion,
                "sequence": verdict.sequence,
            }
        case Rejected() | Missing() | Unchecked():
            return entry | {"reason": verdict.reason, "text": _shown(verdict.text)}
        case _:
            assert_never(verdict)
