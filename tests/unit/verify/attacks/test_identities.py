"""Rows 4 to 7, 15, 16 and 40: who signed, and who may say so."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from asking import Expect, Stand, ask
from forging import Forge, b64, canonical, changed, forging, found
from keysigning import KeyLog, PrivateKey, managed, pem
from rows import report, row
from wheelmark.sign import embedded
from wheelmark.sign.embedded import claims as token_claims
from wheelmark.verify.facts import Examiner
from wheelmark.verify.policy import Policy, Requirement, Signer

OWN = embedded.RELEASE_IDENTITY
ELSEWHERE = "https://issuer.example"


def signed(stand: Stand, identity: str) -> bytes:
    return stand.forge.sign(stand.statement(), identity)


@row(4, "signer-identity")
@pytest.mark.parametrize(
    "identity",
    [
        embedded.runner_identity("gpu"),
        "https://embedded.invalid/somebody",
        "https://github.com/x/y",
        "urn:x:y",
    ],
)
def test_another_identity(stand: Stand, expect: Expect, identity: str) -> None:
    expect(stand.ask(signed(stand, identity)), "signer-identity", also=("predicate-missing",))


@row(4, "signer-identity")
def test_the_command_says_who_it_was(stand: Stand, expect: Expect) -> None:
    answer = stand.command(signed(stand, embedded.runner_identity("gpu")))
    expect(answer, "signer-identity", also=("predicate-missing",))


@row(4, "signer-not-allowed")
def test_a_known_signer_that_does_not_count_for_this(stand: Stand, expect: Expect) -> None:
    runner = Signer(
        name="gpu", root="embedded", issuer=embedded.ISSUER, identity=embedded.runner_identity("gpu")
    )
    policy = dataclasses.replace(stand.policy, signers=(*stand.policy.signers, runner))
    answer = stand.ask(signed(stand, runner.identity), policy=policy)
    expect(answer, "signer-not-allowed", also=("predicate-missing",))


@report("cli/cli signer-workflow", "signer-identity")
@row(6, "signer-identity")
@pytest.mark.parametrize(
    "identity",
    [
        f"{OWN}2",
        OWN[:-1],
        f"{OWN}/",
        f"{OWN}/../release",
        f"{OWN}?x=1",
        f"{OWN}#x",
        OWN.replace("https://", "http://"),
        OWN.replace("release", "Release"),
        OWN.replace("embedded.invalid", "embedded-invalid"),
        OWN.replace("embedded.invalid", "embedded.invalid."),
        f"https://evil.example/{OWN}",
        f"https://evil.example/?next={OWN}",
        OWN.replace("/release", "/%72elease"),
    ],
)
def test_an_identity_that_looks_alike(stand: Stand, expect: Expect, identity: str) -> None:
    expect(stand.ask(signed(stand, identity)), "signer-identity", also=("predicate-missing",))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    """An instance whose certificates name another issuer, and the same identity."""
    with forging(tmp_path_factory.mktemp("foreign") / "state", issuer=ELSEWHERE) as made:
        yield made


@row(5, "signer-issuer")
@pytest.mark.parametrize("known", [(ELSEWHERE, embedded.ISSUER), (embedded.ISSUER, ELSEWHERE)])
def test_the_right_identity_of_another_issuer(
    stand: Stand, expect: Expect, foreign: Forge, known: tuple[str, ...]
) -> None:
    policy = stand.under(foreign.root(issuers=known))
    answer = stand.ask(foreign.sign(stand.statement()), policy=policy)
    expect(answer, "signer-issuer", also=("predicate-missing",))


@row(40, "issuer-not-vouched")
@pytest.mark.parametrize(
    "vouched",
    [
        (embedded.ISSUER,),
        (f"{ELSEWHERE}/",),
        (ELSEWHERE.upper(),),
        ("https://issuer.example.evil",),
        ("https://issuer",),
    ],
)
def test_an_issuer_that_the_root_may_not_vouch_for(
    stand: Stand, expect: Expect, foreign: Forge, vouched: tuple[str, ...]
) -> None:
    # The signer rule asks for this very issuer: the root's word for it does not count.
    signer = dataclasses.replace(stand.policy.signers[0], issuer=ELSEWHERE)
    policy = dataclasses.replace(stand.under(foreign.root(issuers=vouched)), signers=(signer,))
    answer = stand.ask(foreign.sign(stand.statement()), policy=policy)
    expect(answer, "issuer-not-vouched", also=("predicate-missing",))


GITHUB = "https://token.actions.githubusercontent.com"
REPOSITORY = "https://github.com/example/kernels"
WORKFLOW = ".github/workflows/release.yml"
TAG = "refs/tags/v0.1.0"


@pytest.fixture(scope="module")
def github(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    """A private instance that names GitHub's issuer, and so can say anything of workflows."""
    with forging(tmp_path_factory.mktemp("github") / "state", issuer=GITHUB) as made:
        yield made


