"""Circumstances: what an evaluation needs beside facts and policy. A value; reading it from a machine is an edge.

A policy is evaluated anew for each question, with the clock, the channel that is asked for, and what this
machine has seen before. Facts are not: they hold whenever they are looked at.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping

from wheelmark.errors import ConfigError

Now = dt.datetime | Callable[[], dt.datetime]
"""The verifier's clock, with a zone; or what tells the time when it is asked, which is after the memory was read: another
verification that ends meanwhile, and is remembered, does not make this one's clock look as if it were behind."""


def machine_clock() -> dt.datetime:
    """What this machine's clock says."""
    return dt.datetime.now(dt.UTC)


def time_of(now: Now) -> dt.datetime:
    """The time that is given, or that is told."""
    return now if isinstance(now, dt.datetime) else now()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Circumstances:
    """The clock, the channel, and what was seen before.

    Raises:
        ConfigError: A clock without a zone (``clock-zone``).
    """

    now: dt.datetime
    """The verifier's clock, with a zone."""
    channel: str = ""
    """The channel that the artifact is wanted for; empty for none."""
    last_seen: dt.datetime | None = None
    """The latest time that this machine saw, on its clock or signed: a clock behind it is wrong."""
    tolerance: dt.timedelta = dt.timedelta(0)
    """How far the clock may be behind a signed time or ``last_seen``: none, but where two clocks of one machine room meet (the hook)."""
    sequences: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """``<project>/<channel>`` -> the highest sequence number of a promotion accepted here: a lower one is a rollback."""

    def is_behind(self, time: dt.datetime) -> bool:
        """Whether the clock is behind a time that has been."""
        return self.now + self.tolerance < time

    def __post_init__(self) -> None:
        if self.now.tzinfo is None:
            raise ConfigError(
                f"the clock {self.now.isoformat()} has no time zone",
                fix="pass datetime.now(datetime.UTC), or a time with its offset",
                reason="clock-zone",
            )
