"""Signing with the real sigstore client against the real embedded services, over loopback."""

from __future__ import annotations

import base64
import datetime as dt
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from sigstore.errors import Error
from sigstore.models import Bundle, ClientTrustConfig, TrustedRoot
from sigstore.verify import Verifier, policy

from wheelmark.attest.bundle import canonical_bundle
from wheelmark.attest.statement import Statement, Subject
from wheelmark.errors import InputError, SignError
from wheelmark.sign import Domain, embedded, open_signer
from wheelmark.sign import signer as signing
from wheelmark.sign.embedded import claims
from wheelmark.sign.identity import TOKEN_VARIABLE
from wheelmark.trust.state import embedded_root_path

AMBIENT = ("GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI", TOKEN_VARIABLE)


@pytest.fixture(autouse=True)
def _no_ci_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)


def statement(number: int = 0) -> bytes:
    return Statement(
        subjects=(Subject(name="demo.whl", sha256=f"{number:064x}"),),
        predicate_type="https://slsa.dev/provenance/v1",
        predicate={"number": number},
    ).as_bytes()


def verify(
    bundle: bytes,
    state: Path,
    *,
    identity: str = embedded.RELEASE_IDENTITY,
    issuer: str = embedded.ISSUER,
) -> bytes:
    """The payload, according to sigstore's own verifier and the root that lies in the state directory."""
    verifier = Verifier(trusted_root=TrustedRoot.from_file(str(embedded_root_path(state))))
    rule = policy.Identity(identity=identity, issuer=issuer)
    kind, payload = verifier.verify_dsse(Bundle.from_json(bundle), rule)
    assert kind == "application/vnd.in-toto+json"
    return payload


def sign_one(state: Path, number: int = 0) -> bytes:
    with open_signer(state=state) as signer:
        return signer.sign(statement(number))


