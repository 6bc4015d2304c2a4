"""Promotions: a channel's owner says that a release may be used in it, until a time, in an order.

Format: SLSA Verification Summary Attestation v1.0 (https://slsa.dev/spec/v1.0/verification_summary), predicate type
``https://slsa.dev/verification_summary/v1``: ``verifier`` is who decided, ``policy`` by which policy, ``resourceUri``
for what. Two members more, named with a vendor's prefix as SLSA asks of extensions: ``wheelmark_sequence``, which
grows with every promotion of a channel, so that an older one is seen to be older; ``wheelmark_expires``, so that a
channel that nobody looks after runs dry instead of serving what was good once. Subjects are ``release.json``,
single artifacts, or both, by digest. Why: ``docs/decisions/0011-channels-and-memory.md``.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

from wheelmark import digests
from wheelmark.attest.fields import Fields, time_text
from wheelmark.errors import InputError

PROMOTION = "https://slsa.dev/verification_summary/v1"
CHANNELS = "https://wheelmark.dev/channels/v1/"
"""A resource URI is this, the project, ``/`` and the channel."""
_REASON = "promotion"
_PASSED = "PASSED"
_SLSA = "1.0"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_LARGEST = 2**53 - 1
"""Greatest sequence: canonical JSON says integers exactly up to here (RFC 8785, section 3.2.2.3)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Promotion:
    """The predicate's fields.

    Raises:
        InputError: A field that the format does not allow (reason ``promotion``).
    """

    verifier_id: str
    """URI of whoever verified and decided."""
    time: dt.datetime
    """When they did, by their own word."""
    project: str
    """Normalized name: lowercase letters, digits and ``-``."""
    channel: str
    policy_sha256: str
    """Digest of the policy that they verified under."""
    sequence: int
    """At least 1; grows with every promotion of this project and channel."""
    expires: dt.datetime
    """The last instant at which it counts."""
    policy_uri: str = ""
    levels: tuple[str, ...] = ()
    """``verifiedLevels``, for instance ``SLSA_BUILD_LEVEL_1``."""

    def __post_init__(self) -> None:
        for what, name in (("project", self.project), ("channel", self.channel)):
            if not _NAME.fullmatch(name):
                raise InputError(
                    f"a promotion's {what} {name[:80]!r} is no plain lowercase name", reason=_REASON
                )
        if not digests.is_sha256(self.policy_sha256):
            raise InputError("a promotion names no policy by sha256", reason=_REASON)
        if type(self.sequence) is not int or not 1 <= self.sequence <= _LARGEST:
            raise InputError("a promotion's sequence is no whole number from 1 up", reason=_REASON)
        if self.expires <= self.time:
            raise InputError("a promotion expires before it was made", reason=_REASON)

    @property
    def key(self) -> str:
        """``<project>/<channel>``: what sequences are counted for."""
        return f"{self.project}/{self.channel}"

    def as_predicate(self) -> dict[str, Any]:
        """The JSON object that ``read_promotion`` reads back."""
        policy: dict[str, Any] = {"digest": {"sha256": self.policy_sha256}}
        if self.policy_uri:
            policy["uri"] = self.policy_uri
        return {
            "verifier": {"id": self.verifier_id},
            "timeVerified": time_text(self.time),
            "resourceUri": f"{CHANNELS}{self.key}",
            "policy": policy,
            "verificationResult": _PASSED,
            "verifiedLevels": list(self.levels),
            "slsaVersion": _SLSA,
            "wheelmark_sequence": self.sequence,
            "wheelmark_expires": time_text(self.expires),
        }


def read_promotion(predicate: Mapping[str, Any]) -> Promotion:
    """Read a promotion; another verification summary, or one that did not pass, is none.

    Raises:
        InputError: A member is absent, unknown or malformed (reason ``promotion``).
    """
    fields = Fields(
        predicate,
        what="promotion",
        reason=_REASON,
        known=(
            *("verifier", "timeVerified", "resourceUri", "policy", "verificationResult", "verifiedLevels"),
            *("slsaVersion", "wheelmark_sequence", "wheelmark_expires"),
        ),
    )
    verifier = fields.inner("verifier", ("id",))
    policy = fields.inner("policy", ("uri", "digest"))
    digest = policy.inner("digest", ("sha256",))
    if fields.string("verificationResult") != _PASSED:
        raise fields.refusal("does not say PASSED")
    if fields.string("slsaVersion", _SLSA) != _SLSA:
        raise fields.refusal(f"is not of SLSA {_SLSA}")
    resource = fields.string("resourceUri")
    project, _, channel = resource.removeprefix(CHANNELS).partition("/")
    if not resource.startswith(CHANNELS):
        raise fields.refusal(f"is about {resource[:200]!r}, which is no channel")
    return Promotion(
        verifier_id=verifier.string("id"),
        time=fields.time("timeVerified"),
        project=project,
        channel=channel,
        policy_sha256=digest.string("sha256"),
        policy_uri=policy.string("uri", ""),
        sequence=predicate.get("wheelmark_sequence", 0),
        expires=fields.time("wheelmark_expires"),
        levels=fields.strings("verifiedLevels"),
    )
