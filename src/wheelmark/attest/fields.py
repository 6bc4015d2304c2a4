"""Typed access to the members of a JSON object from outside, with one reason code for all that is wrong."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

from wheelmark.errors import InputError

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z")


class Fields:
    """The members of one object.

    Args:
        value: The JSON value.
        what: How errors name it.
        reason: The reason code of every refusal.
        known: All members that may be there; ``None`` where the format is open.

    Raises:
        InputError: ``value`` is no object, or has a member that is not ``known``.
    """

    def __init__(self, value: Any, *, what: str, reason: str, known: tuple[str, ...] | None = None) -> None:
        self.what = what
        self.reason = reason
        if not isinstance(value, Mapping):
            raise self.refusal("is no object")
        if known is not None and (unknown := set(value) - set(known)):
            raise self.refusal(f"has unknown members: {', '.join(sorted(name[:80] for name in unknown))}")
        self._value = value

    def refusal(self, why: str) -> InputError:
        """The error that says ``why`` this object is not read."""
        return InputError(f"{self.what} {why}", reason=self.reason)

    def string(self, name: str, default: str | None = None) -> str:
        """A string member, not empty unless ``default`` is given."""
        value = self._value.get(name, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.refusal(f"has no string {name!r}")
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of distinct strings; empty where absent."""
        value = self.items(name)
        if not all(isinstance(item, str) for item in value) or len(set(value)) != len(value):
            raise self.refusal(f"has no list of distinct strings {name!r}")
        return value

    def items(self, name: str) -> tuple[Any, ...]:
        """A list member; empty where absent."""
        value = self._value.get(name, [])
        if not isinstance(value, list):
            raise self.refusal(f"has no list {name!r}")
        return tuple(value)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """An object member; empty where absent."""
        value = self._value.get(name, {})
        if not isinstance(value, Mapping):
            raise self.refusal(f"has no object {name!r}")
        return value

    def inner(self, name: str, known: tuple[str, ...]) -> Fields:
        """An object member that has to be there."""
        return Fields(self._value.get(name), what=f"{self.what}: {name}", reason=self.reason, known=known)

    def time(self, name: str) -> dt.datetime:
        """A timestamp member that has to be there."""
        return read_time(self.string(name), what=f"{self.what}: {name}", reason=self.reason)


def read_time(text: str, *, what: str, reason: str) -> dt.datetime:
    """A time in UTC from RFC 3339 with ``Z``.

    Raises:
        InputError: Not such a time.
    """
    try:
        if not _TIME.fullmatch(text):
            raise ValueError(text)  # noqa: TRY301 - one place turns it into our error
        return dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{what} is no RFC 3339 time in UTC", reason=reason) from error


def time_text(time: dt.datetime) -> str:
    """RFC 3339 with ``Z``; whole seconds where nothing is finer. ``time`` must carry a time zone."""
    return time.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