class TestEmbedded:
    def test_a_bundle_is_canonical_timestamped_and_verifies(self, state: Path) -> None:
        bundle = sign_one(state)
        assert canonical_bundle(bundle) == bundle
        assert verify(bundle, state) == statement()
        value = json.loads(bundle)
        assert value["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
        material = value["verificationMaterial"]
        assert len(material["timestampVerificationData"]["rfc3161Timestamps"]) == 1
        (entry,) = material["tlogEntries"]
        assert entry["kindVersion"] == {"kind": "hashedrekord", "version": "0.0.2"}

    def test_the_domain_is_made_where_there_is_none(self, tmp_path: Path) -> None:
        bundle = sign_one(tmp_path / "fresh")
        assert verify(bundle, tmp_path / "fresh") == statement()

    def test_the_statement_is_signed_byte_for_byte(self, state: Path) -> None:
        spaced = json.dumps(json.loads(statement()), indent=1).encode()
        with open_signer(state=state) as signer:
            assert verify(signer.sign(spaced), state) == spaced

    def test_a_runner_signs_under_its_own_name(self, state: Path) -> None:
        name = embedded.runner_identity("gpu-1")
        with open_signer(state=state, name=name) as signer:
            assert (signer.identity, signer.issuer) == (name, embedded.ISSUER)
            bundle = signer.sign(statement())
        assert verify(bundle, state, identity=name) == statement()
        with pytest.raises(Error):
            verify(bundle, state)

    @pytest.mark.parametrize(
        ("identity", "issuer"),
        [
            (embedded.RELEASE_IDENTITY + "/", embedded.ISSUER),
            (embedded.RELEASE_IDENTITY[:-1], embedded.ISSUER),
            ("https://embedded.invalid/wheelmark/runner/gpu-1", embedded.ISSUER),
            (embedded.RELEASE_IDENTITY, "https://token.actions.githubusercontent.com"),
        ],
    )
    def test_nobody_else_signed_it(self, identity: str, issuer: str, state: Path) -> None:
        with pytest.raises(Error):
            verify(sign_one(state), state, identity=identity, issuer=issuer)

    def test_another_machines_root_does_not_verify_it(self, state: Path, other: Path) -> None:
        bundle = sign_one(state)
        with pytest.raises(Error):
            verify(bundle, other)

    def test_another_payload_does_not_verify(self, state: Path) -> None:
        value = json.loads(sign_one(state))
        value["dsseEnvelope"]["payload"] = base64.b64encode(statement(1)).decode()
        with pytest.raises(Error):
            verify(json.dumps(value).encode(), state)

    def test_rotation_keeps_what_was_signed_and_changes_the_keys(self, state: Path) -> None:
        old = sign_one(state)
        old_root = embedded_root_path(state).read_bytes()
        embedded.rotate(state)
        new = sign_one(state, 1)
        embedded.rotate(state)
        newest = sign_one(state, 2)
        for number, bundle in enumerate((old, new, newest)):
            assert verify(bundle, state) == statement(number)
        embedded_root_path(state).write_bytes(old_root)
        assert verify(old, state) == statement()
        for bundle in (new, newest):
            with pytest.raises(Error):
                verify(bundle, state)

    def test_a_restored_domain_verifies_and_signs(self, state: Path, tmp_path: Path) -> None:
        before = sign_one(state)
        embedded.backup(tmp_path / "backup.tar", state)
        embedded.restore(tmp_path / "backup.tar", tmp_path / "restored")
        assert verify(before, tmp_path / "restored") == statement()
        after = sign_one(tmp_path / "restored", 1)
        assert json.loads(after)["verificationMaterial"]["tlogEntries"][0]["logIndex"] == "1"
        assert verify(after, state) == statement(1)

    def test_asking_who_would_sign_spends_no_certificate(self, state: Path) -> None:
        with open_signer(state=state) as signer:
            assert signer.identity == embedded.RELEASE_IDENTITY
            assert signer.trusted_root == embedded_root_path(state).read_bytes()
            assert signer.certificates == 0
            signer.sign(statement())
            signer.sign(statement(1))
            assert signer.certificates == 1

    def test_a_certificate_is_replaced_before_it_expires(self, state: Path) -> None:
        now = dt.datetime.now(dt.UTC)
        with embedded.open_instance(state) as instance, instance.serving() as config:
            signer = signing.Signer(
                domain=Domain.EMBEDDED,
                config=config,
                token=lambda: instance.mint(embedded.RELEASE_IDENTITY),
                clock=lambda: now,
            )
            signer.sign(statement())
            now += signing.RENEW_AFTER - dt.timedelta(seconds=1)
            signer.sign(statement())
            assert signer.certificates == 1
            now += dt.timedelta(seconds=1)
            bundle = signer.sign(statement(2))
            assert signer.certificates == 2
        assert verify(bundle, state) == statement(2)

    def test_two_processes_sign_at_once(self, state: Path, tmp_path: Path) -> None:
        script = (
            "import sys; from pathlib import Path\n"
            "from wheelmark.sign import open_signer\n"
            "folder, first = Path(sys.argv[2]), int(sys.argv[3])\n"
            "with open_signer(state=Path(sys.argv[1])) as signer:\n"
            "    for number in range(first, first + 8):\n"
            "        data = (folder / f'{number}.json').read_bytes()\n"
            "        (folder / f'{number}.bundle').write_bytes(signer.sign(data))\n"
        )
        for number in range(16):
            (tmp_path / f"{number}.json").write_bytes(statement(number))
        running = [
            subprocess.Popen([sys.executable, "-c", script, str(state), str(tmp_path), str(first)])
            for first in (0, 8)
        ]
        assert [process.wait(timeout=120) for process in running] == [0, 0]
        indices = set()
        for number in range(16):
            bundle = (tmp_path / f"{number}.bundle").read_bytes()
            assert verify(bundle, state) == statement(number)
            indices.add(json.loads(bundle)["verificationMaterial"]["tlogEntries"][0]["logIndex"])
        assert indices == {str(index) for index in range(16)}

    def test_two_first_signers_make_one_domain(self, tmp_path: Path) -> None:
        script = (
            "import sys; from pathlib import Path; from wheelmark.sign import open_signer\n"
            "with open_signer(state=Path(sys.argv[1])) as signer: sys.stdout.buffer.write(signer.sign(sys.stdin.buffer.read()))\n"
        )
        running = [
            subprocess.Popen(
                [sys.executable, "-c", script, str(tmp_path / "new")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for _ in range(2)
        ]
        bundles = [process.communicate(statement(), timeout=120)[0] for process in running]
        for bundle in bundles:
            assert verify(bundle, tmp_path / "new") == statement()

    def test_a_proxy_in_the_environment_is_not_asked(
        self, state: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv("no_proxy", "example.org")
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert verify(sign_one(state), state) == statement()


class TestFaults:
    """Each service in turn fails or lies; nothing that is not right leaves the signer."""

    @staticmethod
    def _refused(state: Path, reason: str) -> SignError:
        with open_signer(state=state) as signer, pytest.raises(SignError) as caught:
            signer.sign(statement())
        assert caught.value.reason == reason
        return caught.value

    @pytest.mark.parametrize(
        ("service", "reason"), [("certify", "sign"), ("log", "sign"), ("timestamp", "no-timestamp")]
    )
    @pytest.mark.parametrize("error", [InputError("planted"), RuntimeError("planted")])
    def test_a_service_that_fails(
        self, service: str, reason: str, error: Exception, state: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_arguments: Any) -> Any:
            raise error

        monkeypatch.setattr(embedded.Instance, service, fail)
        self._refused(state, reason)

    def test_a_log_that_promises_instead_of_a_timestamp(
        self, state: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The client takes a Rekor v1 promise for a source of time and returns a bundle; we do not."""
        original = embedded.Instance.log

        def promise(self: embedded.Instance, request: Any) -> dict[str, Any]:
            answer = original(self, request)
            return {**answer, "inclusionPromise": {"signedEntryTimestamp": "AA=="}, "integratedTime": "1"}

        def fail(*_arguments: Any) -> Any:
            raise InputError("planted")

        monkeypatch.setattr(embedded.Instance, "log", promise)
        monkeypatch.setattr(embedded.Instance, "timestamp", fail)
        self._refused(state, "no-timestamp")

    def test_a_timestamp_of_another_authority(
        self, state: Path, other: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with embedded.open_instance(other) as stranger:
            answer = stranger.timestamp
            monkeypatch.setattr(embedded.Instance, "timestamp", lambda _self, request: answer(request))
            self._refused(state, "not-verified")

    def test_a_certificate_of_another_authority(
        self, state: Path, other: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with embedded.open_instance(other) as stranger:
            certify, token = stranger.certify, stranger.mint(embedded.RELEASE_IDENTITY)
            monkeypatch.setattr(
                embedded.Instance, "certify", lambda _self, _token, request: certify(token, request)
            )
            self._refused(state, "sign")

    def test_a_certificate_for_somebody_else(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        name = x509.UniformResourceIdentifier("https://embedded.invalid/somebody/else")
        monkeypatch.setattr(claims, "subject_name", lambda _claims: name)
        self._refused(state, "not-verified")

    def test_an_answer_of_the_log_about_another_entry(
        self, state: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original, first = embedded.Instance.log, []

        def repeat(self: embedded.Instance, request: Any) -> dict[str, Any]:
            first.append(original(self, request))
            return first[0]

        monkeypatch.setattr(embedded.Instance, "log", repeat)
        with open_signer(state=state) as signer:
            signer.sign(statement())
            with pytest.raises(SignError) as caught:
                signer.sign(statement(1))
        assert caught.value.reason == "not-verified"

    @pytest.mark.parametrize("data", [b"{}", b"", b"junk"])
    def test_what_is_no_statement_is_not_signed(self, data: bytes, state: Path) -> None:
        with open_signer(state=state) as signer, pytest.raises(InputError):
            signer.sign(data)

    def test_an_expired_token(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("wheelmark.sign.embedded.oidc.LIFETIME", -60)
        self._refused(state, "bad-identity")


class TestFile:
    """The ``file`` domain, pointed at an instance that somebody else runs."""

    @pytest.fixture
    def instance(self, other: Path, tmp_path: Path) -> Iterator[embedded.Instance]:
        with embedded.open_instance(other) as made, made.serving() as config:
            (tmp_path / "config.json").write_bytes(config)
            yield made

    def test_a_token_from_the_environment(
        self, instance: embedded.Instance, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(TOKEN_VARIABLE, instance.mint("https://ci.invalid/job"))
        with open_signer(Domain.FILE, config=tmp_path / "config.json") as signer:
            bundle = signer.sign(statement())
            assert signer.identity == "https://ci.invalid/job"
            assert signer.trusted_root == embedded_root_path(other).read_bytes()
        assert verify(bundle, other, identity="https://ci.invalid/job") == statement()

    def test_the_ambient_identity_of_a_workflow(
        self, instance: embedded.Instance, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        workflow = "acme/widget/.github/workflows/release.yml@refs/tags/v1"
        names = [
            "job_workflow_sha",
            "runner_environment",
            "repository",
            "repository_id",
            "repository_owner",
            "repository_owner_id",
            "repository_visibility",
            "sha",
            "ref",
            "workflow",
            "workflow_sha",
            "event_name",
            "run_id",
            "run_attempt",
        ]
        claimed = {**dict.fromkeys(names, "x"), "job_workflow_ref": workflow, "workflow_ref": workflow}

        class TokenService(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                allowed = (
                    self.headers["Authorization"] == "bearer request" and "audience=sigstore" in self.path
                )
                body = json.dumps({"value": instance.mint("repo:acme/widget", claimed)}).encode()
                self.send_response(200 if allowed else 403)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), TokenService)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            monkeypatch.setenv("GITHUB_ACTIONS", "true")
            monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "request")
            url = f"http://127.0.0.1:{server.server_address[1]}/token?api=1"
            monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", url)
            with open_signer(Domain.FILE, config=tmp_path / "config.json") as signer:
                bundle = signer.sign(statement())
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
        name = f"https://github.com/{workflow}"
        assert signer.identity == name
        assert verify(bundle, other, identity=name) == statement()

    @pytest.mark.usefixtures("instance")
    def test_a_token_that_the_instance_does_not_know(
        self, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with embedded.open_instance(state) as stranger:
            monkeypatch.setenv(TOKEN_VARIABLE, stranger.mint("https://ci.invalid/job"))
        with (
            open_signer(Domain.FILE, config=tmp_path / "config.json") as signer,
            pytest.raises(SignError) as caught,
        ):
            signer.sign(statement())
        assert caught.value.reason == "sign"

    def test_an_instance_without_a_timestamp_authority(
        self, instance: embedded.Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        value = json.loads((tmp_path / "config.json").read_bytes())
        value["signingConfig"]["tsaUrls"] = []
        (tmp_path / "config.json").write_text(json.dumps(value))
        monkeypatch.setenv(TOKEN_VARIABLE, instance.mint("https://ci.invalid/job"))
        with (
            open_signer(Domain.FILE, config=tmp_path / "config.json") as signer,
            pytest.raises(SignError) as caught,
        ):
            signer.sign(statement())
        assert caught.value.reason == "no-timestamp"

    def test_an_instance_that_does_not_answer(
        self, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with embedded.open_instance(other) as instance:
            with instance.serving() as config:
                (tmp_path / "config.json").write_bytes(config)
            monkeypatch.setenv(TOKEN_VARIABLE, instance.mint("https://ci.invalid/job"))
            with (
                open_signer(Domain.FILE, config=tmp_path / "config.json") as signer,
                pytest.raises(SignError) as caught,
            ):
                signer.sign(statement())
        assert caught.value.reason == "sign"

    @pytest.mark.parametrize("data", [None, b"", b"{}", b"\xff", b'{"trustedRoot": 3}'])
    def test_a_configuration_that_cannot_be_used(
        self, data: bytes | None, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with embedded.open_instance(state) as instance:
            monkeypatch.setenv(TOKEN_VARIABLE, instance.mint("https://ci.invalid/job"))
        path = tmp_path / "absent.json"
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(SignError) as caught, open_signer(Domain.FILE, config=path):
            pass
        assert caught.value.reason == "sign-config"
        with pytest.raises(SignError) as unnamed, open_signer(Domain.FILE):
            pass
        assert unnamed.value.reason == "sign-config"


class TestPublic:
    """The ``public`` domain as far as it goes without its services."""

    def test_its_configuration_is_the_public_instances_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        packaged = ClientTrustConfig.production(offline=True)
        monkeypatch.setattr(ClientTrustConfig, "production", lambda: packaged)
        monkeypatch.setenv(TOKEN_VARIABLE, "not used yet")
        with open_signer(Domain.PUBLIC) as signer:
            assert b"rekor.sigstore.dev" in signer.trusted_root
            with pytest.raises(SignError) as caught:
                signer.sign(statement())
        assert caught.value.reason == "bad-identity"

    def test_where_it_cannot_be_fetched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unreachable() -> ClientTrustConfig:
            raise Error("planted")

        monkeypatch.setattr(ClientTrustConfig, "production", unreachable)
        monkeypatch.setenv(TOKEN_VARIABLE, "not used yet")
        with pytest.raises(SignError) as caught, open_signer(Domain.PUBLIC):
            pass
        assert caught.value.reason == "sign-config"
