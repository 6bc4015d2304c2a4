"""Two verifiers: whatever is accepted here, sigstore-python accepts, over changes of whole bundles.

It is asked as a second opinion is (``opinion``): without the ends of the root's windows. The other way round does not hold, and
need not: what it overlooks is listed in docs/decisions/0010-verification-path.md.
"""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from forging import Forge, Json, b64, canonical
from presence import cases
from wheelmark import digests
from wheelmark.errors import RejectedError, WheelmarkError
from wheelmark.trust.roots import Root, read_root
from wheelmark.verify.bundle import read_bundle
from wheelmark.verify.facts import Examiner
from wheelmark.verify.opinion import ReferenceClient

CHANGES = 150
SUITE = (cases() or Path("absent")) / "sigstore-conformance/test/assets/bundle-verify"
FOREIGN = [
    "happy-path-v0.1",
    "happy-path-v0.2",
    "happy-path-v0.3",
    "happy-path-intoto-in-dsse-v3",
    "rekor2-happy-path",
    "rekor2-dsse-happy-path",
    "rekor2-checkpoint-multiple-cosigs",
    "rekor2-timestamp-with-embedded-cert",
    "bundle-with-sct-with-extensions",
]
Steps = tuple[str | int, ...]


def leaves(value: Any, path: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Every member of a bundle that is no container, and every container."""
    if path:
        yield path, value
    for name, item in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from leaves(item, (*path, name))


def turned(data: bytes, generator: random.Random) -> bytes:
    """Bytes with one place changed: a bit, a byte more, a byte less."""
    spoiled, place = bytearray(data), generator.randrange(len(data))
    match generator.randrange(4):
        case 0:
            del spoiled[place]
        case 1:
            spoiled.insert(place, generator.randrange(256))
        case _:
            spoiled[place] ^= 1 << generator.randrange(8)
    return bytes(spoiled)


def other_value(value: Any, generator: random.Random) -> Any:
    """Something else of the same kind, mostly."""
    if isinstance(value, str) and generator.random() < 0.7:
        try:
            return b64(turned(base64.b64decode(value, validate=True), generator))
        except ValueError:
            return turned(value.encode(), generator).decode("utf-8", "replace")
    if isinstance(value, str) and value.isdecimal():
        return str(int(value) + generator.choice((-1, 1, 1 << 32)))
    if isinstance(value, list) and value:
        return generator.choice((value[:-1], value * 2, value[::-1]))
    return generator.choice((None, "", {}, [], "AAAA", 0))


def changed(bundle: Json, another: Json, generator: random.Random) -> Json:
    """One structure-aware change: another value, a member taken away or added, or taken from another bundle."""
    copied = copy.deepcopy(bundle)
    path, value = generator.choice(list(leaves(bundle)))
    holder: Any = copied
    for step in path[:-1]:
        holder = holder[step]
    match generator.randrange(5):
        case 0:
            del holder[path[-1]]
        case 1:
            there: Any = another
            try:
                for step in path:
                    there = there[step]
            except (KeyError, IndexError, TypeError):
                there = None
            holder[path[-1]] = there
        case 2 if isinstance(holder, dict):
            holder[generator.choice(("keyid", "integratedTime", "hint", "surprise"))] = generator.choice(
                ("x", "1700000000")
            )
        case _:
            holder[path[-1]] = other_value(value, generator)
    return copied


def compare(root: Root, bundle: Json, another: Json, artifact: str, seed: int) -> int:
    """How many changed bundles were accepted, each of them by both."""
    generator = random.Random(seed)
    examiner, reference = Examiner([root]), ReferenceClient(root)
    accepted = 0
    for number in range(CHANGES):
        data = canonical(changed(bundle, another, generator) if number else bundle)
        try:
            facts = examiner.examine(data, artifact=artifact)
        except WheelmarkError as error:
            if error.reason in {"library", "second-opinion"}:
                raise
            continue
        accepted += 1
        made = read_bundle(data)
        certificate = x509.load_der_x509_certificate(made.certificates[0])
        digest = bytes.fromhex(artifact) if facts.statement is None else None
        try:
            reference.check(data, digest, certificate)
        except RejectedError as error:
            # Its reader of JSON wants members that protobuf's JSON may leave out, and no null: the values are what counts.
            if "failed to load bundle" not in error.what:
                pytest.fail(f"change {number}: accepted here, and {error.what}")
            reference.check(made.spelled(), digest, certificate)
    return accepted


@pytest.mark.parametrize("seed", range(3))
def test_our_own_bundles(forge: Forge, statement: bytes, seed: int) -> None:
    root = forge.root(canonical=False)
    assert compare(root, forge.dsse(statement), forge.dsse(statement), "", seed) > 1
    message, artifact = forge.message(b"artifact"), digests.sha256(b"artifact")
    assert compare(root, message, forge.message(b"artifact"), artifact, seed) > 1


@pytest.mark.skipif(
    not SUITE.is_dir(), reason="not run: WHEELMARK_CASES names no folder with the conformance suite"
)
@pytest.mark.parametrize("name", FOREIGN)
def test_bundles_of_others(name: str) -> None:
    folder = SUITE / name
    own, public = folder / "trusted_root.json", "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev"
    data = (
        own.read_bytes()
        if own.is_file()
        else (resources.files("sigstore") / "_store" / public / "trusted_root.json").read_bytes()
    )
    root = read_root(data, name="root", issuers=(), level="", canonical=False)
    bundle = json.loads((folder / "bundle.sigstore.json").read_bytes())
    another = json.loads((SUITE / "happy-path-v0.3" / "bundle.sigstore.json").read_bytes())
    artifact = digests.sha256((SUITE / "a.txt").read_bytes())
    assert compare(root, bundle, another, artifact, len(name)) > 0
