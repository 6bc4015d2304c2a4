"""Trusted roots and policies: an error of configuration, or a value that says everything that the text says."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from forging import Forge
from fuzz import asn1, bundles, corpus, documents
from fuzz.subject import EQUAL, UNCHANGED, BrokenError, Mutator, Original
from wheelmark.errors import ConfigError, WheelmarkError
from wheelmark.sign import embedded
from wheelmark.trust import state
from wheelmark.trust.roots import read_root
from wheelmark.verify import reasons
from wheelmark.verify.facts import Examiner
from wheelmark.verify.policy import Policy, model, read_policy

POLICIES = Path(__file__).resolve().parents[2] / "policies"
OTHER = "accepted, says something else"
"""Outcome: an operator may write this; what it says differs, and the value differs with it."""


class RootSubject:
    """A changed trusted root is refused, or does not change a fact of the bundle that verified under it."""

    name = "roots"

    def __init__(self, forge: Forge) -> None:
        data = forge.root_bytes
        self.originals = (Original(name="embedded", data=data, tree=documents.parse(data)),)
        self._bundle = forge.sign(corpus.statement(0))
        self._facts = Examiner([self._root(data)]).examine(self._bundle)
        edits: Mapping[str, Callable[[Random, Any], Any]] = {
            "JSON: member dropped": documents.dropped,
            "JSON: member twice": documents.doubled,
            "JSON: values swapped": documents.swapped,
            "JSON: value of another type": documents.retyped,
            "JSON: member renamed or added": documents.renamed,
            "JSON: order": documents.shuffled,
            "string changed": bundles.text_changed,
            "bytes in base64 changed": bundles.bytes_flipped,
            "base64 spelled otherwise": bundles.base64_spelled,
            "DER": _der,
            "window": _window,
        }
        self.mutators: Mapping[str, Mutator] = {
            **{name: _edited(edit) for name, edit in edits.items()},
            "raw bytes": lambda rng, original: documents.flipped(rng, original.data),
            "spelling of the document": lambda rng, original: documents.respelled(rng, original.data),
        }

    def _root(self, data: bytes) -> Any:
        return read_root(data, name="embedded", issuers=(embedded.ISSUER,), level="a test's", canonical=True)

    def judge(self, original: Original, mutant: bytes) -> str:
        """See ``Subject``."""
        if mutant == original.data:
            return UNCHANGED
        try:
            root = self._root(mutant)
        except ConfigError as error:
            if error.reason not in reasons.TABLE:
                raise BrokenError(f"a reason that no table has: {error.reason}") from error
            return error.reason
        try:
            facts = Examiner([root]).examine(self._bundle)
        except WheelmarkError as error:
            if error.reason == "library":
                raise BrokenError(f"a library failed in a way that is not foreseen: {error.what}") from error
            return f"root read, bundle refused: {error.reason}"
        if facts != self._facts:
            raise BrokenError("a changed root changes a fact")
        return EQUAL


def _edited(edit: Callable[[Random, Any], Any]) -> Mutator:
    return lambda rng, original: documents.written(edit(rng, documents.copied(original.tree)))


def _der(rng: Random, tree: Any) -> Any:
    path = rng.choice(
        [place for place in documents.places(tree) if documents.names(tree, place).endswith("rawBytes")]
    )
    return bundles.with_bytes(tree, path, lambda data: asn1.mutated(rng, data))


def _window(rng: Random, tree: Any) -> Any:
    paths = [
        place for place in documents.places(tree) if documents.names(tree, place).endswith((".start", ".end"))
    ]
    odd = [
        "",
        "now",
        "2020-01-01",
        "2020-01-01T00:00:00",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+23:59",
        "2020-13-01T00:00:00Z",
    ]
    odd += [
        "2020-01-01T00:00:00.1234567890123Z",
        "1e9",
        "2020-01-01t00:00:00z",
        "\uff12020-01-01T00:00:00Z",
        "2020-02-30T00:00:00Z",
    ]
    documents.put(tree, rng.choice(paths), rng.choice([*odd, None, 0, {}]))
    return tree


class PolicySubject:
    """A changed policy is an error, or its value differs too: nothing that a policy says is passed over in silence."""

    name = "policies"

    def __init__(self, folder: Path, forge: Forge) -> None:
        self._home = forge.home
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        (folder / "trusted_root.json").write_bytes(forge.root_bytes)
        texts = {path.stem: path.read_bytes() for path in sorted(POLICIES.glob("*.toml"))}
        self.originals = tuple(
            Original(name=name, data=data) for name, data in texts.items() if self._is_read(data)
        )
        self._values = {item.name: self._read(item.data) for item in self.originals}
        self.mutators: Mapping[str, Mutator] = {
            "line taken out": _line_removed,
            "line twice or moved": _line_moved,
            "key renamed": _key_renamed,
            "value changed": _value_changed,
            "list shortened": _list_shortened,
            "raw bytes": lambda rng, original: documents.flipped(rng, original.data),
        }

    def _is_read(self, data: bytes) -> bool:
        try:
            self._read(data)
        except ConfigError:
            return False
        return True

    def _read(self, data: bytes) -> Policy:
        before = os.environ.get(state.VARIABLE)
        os.environ[state.VARIABLE] = str(self._home)
        try:
            return read_policy(data, source="policy.toml", folder=self._folder)
        finally:
            os.environ.pop(state.VARIABLE)
            if before is not None:
                os.environ[state.VARIABLE] = before

    def judge(self, original: Original, mutant: bytes) -> str:
        """See ``Subject``."""
        if mutant == original.data:
            return UNCHANGED
        try:
            policy = self._read(mutant)
        except ConfigError as error:
            if error.reason not in reasons.TABLE:
                raise BrokenError(f"a reason that no table has: {error.reason}") from error
            return error.reason
        same_text = _plain(tomllib.loads(mutant.decode())) == _plain(tomllib.loads(original.data.decode()))
        same_value = _value(policy) == _value(self._values[original.name])
        if same_value and not same_text:
            raise BrokenError("it says something else, and the policy is the same")
        if same_text and not same_value:
            raise BrokenError("it says the same, and the policy is another one")
        return EQUAL if same_value else OTHER


def _value(policy: Policy) -> Policy:
    return dataclasses.replace(policy, sha256="", source="")


def _defaults() -> dict[str, Any]:
    """Key -> what it is where it is absent, as TOML says it; keys of one name have one default."""
    found: dict[str, Any] = {}
    for kind in (model.RootRule, model.Signer, model.Requirement, model.Example):
        for field in dataclasses.fields(kind):
            value = field.default
            if isinstance(value, enum.Enum):
                value = value.value
            if value is not dataclasses.MISSING:
                found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


_DEFAULTS = _defaults()


def _plain(value: Any) -> str:
    return json.dumps(_without_defaults(value), sort_keys=True, default=str)


def _without_defaults(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_defaults(item) for key, item in value.items()}
        return {
            k: item
            for k, item in kept.items()
            if not (k in _DEFAULTS and item == _DEFAULTS[k] and type(item) is type(_DEFAULTS[k]))
        }
    return [_without_defaults(item) for item in value] if isinstance(value, list) else value


def _line_removed(rng: Random, original: Original) -> bytes:
    lines = original.data.split(b"\n")
    for _ in range(rng.choice([1, 1, 2])):
        del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def _line_moved(rng: Random, original: Original) -> bytes:
    lines = original.data.split(b"\n")
    line = lines[rng.randrange(len(lines))]
    if rng.random() < 0.5:
        lines.remove(line)
    lines.insert(rng.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def _key_renamed(rng: Random, original: Original) -> bytes:
    lines = original.data.split(b"\n")
    index = rng.choice(
        [number for number, line in enumerate(lines) if b"=" in line or line.startswith(b"[[")]
    )
    line = lines[index]
    name = line.strip(b"[]").split(b"=")[0].strip()
    other = rng.choice(
        [name.upper(), name + b"s", name[:-1] or b"x", name.replace(b"_", b"-"), b'"%s "' % name, b"x"]
    )
    lines[index] = line.replace(name, other, 1)
    return b"\n".join(lines)


def _value_changed(rng: Random, original: Original) -> bytes:
    lines = original.data.split(b"\n")
    index = rng.choice([number for number, line in enumerate(lines) if b" = " in line])
    key, _, value = lines[index].partition(b" = ")
    odd = b'"" "*" [] ["*"] {} true false 0 -1 1 nan inf 1979-05-27 [""] ["",""] [[]] 99999999999999999999 "\\u0000" "none" "static"'
    ways = [
        *odd.split(),
        value.replace(b'"', b"'"),
        b"[%s]" % value,
        value.strip(b"[]"),
        value[:-2] + value[-1:],
        value.upper(),
    ]
    ways += [documents.flipped(rng, value)] * 6
    lines[index] = key + b" = " + rng.choice(ways)
    return b"\n".join(lines)


def _list_shortened(rng: Random, original: Original) -> bytes:
    lines = original.data.split(b"\n")
    index = rng.choice([number for number, line in enumerate(lines) if b", " in line and b"[" in line])
    head, _, rest = lines[index].partition(b"[")
    items = rest.rpartition(b"]")[0].split(b", ")
    match rng.randrange(3):
        case 0:
            del items[rng.randrange(len(items))]
        case 1:
            items.append(items[0])
        case _:
            rng.shuffle(items)
    lines[index] = head + b"[" + b", ".join(items) + b"]"
    return b"\n".join(lines)
