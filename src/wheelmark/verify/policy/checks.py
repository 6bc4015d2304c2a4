"""What no single field of a policy says by its type: shapes of values, and parts that have to fit together.

A value that looks like a pattern is refused. Every field of an identity is compared literally, no real one holds
these characters, and whoever writes ``.*`` means something that this policy would not do.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import difflib
import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from packaging.version import InvalidVersion, Version

from wheelmark import digests
from wheelmark.errors import ConfigError
from wheelmark.targets import Backend, Target
from wheelmark.trust import roots as trust_roots
from wheelmark.verify import reasons
from wheelmark.verify.policy.model import (
    ANY,
    VERSION,
    Denial,
    Example,
    Kind,
    Predicate,
    Requirement,
    RootRule,
    Signer,
)
from wheelmark.verify.policy.tables import Said, Tables

_CONTRADICTION, _VALUE, _EMPTY = "policy-contradiction", "policy-value", "policy-empty"
_PATTERN = frozenset("*^$\\")
_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_DRIVER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_WORKFLOWS = (".github", "workflows")
_REF_FORBIDDEN = frozenset(" ~^:?*[\\{}")
ANSWERS = ("ACCEPT", "REJECT", "MISSING", "UNCHECKED", "CONFIG", "INPUT")
"""Answers that an example may expect."""
_ONLY_FOR = {
    "allow_partial": (Kind.RELEASE,),
    "allow_snapshot": (Kind.RELEASE,),
    "allow_stand_in": (Kind.RELEASE, Kind.IMAGE),
    "torch": (Kind.RELEASE, Kind.WHEEL),
    "driver": (Kind.RELEASE, Kind.WHEEL, Kind.KERNEL_PACK),
}
"""Keys that say something of some kinds of artifact alone: only those declare what the key is compared with."""
_NEEDS = {
    Predicate.PROVENANCE: ("builders", "sources"),
    Predicate.TEST_RESULT: ("gates", "unchecked", "level", "levels", "runners"),
    Predicate.VULNERABILITIES: ("worst", "advisory_age", "vex_signers"),
}
"""Keys that are about the content of a statement, by the predicate that has to be asked for."""


def check_roots(
    tables: Tables, roots: Sequence[Said[RootRule]], signers: Sequence[Said[Signer]], *, development: bool
) -> None:
    """Each root is named in exactly one way, and may vouch for somebody."""
    _unique(tables, (said.value.name for said in roots), "two [[root]] of the name")
    for said in roots:
        rule, where = said.value, f"root {said.value.name!r}"
        _check_origin(tables, rule, where)
        if rule.source and not development:
            raise tables.refuse(
                f"{where} is this machine's, in a policy that is not for development",
                "policy-development",
                fix="name a root by path and sha256; `development = true` is for the machine that signed",
            )
        if rule.source and "canonical" in said.keys and not rule.canonical:
            raise tables.refuse(f"{where}: under {rule.source} every bundle is canonical", _CONTRADICTION)
        if rule.max_root_age and not rule.tuf:
            raise tables.refuse(
                f"{where} has max_root_age and no tuf",
                _CONTRADICTION,
                cause="only TUF says when a root was last vouched for",
                fix="leave max_root_age out for a root that is named by its own digest",
            )
        for issuer in rule.issuers:
            _check_issuer(tables, issuer, where)
        here = [other.value for other in signers if other.value.root == rule.name]
        if not rule.issuers and not (here and all(signer.key for signer in here)):
            raise tables.refuse(f"{where} may vouch for no issuer", _EMPTY)


def _check_origin(tables: Tables, rule: RootRule, where: str) -> None:
    named = [name for name in ("path", "tuf", "source") if getattr(rule, name)]
    if len(named) != 1:
        raise tables.refuse(
            f"{where} is named by {' and '.join(named) or 'nothing'}",
            _VALUE,
            fix=f'name it by path and sha256, by tuf and sha256, or as source = "{trust_roots.THIS_MACHINE}"',
        )
    if rule.source:
        if rule.source != trust_roots.THIS_MACHINE or rule.sha256:
            raise tables.refuse(
                f'{where} has source {rule.source!r}; the only one is "{trust_roots.THIS_MACHINE}", without sha256',
                _VALUE,
            )
    elif not digests.is_sha256(rule.sha256):
        _literal(tables, rule.sha256, f"{where}: sha256")
        raise tables.refuse(f"{where} needs a sha256 of 64 lowercase hexadecimal digits", _VALUE)
    if rule.tuf and not _WORD.fullmatch(rule.tuf):
        raise tables.refuse(f"{where}: tuf {rule.tuf!r} is not made of a-z, 0-9 and -", _VALUE)


def check_signers(tables: Tables, roots: Sequence[Said[RootRule]], signers: Sequence[Said[Signer]]) -> None:
    """Each signer says who in exactly one way, under a root that may vouch for that."""
    _unique(tables, (said.value.name for said in signers), "two [[signer]] of the name")
    by_name = {said.value.name: said.value for said in roots}
    seen: dict[tuple[object, ...], str] = {}
    for said in signers:
        signer, where = said.value, f"signer {said.value.name!r}"
        if signer.root not in by_name:
            raise tables.refuse(f"{where} names root {signer.root!r}, which is not there", _CONTRADICTION)
        ways = {
            "identity": bool(signer.identity),
            "repository, workflow and ref": bool(signer.repository or signer.workflow or signer.ref),
            "key and sha256": bool(signer.key or signer.sha256),
        }
        if sum(ways.values()) != 1:
            raise tables.refuse(
                f"{where} says who by {' and by '.join(name for name, is_so in ways.items() if is_so) or 'nothing'}",
                _CONTRADICTION if any(ways.values()) else _VALUE,
                fix="write either identity, or repository, workflow and ref, or key and sha256",
            )
        if ways["key and sha256"]:
            _check_key(tables, signer, where)
        else:
            _check_certificate(tables, signer, by_name[signer.root], where)
        same: tuple[object, ...] = dataclasses.astuple(dataclasses.replace(signer, name=""))
        if same in seen:
            raise tables.refuse(
                f"{where} is the same as signer {seen[same]!r}",
                _CONTRADICTION,
                fix="name one signer in both places of [[require]]",
            )
        seen[same] = signer.name


def _check_key(tables: Tables, signer: Signer, where: str) -> None:
    if signer.issuer:
        raise tables.refuse(f"{where} is a key and has an issuer", _CONTRADICTION, fix="leave issuer out")
    if not signer.key or not digests.is_sha256(signer.sha256):
        raise tables.refuse(
            f"{where} needs both key and sha256 (64 lowercase hexadecimal digits of the file's bytes)", _VALUE
        )


def _check_certificate(tables: Tables, signer: Signer, root: RootRule, where: str) -> None:
    if not signer.issuer:
        raise tables.refuse(f"{where} needs an issuer", _VALUE)
    if signer.issuer not in root.issuers:
        raise tables.refuse(
            f"{where} has issuer {signer.issuer!r}, for which root {root.name!r} may not vouch",
            _CONTRADICTION,
        )
    if signer.identity:
        _literal(tables, signer.identity, f"{where}: identity")
        return
    if not (signer.repository and signer.workflow and signer.ref):
        raise tables.refuse(f"{where} needs all of repository, workflow and ref", _VALUE)
    _literal(tables, signer.repository, f"{where}: repository")
    if not _is_repository(signer.repository):
        raise tables.refuse(
            f"{where}: repository {signer.repository!r} is not https://HOST/OWNER/NAME, with nothing after it",
            _VALUE,
        )
    _literal(tables, signer.workflow, f"{where}: workflow")
    _check_workflow(tables, signer.workflow, where)
    ref = signer.ref.replace(VERSION, "0", 1)
    _literal(tables, ref, f"{where}: ref", shown=signer.ref)
    if not _is_ref(ref):
        raise tables.refuse(
            f"{where}: ref {signer.ref!r} is no full name of a branch or a tag",
            _VALUE,
            fix=f"write refs/heads/NAME or refs/tags/NAME; {VERSION} in it is the version of what is verified",
        )


def _check_workflow(tables: Tables, text: str, where: str) -> None:
    if text.startswith("https://"):
        address, _, ref = text.partition("@")
        parts = address.split("/")
        # https: / "" / host / owner / name / path
        is_good = _is_repository("/".join(parts[:5])) and _is_workflow(parts[5:])
        is_good = is_good and (_is_ref(ref) or _COMMIT.fullmatch(ref) is not None)
    else:
        is_good = _is_workflow(text.split("/"))
    if not is_good:
        raise tables.refuse(
            f"{where}: workflow {text!r} is no path of a workflow",
            _VALUE,
            fix="write .github/workflows/NAME.yml, or https://HOST/OWNER/NAME/.github/workflows/NAME.yml@REF",
        )


def _is_workflow(parts: Sequence[str]) -> bool:
    *folder, name = parts
    stem, _, suffix = name.rpartition(".")
    return (
        tuple(folder) == _WORKFLOWS
        and suffix in {"yml", "yaml"}
        and stem not in {"", "."}
        and "@" not in name
    )


def _is_repository(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        return False
    segments = parts.path.split("/")
    return (
        parts.scheme == "https"
        and bool(host)
        and "@" not in parts.netloc
        and text == f"https://{parts.netloc}{parts.path}"
        and len(segments) == 3  # noqa: PLR2004 - before the first slash, owner, name
        and all(segment not in {"", ".", ".."} for segment in segments[1:])
    )


def _is_source(text: str) -> bool:
    """Whether it could be what ``conditions.provenance`` makes of a resolved dependency."""
    scheme, separator, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    is_plain = text.isprintable() and not set(" @?#") & set(text)
    return scheme == "https" and is_plain and bool(separator and host and slash and path)


def _is_ref(text: str) -> bool:
    """Whether git would take it as the full name of a branch or tag (git-check-ref-format)."""
    parts = text.split("/")
    return (
        len(parts) > 2  # noqa: PLR2004 - refs, heads, name
        and parts[0] == "refs"
        and parts[1] in {"heads", "tags"}
        and not _REF_FORBIDDEN & set(text)
        and ".." not in text
        and "@{" not in text
        and not text.endswith(".")
        and all(part and not part.startswith(".") and not part.endswith(".lock") for part in parts)
    )


def _check_issuer(tables: Tables, text: str, where: str) -> None:
    _literal(tables, text, f"{where}: issuer")
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in {"https", "http"} and bool(parts.hostname)
    except ValueError:
        is_good = False
    if not is_good:
        raise tables.refuse(f"{where}: issuer {text!r} is no URL", _VALUE)


def _literal(tables: Tables, text: str, where: str, *, shown: str = "") -> None:
    """Refuse a value that was meant as something else than itself."""
    said = f"{where} {(shown or text)!r}"
    if _PATTERN & set(text):
        raise tables.refuse(
            f"{said} looks like a pattern",
            _VALUE,
            cause="there are no patterns: it would be compared literally, and match nobody",
            fix="write the whole value as it is; name several signers where there are several",
        )
    if set("<>") & set(text):
        raise tables.refuse(
            f"{said} is still to be filled in",
            _VALUE,
            cause="the policy was copied from one that leaves this to you",
        )
    if set("{}") & set(text):
        raise tables.refuse(
            f"{said} has a placeholder that is not known",
            _VALUE,
            fix=f"the only placeholder is {VERSION}, once, in ref",
        )


def check_requirements(
    tables: Tables, requirements: Sequence[Said[Requirement]], signers: Sequence[Said[Signer]]
) -> None:
    """Each requirement asks for evidence, of people who are there, and no two answer one question."""
    known = {said.value.name for said in signers}
    seen: dict[tuple[Kind, str, str], int] = {}
    for index, said in enumerate(requirements):
        rule, where = said.value, f"require[{index}]"
        _check_names(tables, rule, known, where)
        _check_scope(tables, said, where)
        _check_content(tables, said, where)
        for target in rule.targets:
            key = (rule.kind, target, rule.channel)
            if key in seen:
                raise tables.refuse(
                    f"{where} and require[{seen[key]}] are both of kind {rule.kind.value!r} for {target!r}"
                    + (f" in channel {rule.channel!r}" if rule.channel else ""),
                    _CONTRADICTION,
                )
            seen[key] = index


def _check_names(tables: Tables, rule: Requirement, known: set[str], where: str) -> None:
    for key in ("signers", "runners", "promoters", "vex_signers"):
        if unknown := sorted(set(getattr(rule, key)) - known):
            raise tables.refuse(
                f"{where}: {key} names {unknown[0]!r}, which is no signer here", _CONTRADICTION
            )
    if bool(rule.channel) != bool(rule.promoters):
        raise tables.refuse(
            f"{where} has {'channel' if rule.channel else 'promoters'} alone",
            _CONTRADICTION,
            cause="what is asked for in a channel has to be promoted there, and by somebody",
            fix="write channel and promoters together",
        )
    if rule.channel and not _WORD.fullmatch(rule.channel):
        raise tables.refuse(f"{where}: channel {rule.channel!r} is not made of a-z, 0-9 and -", _VALUE)


def _check_scope(tables: Tables, said: Said[Requirement], where: str) -> None:
    rule = said.value
    for target in rule.targets:
        if target != ANY:
            try:
                Target.parse(target)
            except ConfigError as error:
                raise tables.refuse(f"{where}: {error.what}", _VALUE, fix=error.fix) from error
    for key, kinds in _ONLY_FOR.items():
        if key in said.keys and rule.kind not in kinds:
            raise tables.refuse(
                f"{where}: {key} says nothing of a {rule.kind.value}",
                _CONTRADICTION,
                fix=f"it is for kind {', '.join(kind.value for kind in kinds)}",
            )
    _check_machine(tables, rule, where)


def _check_machine(tables: Tables, rule: Requirement, where: str) -> None:
    if rule.driver and not _DRIVER.fullmatch(rule.driver):
        raise tables.refuse(
            f"{where}: driver {rule.driver!r} is no driver version",
            _VALUE,
            fix="write numbers with dots: 570.26",
        )
    if rule.driver and all(
        target != ANY and Target.parse(target).backend is Backend.CPU for target in rule.targets
    ):
        raise tables.refuse(f"{where} has a driver, and targets that need none", _CONTRADICTION)
    versions: list[Version] = []
    for text in rule.torch:
        try:
            versions.append(Version(text))
        except InvalidVersion as error:
            raise tables.refuse(
                f"{where}: torch {text!r} is no version", _VALUE, fix='write versions: ["2.10.0", "2.11.0"]'
            ) from error
    if len(set(versions)) != len(versions):
        raise tables.refuse(f"{where} has one torch twice", _CONTRADICTION)


def _check_content(tables: Tables, said: Said[Requirement], where: str) -> None:
    rule = said.value
    for predicate, keys in _NEEDS.items():
        given = [key for key in keys if key in said.keys]
        if given and predicate not in rule.predicates:
            raise tables.refuse(
                f"{where} has {given[0]} and does not ask for the predicate {predicate.value}", _CONTRADICTION
            )
    for key in ("builders", "sources"):
        for text in getattr(rule, key):
            _literal(tables, text, f"{where}: {key}")
    for text in rule.sources:
        if not _is_source(text):
            raise tables.refuse(
                f"{where}: sources {text!r} is not https://HOST/PATH, with nothing before or after it",
                _VALUE,
                cause="no provenance could name it: it is compared without git+ and without the ref",
            )
    if Predicate.TEST_RESULT in rule.predicates and not rule.gates:
        raise tables.refuse(f"{where} asks for a test-result and names no gates", _EMPTY)
    if strangers := sorted({*rule.unchecked, *rule.levels} - set(rule.gates)):
        raise tables.refuse(
            f"{where} speaks of gate {strangers[0]!r}, which its gates do not name", _CONTRADICTION
        )


def check_denials(tables: Tables, denials: Sequence[Said[Denial]]) -> None:
    """Each denial is a digest, once."""
    for index, said in enumerate(denials):
        if not digests.is_sha256(said.value.sha256):
            raise tables.refuse(f"deny[{index}] needs a sha256 of 64 lowercase hexadecimal digits", _VALUE)
    _unique(tables, (said.value.sha256 for said in denials), "two [[deny]] of")


def check_examples(tables: Tables, examples: Sequence[Said[Example]]) -> None:
    """Each example expects an answer that can be given."""
    _unique(tables, (said.value.name for said in examples), "two [[example]] of the name")
    for said in examples:
        example, where = said.value, f"example {said.value.name!r}"
        if example.answer not in ANSWERS:
            raise tables.refuse(
                f"{where}: {example.answer!r} is no answer", _VALUE, fix=f"use one of: {', '.join(ANSWERS)}"
            )
        if example.reason and example.answer == ANSWERS[0]:
            raise tables.refuse(f"{where} expects {ANSWERS[0]} for a reason", _CONTRADICTION)
        if example.reason and example.reason not in reasons.TABLE:
            near = difflib.get_close_matches(example.reason, reasons.TABLE, n=1)
            raise tables.refuse(
                f"{where}: {example.reason!r} is no reason code",
                _VALUE,
                fix=f"did you mean {near[0]!r}?" if near else "docs/reference/reason-codes.md has them all",
            )
        if example.channel and not _WORD.fullmatch(example.channel):
            raise tables.refuse(f"{where}: channel {example.channel!r} is not made of a-z, 0-9 and -", _VALUE)
        if example.at:
            try:
                zoned = dt.datetime.fromisoformat(example.at).tzinfo is not None
            except ValueError:
                zoned = False
            if not zoned:
                raise tables.refuse(
                    f"{where}: at {example.at!r} is no time with a zone",
                    _VALUE,
                    fix='write "2026-01-31T12:00:00Z"',
                )


def _unique(tables: Tables, names: Iterable[str], what: str) -> None:
    for name, count in collections.Counter(names).items():
        if count > 1:
            raise tables.refuse(f"has {what} {name!r}", _CONTRADICTION)
