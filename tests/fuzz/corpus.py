"""The originals: bundles, wheels and releases made by an embedded instance of this run, and Sigstore's conformance bundles."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from forging import Forge, canonical, forging
from fuzz.bundlejudge import BundleSubject, Setting
from fuzz.subject import Original, Subject
from keysigning import KeyLog, PrivateKey, managed
from presence import cases
from wheelmark import digests
from wheelmark.attest.statement import Statement
from wheelmark.attest.statement import Subject as About
from wheelmark.errors import WheelmarkError
from wheelmark.trust.keys import ManagedKey, read_key
from wheelmark.trust.roots import Root, read_root
from wheelmark.verify.facts import Examiner

_CONFORMANCE = Path("sigstore-conformance/test/assets/bundle-verify")
_ARTIFACT = b"an artifact\n"


def statement(number: int) -> bytes:
    """A statement with two subjects and a small predicate."""
    return Statement(
        subjects=(
            About(name=f"demo-{number}.whl", sha256=digests.sha256(b"%d" % number)),
            About(name="release.json", sha256="cd" * 32),
        ),
        predicate_type="https://example.org/claim/v1",
        predicate={"says": "so", "count": number, "list": [1, "two", None], "nested": {"a": {"b": True}}},
    ).as_bytes()


def _sealed(
    name: str, data: bytes, root: Root, artifact: str = "", keys: Sequence[ManagedKey] = ()
) -> Original:
    """An original with what a replay needs."""
    context = {
        "keys": "".join(_pem(key) for key in keys),
        "root": base64.b64encode(root.data).decode(),
        "issuers": json.dumps(root.issuers),
        "canonical": json.dumps(root.canonical),
        "artifact": artifact,
    }
    return Original(name=name, data=data, context=context)


def _pem(key: ManagedKey) -> str:
    return key.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def key_bundles(forge: Forge) -> Iterator[Subject]:
    """Bundles signed with bare keys, in logs of both versions, under a canonical root and one that is not."""
    keys: dict[str, PrivateKey] = {
        "P-256": ec.generate_private_key(ec.SECP256R1()),
        "Ed25519": ed25519.Ed25519PrivateKey.generate(),
    }
    for canonical_root in (True, False):
        sealed: list[Original] = []
        settings: dict[str, Setting] = {}
        for version in (1, 2):
            log = KeyLog(forge, version)
            root = log.root(canonical=canonical_root)
            for kind, key in keys.items():
                name, data = f"{kind}, log {version}", canonical(log.statement(key, statement(version)))
                known = (managed(key),)
                sealed.append(_sealed(name, data, root, keys=known))
                settings[name] = Setting(root=root, keys=known)
        title = "own key bundles" if canonical_root else "own key bundles, root not canonical"
        yield BundleSubject(title, settings, sealed, canonical=canonical_root)


def own_bundles(forge: Forge) -> Iterator[Subject]:
    """Bundles of the embedded instance: under its own root, and under the same root where no form is asked for."""
    strict, lenient = forge.root(), forge.root(canonical=False)
    signed = {f"statement {number}": forge.sign(statement(number)) for number in range(3)}
    yield BundleSubject(
        "own bundles",
        dict.fromkeys(signed, Setting(root=strict)),
        [_sealed(name, data, strict) for name, data in signed.items()],
        canonical=True,
    )
    message = forge.message(_ARTIFACT)
    two_times = forge.dsse(statement(4))
    stamped = two_times["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"]
    sig = two_times["dsseEnvelope"]["signatures"][0]["sig"]
    stamped.append({"signedTimestamp": forge.timestamp(base64.b64decode(sig), certificate=False)})
    free = {
        **signed,
        "message": canonical(message),
        "two timestamps": json.dumps(two_times, indent=1).encode(),
    }
    artifact = digests.sha256(_ARTIFACT)
    settings = {name: Setting(root=lenient, artifact=artifact if name == "message" else "") for name in free}
    yield BundleSubject(
        "own bundles, root not canonical",
        settings,
        [_sealed(name, data, lenient, settings[name].artifact) for name, data in free.items()],
        canonical=False,
    )


def conformance_bundles() -> Iterator[Subject]:
    """Every bundle of Sigstore's conformance suite that is accepted here; none where WHEELMARK_CASES names no folder."""
    folder = (cases() or Path("absent")) / _CONFORMANCE
    found: dict[str, tuple[Original, Setting]] = {}
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if place.is_dir() and not place.name.endswith("_fail"):
            found |= _conformance_bundle(place)
    if found:
        yield BundleSubject(
            "conformance bundles",
            {name: setting for name, (_, setting) in found.items()},
            [original for original, _ in found.values()],
            canonical=False,
        )


