"""What a policy means, in words: for each kind, target and channel who may sign what, and what is asked.

For the operator who wrote it, before anything is verified by it: what stands here is what the evaluation does,
defaults included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from wheelmark.evidence import Level
from wheelmark.trust.roots import Root
from wheelmark.verify.policy.model import ANY, Kind, Policy, Predicate, Requirement, Severity, Signer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clause:
    """One requirement in words."""

    rule: str
    """``require[0]``: as reports name it."""
    about: str
    """What it is for."""
    asks: tuple[str, ...]
    """What has to hold, a sentence each."""


def clauses(policy: Policy) -> tuple[Clause, ...]:
    """Every requirement in words, in the order of the file."""
    return tuple(
        Clause(rule=f"require[{index}]", about=_about(rule), asks=tuple(_asks(rule)))
        for index, rule in enumerate(policy.requirements)
    )


def who(signer: Signer) -> str:
    """Who a signer is."""
    if signer.key is not None:
        return f"whoever holds the key {signer.key} (sha256 of the key {signer.key_id})"
    if signer.identity:
        return f"{signer.identity}, by the word of {signer.issuer}"
    place = signer.workflow if "@" in signer.workflow else f"{signer.workflow} of it"
    return f"{signer.repository} at {signer.ref} through the workflow {place}, by the word of {signer.issuer}"


def what_root(root: Root) -> str:
    """What a root is taken for."""
    parts = [f"may vouch for {', '.join(root.issuers)}" if root.issuers else "may vouch for keys alone"]
    if root.vouched is not None:
        parts.append(f"last vouched for by TUF {root.vouched.isoformat()}")
    if root.max_age is not None:
        parts.append(f"refused {root.max_age.days} days later")
    if root.canonical:
        parts.append("only bundles in the one form that Wheelmark writes")
    if root.second_opinion:
        parts.append("sigstore-python has to agree")
    return "; ".join(parts)


def notes(policy: Policy) -> tuple[str, ...]:
    """What its author may not have meant."""
    found = []
    used = {name for rule in policy.requirements for name in _names(rule)}
    found += [
        f"no requirement names signer {item.name!r}" for item in policy.signers if item.name not in used
    ]
    rooted = {signer.root for signer in policy.signers}
    found += [f"no signer is under root {root.name!r}" for root in policy.roots if root.name not in rooted]
    if not policy.examples:
        found.append("there are no examples: nothing shows that it refuses what it should")
    return tuple(found)


def as_json(policy: Policy) -> dict[str, Any]:
    """The same for machines."""
    return {
        "schema": "https://wheelmark.dev/policy-meaning/v1",
        "policy": policy.source,
        "sha256": policy.sha256,
        "development": policy.development,
        "roots": [
            {"name": root.name, "sha256": root.sha256, "level": root.level, "means": what_root(root)}
            for root in policy.roots
        ],
        "signers": [
            {"name": signer.name, "root": signer.root, "who": who(signer)} for signer in policy.signers
        ],
        "requirements": [dataclasses.asdict(clause) for clause in clauses(policy)],
        "denied": [{"sha256": item.sha256, "why": item.why} for item in policy.denials],
        "examples": [item.name for item in policy.examples],
        "notes": list(notes(policy)),
    }


def as_table(policy: Policy) -> str:
    """The same for people."""
    lines = [f"{policy.source} (sha256 {policy.sha256})"]
    if policy.development:
        lines.append("for development: this machine's own signatures may count")
    for root in policy.roots:
        lines += ["", f"root {root.name}: {root.level}", f"  {what_root(root)}", f"  sha256 {root.sha256}"]
    lines.append("")
    lines += [f"signer {item.name}, under root {item.root}: {who(item)}" for item in policy.signers]
    for clause in clauses(policy):
        lines += ["", f"{clause.rule}: {clause.about}", *(f"  - {text}" for text in clause.asks)]
    if policy.denials:
        lines += ["", *(f"denied {item.sha256}: {item.why}" for item in policy.denials)]
    lines += ["", *(f"note: {note}" for note in notes(policy))] if notes(policy) else []
    return "\n".join(lines)


def _about(rule: Requirement) -> str:
    kind = "release as a whole, its wheels and its images" if rule.kind is Kind.RELEASE else rule.kind.value
    targets = "any target without a requirement of its own" if ANY in rule.targets else ""
    named = ", ".join(target for target in rule.targets if target != ANY)
    where = f"in channel {rule.channel}" if rule.channel else "in no channel"
    return f"a {kind}, for {' and '.join(filter(None, (named, targets)))}, {where}"


def _asks(rule: Requirement) -> Iterator[str]:
    statements = ", ".join(predicate.value for predicate in rule.predicates)
    yield f"signed statements by {_or(rule.signers)}: {statements}"
    if rule.channel:
        yield f"a promotion to {rule.channel}, in force, by {_or(rule.promoters)}"
    if Predicate.PROVENANCE in rule.predicates:
        yield f"built by {_or(rule.builders) or 'any builder'}, from {_or(rule.sources) or 'any source'}"
    if Predicate.TEST_RESULT in rule.predicates:
        yield from _asks_of_tests(rule)
    if Predicate.VULNERABILITIES in rule.predicates:
        yield from _asks_of_scan(rule)
    if rule.driver:
        yield f"no kernel that needs a newer driver than {rule.driver}"
    if rule.torch:
        yield f"made for torch {' and '.join(rule.torch)}"
    if rule.kind is Kind.RELEASE:
        yield "every target of its declaration" if not rule.allow_partial else "targets may be lacking"
        yield (
            "from a tree without uncommitted changes"
            if not rule.allow_snapshot
            else "uncommitted changes are allowed"
        )
    if rule.kind in {Kind.RELEASE, Kind.IMAGE}:
        asked = "images may hold a stand-in for their dependencies"
        yield asked if rule.allow_stand_in else "images with the dependencies of their recipe"


def _asks_of_tests(rule: Requirement) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for gate in rule.gates:
        asked = f"PASSED at level {rule.lowest(gate).value}"
        asked += " or above" if rule.lowest(gate) is not Level.HARDWARE else ""
        alike.setdefault(f"{asked}, or UNCHECKED" if gate in rule.unchecked else asked, []).append(gate)
    for asked, gates in alike.items():
        yield f"{asked}: {', '.join(gates)}"
    if rule.runners:
        yield f"tests on other machines count where {_or(rule.runners)} signed them"
    else:
        yield "tests on other machines count as static"


def _asks_of_scan(rule: Requirement) -> Iterator[str]:
    if rule.worst is Severity.NONE:
        yield "no known vulnerability"
    else:
        yield f"no known vulnerability worse than {rule.worst.value}; one of unknown severity counts as critical"
    age = f"at most {rule.advisory_age} days old" if rule.advisory_age else "of any age"
    yield f"advisory data {age}, asked for each component that has a service"
    by = _or(rule.vex_signers)
    yield f"OpenVEX of {by} sets a vulnerability aside" if by else "nobody can set a vulnerability aside"


def _names(rule: Requirement) -> tuple[str, ...]:
    return (*rule.signers, *rule.runners, *rule.promoters, *rule.vex_signers)


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(names)
