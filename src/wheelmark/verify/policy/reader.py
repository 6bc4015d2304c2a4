"""Reading a policy from TOML: strictly, with a suggestion for each unknown key, contradictions refused.

A policy that names no root, no signer, no requirement, or a requirement without evidence accepts nothing and
is a configuration error, not a policy.
"""

from __future__ import annotations

import difflib
import enum
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from wheelmark import digests
from wheelmark.errors import ConfigError
from wheelmark.evidence import Level
from wheelmark.targets import Target
from wheelmark.trust import roots
from wheelmark.trust.roots import Root
from wheelmark.verify.policy.model import (
    ANY,
    SCHEMA_VERSION,
    Kind,
    Policy,
    Predicate,
    Requirement,
    RootRule,
    Signer,
)

_MAX_BYTES = 1 << 20
_Word = TypeVar("_Word", bound=enum.Enum)


def load_policy(path: Path) -> Policy:
    """The policy in ``path``, with its roots.

    Raises:
        ConfigError: The policy or a root that it names cannot be used.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read the policy {path}: {error.strerror}",
            fix="name a policy file with --policy",
            reason="policy-absent",
        ) from error
    return read_policy(data, source=str(path), folder=path.parent)


def read_policy(data: bytes, *, source: str, folder: Path) -> Policy:
    """A policy from its bytes.

    Args:
        data: TOML.
        source: How messages name it.
        folder: What relative paths of roots are relative to.

    Raises:
        ConfigError: The policy or a root that it names cannot be used.
    """
    reader = _Reader(source)
    if len(data) > _MAX_BYTES:
        raise reader.refuse(f"is over {_MAX_BYTES:,} bytes", "policy-syntax")
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # a number of too many digits is a bare ValueError
        raise reader.refuse(f"is not TOML: {error}", "policy-syntax") from error
    reader.known(document, ("schema", "development", "root", "signer", "require"), "the policy")
    if document.get("schema") is True or document.get("schema") != SCHEMA_VERSION:
        raise reader.refuse(
            f"has schema {document.get('schema')!r}; this verifier reads {SCHEMA_VERSION}", "policy-version"
        )
    development = reader.boolean(document, "development", where="the policy")
    rules = tuple(reader.root(table, development) for table in reader.tables(document, "root"))
    signers = tuple(reader.signer(table) for table in reader.tables(document, "signer"))
    requirements = tuple(reader.requirement(table) for table in reader.tables(document, "require"))
    _check(reader, rules, signers, requirements)
    return Policy(
        source=source,
        sha256=digests.sha256(data),
        roots=tuple(_load(rule, folder) for rule in rules),
        signers=signers,
        requirements=requirements,
        development=development,
    )


def _load(rule: RootRule, folder: Path) -> Root:
    if rule.path is None:
        return roots.this_machine(name=rule.name, issuers=rule.issuers, level=rule.level)
    return roots.load_root(
        folder / rule.path,
        name=rule.name,
        sha256=rule.sha256,
        issuers=rule.issuers,
        level=rule.level,
        canonical=rule.canonical,
    )


def _check(
    reader: _Reader,
    rules: Sequence[RootRule],
    signers: Sequence[Signer],
    requirements: Sequence[Requirement],
) -> None:
    """Refuse a policy that asks for nothing, or whose parts do not fit together."""
    for name, found in (("root", rules), ("signer", signers), ("require", requirements)):
        if not found:
            raise reader.refuse(f"has no [[{name}]]", "policy-empty")
    for name, names in (
        ("root", [rule.name for rule in rules]),
        ("signer", [signer.name for signer in signers]),
    ):
        if len(set(names)) != len(names):
            raise reader.refuse(f"has two [[{name}]] of one name", "policy-contradiction")
    by_name = {rule.name: rule for rule in rules}
    for signer in signers:
        _check_signer(reader, signer, by_name)
    seen: set[tuple[Kind, str]] = set()
    for rule in requirements:
        _check_requirement(reader, rule, {signer.name for signer in signers})
        for target in rule.targets:
            if (rule.kind, target) in seen:
                raise reader.refuse(
                    f"has two [[require]] of kind {rule.kind.value!r} for {target!r}", "policy-contradiction"
                )
            seen.add((rule.kind, target))


def _check_signer(reader: _Reader, signer: Signer, by_name: Mapping[str, RootRule]) -> None:
    if signer.root not in by_name:
        raise reader.refuse(
            f"signer {signer.name!r} names root {signer.root!r}, which is not there", "policy-contradiction"
        )
    if signer.issuer not in by_name[signer.root].issuers:
        raise reader.refuse(
            f"signer {signer.name!r} has issuer {signer.issuer!r}, for which root {signer.root!r} may not vouch",
            "policy-contradiction",
        )


def _check_requirement(reader: _Reader, rule: Requirement, known: set[str]) -> None:
    if unknown := sorted({*rule.signers, *rule.runners} - known):
        raise reader.refuse(
            f"a [[require]] names signer {unknown[0]!r}, which is not there", "policy-contradiction"
        )
    if Predicate.TEST_RESULT in rule.predicates:
        if not rule.gates:
            raise reader.refuse("a [[require]] asks for a test-result and names no gates", "policy-empty")
    elif rule.gates or rule.unchecked or rule.levels or rule.runners:
        raise reader.refuse(
            "a [[require]] asks for gates and not for the predicate test-result", "policy-contradiction"
        )
    if strangers := sorted({*rule.unchecked, *rule.levels} - set(rule.gates)):
        raise reader.refuse(
            f"a [[require]] speaks of gate {strangers[0]!r}, which its gates do not name",
            "policy-contradiction",
        )


class _Reader:
    """Typed access to the tables of one policy; every refusal names the policy."""

    def __init__(self, source: str) -> None:
        self._source = source

    def refuse(self, text: str, reason: str, *, fix: str = "") -> ConfigError:
        return ConfigError(
            f"policy {self._source}: {text}", fix=fix or "see docs/reference/policy.md", reason=reason
        )

    def known(self, table: Mapping[str, Any], names: Sequence[str], where: str) -> None:
        for key in table:
            if key not in names:
                near = difflib.get_close_matches(key, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
                raise self.refuse(f"{where} has an unknown key {key!r}", "policy-key", fix=hint)

    def tables(self, document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
        value = document.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.refuse(f"[[{name}]] is not an array of tables", "policy-value")
        return value

    def root(self, table: Mapping[str, Any], development: bool) -> RootRule:  # noqa: FBT001 - one caller
        names = ["name", "issuers", "level", "source", "path", "sha256", "canonical"]
        where = "a [[root]]"
        self.known(table, names, where)
        path = self.text(table, "path", where, default="")
        rule = RootRule(
            name=self.text(table, "name", where),
            issuers=self.texts(table, "issuers", where),
            level=self.text(table, "level", where),
            source=self.text(table, "source", where, default=""),
            path=Path(path) if path else None,
            sha256=self.text(table, "sha256", where, default=""),
            canonical=self.boolean(table, "canonical", where=where),
        )
        if not rule.issuers:
            raise self.refuse(f"root {rule.name!r} may vouch for no issuer", "policy-empty")
        if rule.source and (rule.source != roots.THIS_MACHINE or rule.path or rule.sha256):
            raise self.refuse(
                f'root {rule.name!r} is either source = "{roots.THIS_MACHINE}", or path and sha256',
                "policy-value",
            )
        if rule.source and not development:
            raise self.refuse(
                f"root {rule.name!r} is this machine's, in a policy that is not for development",
                "policy-development",
                fix="name a root by path and sha256; `development = true` is for the machine that signed",
            )
        if not rule.source and not (rule.path and digests.is_sha256(rule.sha256)):
            raise self.refuse(
                f"root {rule.name!r} is named without its path and sha256 (64 lowercase hexadecimal digits)",
                "policy-value",
            )
        return rule

    def signer(self, table: Mapping[str, Any]) -> Signer:
        names = ["name", "root", "issuer", "identity"]
        self.known(table, names, "a [[signer]]")
        name, root, issuer, identity = (self.text(table, key, "a [[signer]]") for key in names)
        return Signer(name=name, root=root, issuer=issuer, identity=identity)

    def requirement(self, table: Mapping[str, Any]) -> Requirement:
        names = [
            *("kind", "targets", "predicates", "signers", "runners", "gates", "level", "levels"),
            *("unchecked", "allow_partial", "allow_snapshot"),
        ]
        where = "a [[require]]"
        self.known(table, names, where)
        kind = self.word(Kind, self.text(table, "kind", where), where)
        targets = self.texts(table, "targets", where) if "targets" in table else (ANY,)
        levels = table.get("levels", {})
        if not isinstance(levels, dict) or not all(isinstance(word, str) for word in levels.values()):
            raise self.refuse(f"{where}: levels is not a table of words", "policy-value")
        rule = Requirement(
            kind=kind,
            targets=targets,
            predicates=tuple(
                self.word(Predicate, name, where) for name in self.texts(table, "predicates", where)
            ),
            signers=self.texts(table, "signers", where),
            runners=self.texts(table, "runners", where) if "runners" in table else (),
            gates=self.texts(table, "gates", where) if "gates" in table else (),
            level=self.word(Level, self.text(table, "level", where, default=Level.STATIC.value), where),
            levels={gate: self.word(Level, word, where) for gate, word in levels.items()},
            unchecked=self.texts(table, "unchecked", where) if "unchecked" in table else (),
            allow_partial=self.boolean(table, "allow_partial", where=where),
            allow_snapshot=self.boolean(table, "allow_snapshot", where=where),
        )
        for target in rule.targets:
            self._target(target)
        if not (rule.targets and rule.predicates and rule.signers):
            raise self.refuse(f"{where} names no target, no predicate or no signer", "policy-empty")
        return rule

    def _target(self, text: str) -> None:
        if text == ANY:
            return
        try:
            Target.parse(text)
        except ConfigError as error:
            raise self.refuse(error.what, "policy-value", fix=error.fix) from error

    def text(self, table: Mapping[str, Any], name: str, where: str, *, default: str | None = None) -> str:
        value = table.get(name, default)
        if not isinstance(value, str) or (not value and default is None):
            raise self.refuse(f"{where} needs a string {name!r}", "policy-value")
        return value

    def texts(self, table: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
        value = table.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.refuse(f"{where}: {name} is not a list of strings", "policy-value")
        if len(set(value)) != len(value):
            raise self.refuse(f"{where}: {name} has a word twice", "policy-value")
        return tuple(value)

    def boolean(self, table: Mapping[str, Any], name: str, *, where: str) -> bool:
        value = table.get(name, False)
        if not isinstance(value, bool):
            raise self.refuse(f"{where}: {name} is not true or false", "policy-value")
        return value

    def word(self, words: type[_Word], text: str, where: str) -> _Word:
        try:
            return words(text)
        except ValueError as error:
            allowed = ", ".join(str(word.value) for word in words)
            raise self.refuse(
                f"{where}: {text!r} is not one of the words allowed",
                "policy-value",
                fix=f"use one of: {allowed}",
            ) from error