def _conformance_bundle(place: Path) -> Mapping[str, tuple[Original, Setting]]:
    own, artifact = place / "trusted_root.json", place / "artifact"
    store = resources.files("sigstore") / "_store" / "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev"
    trusted = own.read_bytes() if own.is_file() else (store / "trusted_root.json").read_bytes()
    root = read_root(trusted, name=place.name, issuers=(), level="a test's", canonical=False)
    sha256 = digests.sha256_file(artifact if artifact.is_file() else place.parent / "a.txt")
    data, pem = (place / "bundle.sigstore.json").read_bytes(), place / "key.pub"
    keys = (read_key(pem.read_bytes(), root=root.name, what=place.name),) if pem.is_file() else ()
    try:
        Examiner([root], keys).examine(data, artifact=sha256)
    except WheelmarkError:
        return {}
    sealed = _sealed(place.name, data, root, sha256, keys)
    return {place.name: (sealed, Setting(root=root, artifact=sha256, keys=keys))}


@contextmanager
def subjects(folder: Path, kinds: frozenset[str] = frozenset()) -> Iterator[tuple[Subject, ...]]:
    """All subjects.

    Args:
        folder: Where the embedded instance and releases are made.
        kinds: ``bundles``, ``wheels``, ``layers``, ``images``, ``releases``, ``roots``, ``policies``; empty: all.
    """
    from fuzz import configuration, images, releases, wheels  # noqa: PLC0415 - they import this module

    with forging(folder / "state") as forge:
        made: list[Subject] = []
        if not kinds or "bundles" in kinds:
            made += [*own_bundles(forge), *key_bundles(forge), *conformance_bundles()]
        if not kinds or "wheels" in kinds:
            made.append(wheels.WheelSubject())
        if not kinds or "roots" in kinds:
            made.append(configuration.RootSubject(forge))
        if not kinds or "policies" in kinds:
            made.append(configuration.PolicySubject(folder / "policies", forge))
        if not kinds or "layers" in kinds:
            made.append(images.LayerSubject())
        if not kinds or kinds & {"releases", "images"}:
            release = releases.ReleaseSubject(folder / "releases", forge)
        if not kinds or "releases" in kinds:
            made.append(release)
        if not kinds or "images" in kinds:
            made.append(images.ImageSubject(folder / "images", forge, release.policy))
        yield tuple(made)


def now() -> dt.datetime:
    """A clock a little ahead: timestamps have whole seconds."""
    return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)


def again(original: Mapping[str, str], data: bytes) -> BundleSubject:
    """The subject of one saved original, for a replay."""
    root = read_root(
        base64.b64decode(original["root"]),
        name="replayed",
        issuers=tuple(json.loads(original["issuers"])),
        level="a test's",
        canonical=json.loads(original["canonical"]),
    )
    pems = [
        f"{text}-----END PUBLIC KEY-----\n"
        for text in original["keys"].split("-----END PUBLIC KEY-----\n")[:-1]
    ]
    keys = tuple(read_key(pem.encode(), root=root.name, what="a key") for pem in pems)
    setting = Setting(root=root, artifact=original["artifact"], keys=keys)
    sealed = dataclasses.replace(Original(name="replayed", data=data), context=dict(original))
    return BundleSubject("replayed", {"replayed": setting}, [sealed], canonical=root.canonical)
