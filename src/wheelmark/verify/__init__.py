"""Verification: bounded parsing, then cryptographic facts, then a pure policy, then a verdict.

``verify_release`` and ``verify_wheel`` are what the command line and deploy hooks call; ``load_policy`` reads
the operator's word. Nothing here reads ``wheelmark.toml``, the network, or a trust root that the policy does
not name. The heavy modules are imported when something is verified.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from pathlib import Path

from wheelmark.errors import ConfigError
from wheelmark.verify.policy import Policy, load_policy
from wheelmark.verify.release import verify_release_directory
from wheelmark.verify.verdict import Accepted, Missing, Rejected, Report, Unchecked, Verdict
from wheelmark.verify.wheel import verify_one_wheel

__all__ = [
    "Accepted",
    "Missing",
    "Policy",
    "Rejected",
    "Report",
    "Unchecked",
    "Verdict",
    "load_policy",
    "verify_release",
    "verify_wheel",
]


def verify_release(dist: Path, policy: Policy, *, now: dt.datetime) -> Report:
    """Verify a release directory; see ``wheelmark.verify.release`` for the order of what is checked.

    Raises:
        InputError: ``dist`` is no release directory.
        ConfigError: The policy has no requirement for a target of the release, or lies in the release
            (``policy-inside``).
    """
    _check_outside(dist, policy)
    return verify_release_directory(dist, policy, now=now)


def verify_wheel(path: Path, policy: Policy, *, now: dt.datetime, bundles: Sequence[Path] = ()) -> Report:
    """Verify one wheel with the bundles that lie beside it, are given, or are in its release.

    Raises:
        InputError: The wheel cannot be read.
        ConfigError: The policy has no requirement for such a wheel.
    """
    return verify_one_wheel(path, policy, now=now, bundles=bundles)


def _check_outside(dist: Path, policy: Policy) -> None:
    """A release does not grade itself: its own files never are the policy."""
    inside = os.path.join(os.path.realpath(dist), "")  # noqa: PTH118 - Path drops the separator at the end
    if os.path.realpath(policy.source).startswith(inside):
        raise ConfigError(
            f"the policy {policy.source} lies in {dist}, which it is to judge",
            cause="whoever made the release wrote it, or could have",
            fix="name a policy of your own, from elsewhere",
            reason="policy-inside",
        )