def by_workflow(forge: Forge, stand: Stand, **changes: str) -> bytes:
    """Provenance by a workflow's certificate."""
    says = {"repository": REPOSITORY, "path": WORKFLOW, "ref": TAG, "at": TAG} | changes
    workflow = f"{says['repository'].removeprefix('https://github.com/')}/{says['path']}@{says['at']}"
    names = (*token_claims._RAW.values(), *token_claims._TEXT.values(), *token_claims._URI.values())
    claims = {
        **dict.fromkeys((*names, "run_id", "run_attempt"), "x"),
        "job_workflow_ref": workflow,
        "repository": says["repository"].removeprefix("https://github.com/"),
        "ref": says["ref"],
        "sha": "0" * 40,
        "workflow_ref": workflow,
        "sub": f"repo:{workflow}",
    }
    return canonical(forge.dsse(stand.statement(), identity=f"repo:{workflow}", claims=claims))


@pytest.fixture
def workflows(stand: Stand, github: Forge) -> Policy:
    signer = Signer(
        name="release",
        root="embedded",
        issuer=GITHUB,
        repository=REPOSITORY,
        workflow=WORKFLOW,
        ref="refs/tags/v{version}",
    )
    return dataclasses.replace(stand.under(github.root(issuers=(GITHUB,))), signers=(signer,))


@report("cli/cli signer-workflow", "signer-identity")
@row(7, "signer-identity")
@pytest.mark.parametrize(
    "changes",
    [
        {"ref": "refs/heads/main"},
        {"at": "refs/heads/main"},
        {"ref": "refs/heads/main", "at": "refs/heads/main"},
        {"ref": "refs/tags/v0.1.1", "at": "refs/tags/v0.1.1"},
        {"ref": "refs/tags/v0.1.0-rc1", "at": "refs/tags/v0.1.0-rc1"},
        {"ref": "refs/heads/refs/tags/v0.1.0"},
        {"repository": "https://github.com/evil/kernels"},
        {"repository": "https://github.com/example/kernels2"},
        {"repository": "https://github.com/Example/kernels"},
        {"path": ".github/workflows/release2.yml"},
        {"path": ".github/workflows/release_yml"},
        {"path": ".github/workflows/x/release.yml"},
    ],
)
def test_another_ref_repository_or_workflow(
    stand: Stand, expect: Expect, github: Forge, workflows: Policy, changes: dict[str, str]
) -> None:
    expect.accepted(stand.ask(by_workflow(github, stand), policy=workflows))
    answer = stand.ask(by_workflow(github, stand, **changes), policy=workflows)
    expect(answer, "signer-identity", also=("predicate-missing",))


@row(15, "untrusted-root")
def test_a_bundle_of_another_instance(stand: Stand, expect: Expect, other_forge: Forge) -> None:
    expect(stand.ask(other_forge.sign(stand.statement())), "untrusted-root", also=("no-bundle",))
    expect(stand.command(other_forge.sign(stand.statement())), "untrusted-root", also=("no-bundle",))


@row(15, "untrusted-root")
def test_an_embedded_bundle_under_a_policy_of_another_root(
    stand: Stand, expect: Expect, other_forge: Forge
) -> None:
    policy = stand.under(other_forge.root())
    expect(stand.ask(stand.bundle(), policy=policy), "untrusted-root", also=("no-bundle",))


@row(15, "untrusted-root", "signature", "log-unknown", "timestamp-other")
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("verificationMaterial.certificate", "untrusted-root"),
        ("verificationMaterial.tlogEntries.0.logId", "log-unknown"),
        ("verificationMaterial.timestampVerificationData", "timestamp-other"),
        ("dsseEnvelope", "signature"),
    ],
)
def test_parts_of_another_instance_in_our_bundle(
    stand: Stand, expect: Expect, other_forge: Forge, path: str, code: str
) -> None:
    theirs = other_forge.dsse(stand.statement())
    answer = stand.ask(changed(stand.bundle(), path, found(theirs, path)))
    expect(answer, code, also=("no-bundle",))


