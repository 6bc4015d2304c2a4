"""Who signed: a bundle's facts against the signer rules of a policy. Every field is compared literally and whole.

A signer is an exact identity, a workflow of GitHub, or a managed key. For a workflow, the certificate has to say
the same in each place where Fulcio writes it (fulcio ``docs/oid-info.md``): the subject alternative name and
extension .9 are the workflow that signed, at a ref; .12 is the repository and .14 the ref that the run was for.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from wheelmark.trust.roots import Root
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Facts
from wheelmark.verify.policy import VERSION, Policy, Signer

_BUILD_SIGNER, _REPOSITORY, _REF = "9", "12", "14"
_REUSABLE = "https://"

Failure = tuple[str, str]
"""Reason code and text."""


def judge_signer(
    facts: Facts, policy: Policy, allowed: Sequence[str], circumstances: Circumstances, *, version: str = ""
) -> Signer | Failure:
    """The signer rule that a bundle's facts match.

    Args:
        facts: Of the bundle.
        policy: The policy.
        allowed: Names of the signer rules that count.
        circumstances: The verifier's clock.
        version: Of the artifact, for signers whose ref names it; empty where it is not known.

    Returns:
        The rule, or reason code and text of why there is none.
    """
    root = policy.root(facts.root)
    found: list[Signer] | Failure
    if stale := _stale(root, circumstances.now):
        return stale
    rules = [signer for signer in policy.signers if signer.root == root.name]
    if facts.key_id:
        found = _by_key(facts, root, rules)
    else:
        found = _by_certificate(facts, root, rules, allowed, version)
    if isinstance(found, tuple):
        return found
    counting = [signer for signer in found if signer.name in allowed]
    if not counting:
        return (
            "signer-not-allowed",
            f"signer {found[0].name!r} is not one of those that count here: {_list(allowed)}",
        )
    if circumstances.is_behind(facts.time):
        return (
            "clock-behind",
            f"signed at {facts.time.isoformat()}, the clock says {circumstances.now.isoformat()}: one is wrong",
        )
    return counting[0]


def _stale(root: Root, now: dt.datetime) -> Failure | None:
    """A root that TUF has not vouched for in as long as the policy allows cannot be used (row 36)."""
    if root.max_age is None or (root.vouched is not None and now <= root.vouched + root.max_age):
        return None
    last = root.vouched.isoformat() if root.vouched is not None else "never"
    return (
        "root-age",
        f"root {root.name!r}: vouched for {last}, at most {root.max_age.days} days ago is allowed (wheelmark trust update)",
    )


def _by_key(facts: Facts, root: Root, rules: Sequence[Signer]) -> list[Signer] | Failure:
    found = [signer for signer in rules if signer.key_id == facts.key_id]
    return found or (
        "key-unknown",
        f"signed with key {facts.key_id}, which no signer of the policy has under root {root.name!r}",
    )


def _by_certificate(
    facts: Facts, root: Root, rules: Sequence[Signer], allowed: Sequence[str], version: str
) -> list[Signer] | Failure:
    if facts.issuer not in root.issuers:
        return (
            "issuer-not-vouched",
            f"root {root.name!r} may not vouch for issuer {facts.issuer!r}; it may for {_list(root.issuers)}",
        )
    named = [signer for signer in rules if not _has_key(signer)]
    same = [signer for signer in named if _is_named(signer, facts, version)]
    matching = [signer for signer in same if signer.issuer == facts.issuer]
    if matching:
        return matching
    if same:
        return (
            "signer-issuer",
            f"{facts.identity!r} comes from issuer {facts.issuer!r}; the policy names {same[0].issuer!r}",
        )
    wanted = [signer for signer in rules if signer.name in allowed]
    if wanted and all(_has_key(signer) for signer in wanted):
        return (
            "key-expected",
            f"signed by {facts.identity!r}; the policy names a key, of {_list([item.name for item in wanted])}",
        )
    return (
        "signer-identity",
        f"signed by {facts.identity!r}, whom the policy does not name under root {root.name!r}"
        + _nearest(named, facts, version),
    )


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "nobody"


def _has_key(signer: Signer) -> bool:
    return bool(signer.key_id or signer.key)


def _is_named(signer: Signer, facts: Facts, version: str) -> bool:
    if signer.workflow:
        return not _differing(signer, facts, version)
    return bool(signer.identity) and signer.identity == facts.identity


def _differing(signer: Signer, facts: Facts, version: str) -> list[tuple[str, str, str]]:
    """Fields of a workflow that the certificate says otherwise: name, what the policy asks for, what is there."""
    ref = _ref(signer, version)
    workflow = signer.workflow
    if not workflow.startswith(_REUSABLE):
        workflow = f"{signer.repository}/{workflow}@{ref}"
    fields = [
        ("repository", signer.repository, facts.claims.get(_REPOSITORY, "")),
        ("ref", ref, facts.claims.get(_REF, "")),
        ("workflow", workflow, facts.identity),
        ("build signer", workflow, facts.claims.get(_BUILD_SIGNER, "")),
    ]
    # What the policy leaves empty, or a version that nobody knows, matches nothing: never an empty claim.
    return [field for field in fields if not field[1] or field[1] != field[2]]


def _ref(signer: Signer, version: str) -> str:
    """The ref, with the artifact's public version (PEP 440: up to the local label) in its place."""
    public = version.partition("+")[0]
    if VERSION not in signer.ref:
        return signer.ref
    return signer.ref.replace(VERSION, public) if public else ""


def _nearest(named: Sequence[Signer], facts: Facts, version: str) -> str:
    """For a workflow that is nearly the right one: what differs."""
    differing = [
        (signer, fields)
        for signer in named
        if signer.workflow and len(fields := _differing(signer, facts, version)) < 4  # noqa: PLR2004 - all of them
    ]
    if not differing:
        return ""
    signer, fields = min(differing, key=lambda pair: len(pair[1]))
    said = "; ".join(f"{name} {found!r}, not {asked!r}" for name, asked, found in fields)
    return f"; for signer {signer.name!r} it has {said}"
