"""What this machine has seen: the latest time, and the highest number of a promotion for each channel.

Two files in a private directory. ``last-seen.json`` makes a clock that was set back a refusal, ``sequences.json`` an
older release that is offered again. Both only ever rise, and only by a report in which everything was accepted: what
is refused teaches nothing. A directory that is not there is a memory without anything in it; whoever can remove it
is the owner, who could also change the policy.

A clock that was wrong in the future when something was accepted leaves a time that everything is behind of. To repair
that, set the clock right and remove ``last-seen.json``: the sequences stay.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wheelmark import digests, strictjson
from wheelmark.errors import ConfigError, InputError
from wheelmark.trust import state
from wheelmark.verify.circumstances import Circumstances, Now, time_of
from wheelmark.verify.verdict import Accepted, Report

SCHEMA = "https://wheelmark.dev/memory/v1"
LAST_SEEN = "last-seen.json"
SEQUENCES = "sequences.json"
_LOCK = "lock"
_LIMITS = strictjson.Limits(size=4 << 20, depth=4, items=100_000)


class Memory:
    """The memory in one directory.

    Args:
        directory: Of mode 0700; made when something is remembered.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def of_this_machine(cls) -> Memory:
        """The one in the state directory.

        Raises:
            ConfigError: The state directory cannot be used.
        """
        return cls(state.state_directory() / "memory")

    def circumstances(self, now: Now, channel: str = "") -> Circumstances:
        """The circumstances of an evaluation at ``now``; a clock is asked after the memory was read.

        Raises:
            ConfigError: The clock has no zone (``clock-zone``), others can enter the directory, or a file in it is
                torn (``memory``).
        """
        if os.path.lexists(self._directory):
            state.check_private(self._directory)
        last_seen, sequences = self._last_seen(), self._sequences()
        return Circumstances(now=time_of(now), channel=channel, last_seen=last_seen, sequences=sequences)

    def remember(self, report: Report, *, now: dt.datetime) -> None:
        """Learn from a report in which everything was accepted; from another one, nothing.

        Args:
            report: Of a verification at ``now``.
            now: The clock of that verification.

        Raises:
            ConfigError: The directory cannot be used, a file in it is torn, or it cannot be written (``memory``).
        """
        if not report.accepted:
            return
        state.private_directory(self._directory)
        with self._locked():
            last, sequences = self._last_seen(), dict(self._sequences())
            if last is None or now > last:
                self._write(LAST_SEEN, {"lastSeen": now.astimezone(dt.UTC).isoformat()})
            risen = dict(sequences)
            for verdict in report.verdicts:
                if isinstance(verdict, Accepted) and verdict.promotion:
                    risen[verdict.promotion] = max(verdict.sequence, risen.get(verdict.promotion, 0))
            if risen != sequences:
                self._write(SEQUENCES, {"sequences": risen})

    def _last_seen(self) -> dt.datetime | None:
        value = self._read(LAST_SEEN, "lastSeen")
        if value is None:
            return None
        try:
            time = dt.datetime.fromisoformat(value)
        except (TypeError, ValueError):
            time = None
        if time is None or time.tzinfo is None:
            raise self._torn(LAST_SEEN, "it holds no time")
        return time

    def _sequences(self) -> Mapping[str, int]:
        value = self._read(SEQUENCES, "sequences")
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(type(item) is int for item in value.values()):
            raise self._torn(SEQUENCES, "it holds no sequence numbers")
        return value

    def _read(self, name: str, member: str) -> Any:
        """One member of one file; ``None`` where there is no file."""
        try:
            descriptor = os.open(
                self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._torn(name, str(error.strerror)) from error
        try:
            with os.fdopen(descriptor, "rb") as stream:
                document = strictjson.load_object(stream.read(_LIMITS.size + 1), what=name, limits=_LIMITS)
        except (InputError, OSError) as error:
            raise self._torn(name, str(error)) from error
        if document.get("schema") != SCHEMA or set(document) != {"schema", member}:
            raise self._torn(name, "it is of another version")
        return document[member]

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        try:
            state.write_private(self._directory / name, digests.canonical_json({"schema": SCHEMA, **value}))
        except OSError as error:
            raise ConfigError(
                f"cannot remember what was seen in {self._directory / name}: {error.strerror}",
                cause="the disk is full, or the directory was made read-only",
                fix="free some space, or make the directory writable, and run it again",
                reason="memory",
            ) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            descriptor = os.open(
                self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise self._torn(_LOCK, str(error.strerror)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _torn(self, name: str, why: str) -> ConfigError:
        return ConfigError(
            f"the memory {self._directory / name} cannot be used: {why}",
            cause="it was changed by hand, or the disk lost what was written last",
            fix="restore it from a backup; removing it forgets what was seen, so that an older release is taken again",
            reason="memory",
        )