# Row 16.
KEYS: dict[str, PrivateKey] = {
    "P-256": ec.generate_private_key(ec.SECP256R1()),
    "P-384": ec.generate_private_key(ec.SECP384R1()),
    "RSA": rsa.generate_private_key(65537, 2048),
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
}


@pytest.fixture(scope="module")
def log(forge: Forge) -> KeyLog:
    return KeyLog(forge, 2)


def keyed(stand: Stand, log: KeyLog, key: PrivateKey) -> Policy:
    """The policy with a rule for a key in place of the one for a certificate."""
    known = managed(key)
    signer = Signer(name="release", root="embedded", key_id=known.key_id)
    return dataclasses.replace(stand.under(log.root()), signers=(signer,), keys=(known,))


@row(16, "key-bundle")
@pytest.mark.parametrize("name", KEYS)
def test_a_bare_key_where_a_certificate_is_asked_for(
    stand: Stand, expect: Expect, log: KeyLog, name: str
) -> None:
    bundle = canonical(log.statement(KEYS[name], stand.statement()))
    expect(stand.ask(bundle, policy=stand.under(log.root())), "key-bundle", also=("no-bundle",))
    expect(stand.ask(bundle), "key-bundle", also=("no-bundle",))


@row(16, "key-expected")
def test_a_certificate_where_a_key_is_asked_for(stand: Stand, expect: Expect, log: KeyLog) -> None:
    policy = keyed(stand, log, KEYS["P-256"])
    expect.accepted(stand.ask(canonical(log.statement(KEYS["P-256"], stand.statement())), policy=policy))
    expect(stand.ask(stand.bundle(), policy=policy), "key-expected", also=("predicate-missing",))


@row(16, "key-unknown", "signature")
@pytest.mark.parametrize("name", KEYS)
def test_another_key(stand: Stand, expect: Expect, log: KeyLog, name: str) -> None:
    key: PrivateKey = ec.generate_private_key(ec.SECP256R1())
    policy = keyed(stand, log, KEYS[name])
    answer = stand.ask(canonical(log.statement(key, stand.statement())), policy=policy)
    expect(answer, "key-unknown", also=("no-bundle",))
    claimed = canonical(log.statement(key, stand.statement(), hint=managed(KEYS[name]).hint))
    expect(stand.ask(claimed, policy=policy), "signature", also=("no-bundle",))


@report("sigstore/cosign#5041", "key-bundle", "bundle-shape", "certificate-malformed")
@pytest.mark.parametrize("place", ["certificate", "beside", "instead", "chain"])
def test_a_key_in_the_certificates_place(stand: Stand, expect: Expect, lenient: Examiner, place: str) -> None:

    bundle = stand.bundle()
    material = "verificationMaterial"
    key = pem(KEYS["P-256"])
    code = {"beside": "bundle-shape", "instead": "key-bundle"}.get(place, "certificate-malformed")
    if place == "certificate":
        spoiled = changed(bundle, f"{material}.certificate.rawBytes", b64(key))
    elif place == "chain":
        del bundle[material]["certificate"]
        version = "application/vnd.dev.sigstore.bundle+json;version=0.2"
        chain = {"certificates": [{"rawBytes": b64(key)}]}
        spoiled = {**changed(bundle, f"{material}.x509CertificateChain", chain), "mediaType": version}
    else:
        spoiled = changed(bundle, f"{material}.publicKey", {"hint": managed(KEYS["P-256"]).hint})
        if place == "instead":
            del spoiled[material]["certificate"]
    expect(ask(lambda: lenient.examine(canonical(spoiled))), code)


def test_the_requirement_is_the_one_for_wheels(stand: Stand, expect: Expect) -> None:
    """What the tests above stand on: one requirement, one signer, one predicate."""
    rules: list[Requirement] = [rule for rule in stand.policy.requirements if rule.kind.value == "wheel"]
    assert [(rule.signers, len(rule.predicates)) for rule in rules] == [(("release",), 1)]
