"""Facts kept on disk: found by everything that they depend on, and as good as none where anything is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import wheelmark
from forging import Forge, canonical
from wheelmark import digests, strictjson
from wheelmark.errors import ConfigError, RejectedError
from wheelmark.trust.roots import Root
from wheelmark.verify import facts as facts_module
from wheelmark.verify.bundle import Bundle, read_bundle
from wheelmark.verify.facts import Examiner, Facts
from wheelmark.verify.factscache import FactsCache

Counter = list[bytes]


@pytest.fixture
def established(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Every bundle that was read, and not found in a cache."""
    seen: Counter = []

    def counting(data: bytes) -> Bundle:
        seen.append(data)
        return read_bundle(data)

    monkeypatch.setattr(facts_module, "read_bundle", counting)
    return seen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "facts"


def examine(folder: Path, root: Root, data: bytes, artifact: str = "") -> Facts:
    return Examiner([root], cache=FactsCache(folder)).examine(data, artifact=artifact)


def test_the_next_process_finds_the_same_facts(
    forge: Forge, statement: bytes, folder: Path, established: Counter
) -> None:
    data = forge.sign(statement)
    first = examine(folder, forge.root(), data)
    assert examine(folder, forge.root(), data) == first
    assert len(established) == 1
    (entry,) = folder.iterdir()
    assert entry.stat().st_mode & 0o077 == 0


def test_everything_that_facts_depend_on_is_asked_for(
    forge: Forge,
    other_forge: Forge,
    statement: bytes,
    folder: Path,
    established: Counter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = forge.sign(statement)
    examine(folder, forge.root(), data)
    roots = [forge.root(name="other"), forge.root(canonical=False), forge.root(second_opinion=True)]
    for number, root in enumerate(roots, start=2):
        examine(folder, root, data)
        assert len(established) == number
    Examiner([forge.root(), other_forge.root(name="more")], cache=FactsCache(folder)).examine(data)
    assert len(established) == 5
    monkeypatch.setattr(wheelmark, "__version__", "0.0.other")
    examine(folder, forge.root(), data)
    assert len(established) == 6
    message = canonical(forge.message(b"artifact"))
    lenient = forge.root(canonical=False)
    examine(folder, lenient, message, digests.sha256(b"artifact"))
    with pytest.raises(RejectedError):
        examine(folder, lenient, message, digests.sha256(b"another"))
    examine(folder, lenient, message, digests.sha256(b"artifact"))
    assert len(established) == 8


def test_a_refusal_is_not_kept(forge: Forge, other_forge: Forge, statement: bytes, folder: Path) -> None:
    data = other_forge.sign(statement)
    with pytest.raises(RejectedError):
        examine(folder, forge.root(), data)
    assert list(folder.iterdir()) == []


def _replaced(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    """Another body with a digest that fits it: what somebody with access could write, or an older verifier wrote."""

    def spoil(path: Path) -> None:
        value = json.loads(path.read_bytes().partition(b"\n")[2])
        change(value)
        body = json.dumps(value).encode()
        path.write_bytes(digests.sha256(body).encode() + b"\n" + body)

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:64]),
        lambda path: path.write_bytes(path.read_bytes() + b" "),
        lambda path: path.write_bytes(b"\xff" + path.read_bytes()),
        lambda path: path.write_bytes(path.read_bytes().replace(b"embedded", b"embeddec")),
        lambda path: path.write_bytes(b"\0" * (25 << 20)),
        lambda path: (path.unlink(), path.mkdir()),
        _replaced(lambda value: value.update(bundle_sha256="0" * 64)),
        _replaced(lambda value: value.update(surprise=1)),
        _replaced(lambda value: value.pop("times")),
    ],
)
def test_a_torn_or_foreign_entry_is_as_good_as_none(
    forge: Forge, statement: bytes, folder: Path, established: Counter, spoil: Callable[[Path], object]
) -> None:
    data = forge.sign(statement)
    first = examine(folder, forge.root(), data)
    (entry,) = folder.iterdir()
    spoil(entry)
    assert examine(folder, forge.root(), data) == first
    assert len(established) == 2
    if entry.is_file():
        assert examine(folder, forge.root(), data) == first
        assert len(established) == 2


def test_the_entry_of_another_bundle_is_not_taken(
    forge: Forge, statement: bytes, folder: Path, established: Counter
) -> None:
    one, two = forge.sign(statement), forge.sign(statement)
    examine(folder, forge.root(), one)
    (first,) = folder.iterdir()
    examine(folder, forge.root(), two)
    (second,) = set(folder.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert examine(folder, forge.root(), two).bundle_sha256 == digests.sha256(two)
    assert len(established) == 3


def test_where_nothing_can_be_written_facts_are_established_again(
    forge: Forge, statement: bytes, folder: Path, established: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = forge.sign(statement)

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert examine(folder, forge.root(), data) == examine(folder, forge.root(), data)
    assert len(established) == 2
    assert list(folder.iterdir()) == []


def test_facts_over_the_limit_are_not_kept(
    forge: Forge, statement: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheelmark.verify.factscache._LIMITS", strictjson.Limits(size=500))
    examine(folder, forge.root(), forge.sign(statement))
    assert list(folder.iterdir()) == []


def test_a_folder_that_others_can_enter_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(ConfigError) as caught:
        FactsCache(folder)
    assert caught.value.reason == "state-permissions"
