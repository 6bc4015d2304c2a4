"""What we publish is read by oras, cosign and skopeo, from both kinds of registries, with and without passwords."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from clients import Client, clients
from forging import Forge
from presence import need_program
from publishing import Images, command, credentials
from wheelmark.attest.predicates import PROVENANCE, SBOM
from wheelmark.oci import types
from wheelmark.oci.layout import Layout
from wheelmark.sign import embedded


@pytest.fixture(scope="session")
def programs() -> Mapping[str, Client]:
    return clients()


@pytest.fixture(scope="module")
def environment(host: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return credentials(tmp_path_factory.mktemp("docker"), host)


@pytest.fixture(scope="module")
def published(host: str, images: Images, environment: dict[str, str]) -> str:
    """Name of the repository that the images were pushed to."""
    done = command(
        "publish", f"{host}/team/app", "--from", str(images.path), "--tag", "1.0", environment=environment
    )
    assert done.returncode == 0, done.stderr
    return f"{host}/team/app"


def said(program: str | Path, *arguments: str, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        [str(program), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_oras_discovers_and_pulls(
    published: str,
    images: Images,
    environment: dict[str, str],
    programs: Mapping[str, Client],
    tmp_path: Path,
) -> None:
    oras = programs["oras"].path
    name = f"{published}:1.0-cpu-x86_64"
    found = json.loads(
        said(oras, "discover", "--plain-http", "--format", "json", name, environment=environment)
    )
    assert found["digest"] == images.images[0].digest
    kinds = {item["annotations"]["dev.sigstore.bundle.predicateType"] for item in found["referrers"]}
    assert kinds == {PROVENANCE, SBOM}
    assert {item["artifactType"] for item in found["referrers"]} == {types.BUNDLE}
    filtered = ["--artifact-type", types.BUNDLE]
    again = said(
        oras, "discover", "--plain-http", "--format", "json", *filtered, name, environment=environment
    )
    assert len(json.loads(again)["referrers"]) == 2
    layout = Layout(images.path)
    for item in found["referrers"]:
        said(
            oras,
            "manifest",
            "fetch",
            "--plain-http",
            f"{published}@{item['digest']}",
            environment=environment,
        )
        manifest = layout.read_manifest(
            next(r for r, _ in layout.referrers([images.images[0].sha256]) if r.digest == item["digest"])
        )
        blob = manifest.layers[0]
        out = tmp_path / blob.sha256
        said(
            oras,
            "blob",
            "fetch",
            "--plain-http",
            "-o",
            str(out),
            f"{published}@{blob.digest}",
            environment=environment,
        )
        assert out.read_bytes() == layout.document(blob)


def test_oras_copies_with_referrers_what_we_published(
    published: str,
    images: Images,
    environment: dict[str, str],
    programs: Mapping[str, Client],
    tmp_path: Path,
) -> None:
    target = tmp_path / "copied"
    said(
        programs["oras"].path,
        *("cp", "-r", "--from-plain-http", "--to-oci-layout", f"{published}:1.0-cpu-x86_64", f"{target}:x"),
        environment=environment,
    )
    layout = Layout(target)
    assert layout.resolve("x").descriptor.digest == images.images[0].digest
    assert len(layout.referrers([images.images[0].sha256])) == 2


def test_skopeo_inspects_and_copies(
    published: str, images: Images, environment: dict[str, str], tmp_path: Path
) -> None:
    skopeo = need_program("skopeo")
    name = f"docker://{published}@{images.images[0].digest}"
    found = json.loads(said(skopeo, "inspect", "--tls-verify=false", name, environment=environment))
    assert found["Labels"][types.TARGET_LABEL] == "cpu-x86_64"
    assert {"1.0", "1.0-cpu-x86_64", "1.0-cpu-aarch64"} <= set(found["RepoTags"])
    raw = said(
        skopeo, "inspect", "--tls-verify=false", "--raw", f"docker://{published}:1.0", environment=environment
    )
    assert raw.encode() == Layout(images.path).document(images.index)
    copy = ("--insecure-policy", "copy", "--preserve-digests", "--all", "--src-tls-verify=false")
    said(skopeo, *copy, f"docker://{published}:1.0", f"oci:{tmp_path}/copied:1.0", environment=environment)
    copied = Layout(tmp_path / "copied")
    assert copied.resolve("1.0").descriptor.digest == images.index.digest


def test_cosign_verifies_the_provenance(
    published: str,
    images: Images,
    forge: Forge,
    environment: dict[str, str],
    programs: Mapping[str, Client],
    tmp_path: Path,
) -> None:
    root = tmp_path / "root.json"
    root.write_bytes(forge.root_bytes)
    who = [
        *("--trusted-root", str(root), "--certificate-identity", embedded.RELEASE_IDENTITY),
        *("--certificate-oidc-issuer", embedded.ISSUER, "--allow-http-registry"),
    ]
    cosign = programs["cosign"].path
    said(cosign, "verify", *who, f"{published}:1.0", environment=environment)
    for item in images.all:
        name = f"{published}@{item.digest}"
        said(cosign, "verify-attestation", "--type", "slsaprovenance1", *who, name, environment=environment)
    wrong = [part if part != embedded.RELEASE_IDENTITY else "somebody@else.invalid" for part in who]
    with pytest.raises(AssertionError, match="rror"):
        said(cosign, "verify-attestation", "--type", "slsaprovenance1", *wrong, name, environment=environment)


def test_what_oras_and_skopeo_push_is_carried_by_us(
    host: str, images: Images, environment: dict[str, str], programs: Mapping[str, Client], tmp_path: Path
) -> None:
    skopeo = need_program("skopeo")
    name = f"{host}/theirs/app:2"
    copy = ("--insecure-policy", "copy", "--preserve-digests", "--dest-tls-verify=false")
    said(skopeo, *copy, f"oci:{images.path}:cpu-x86_64", f"docker://{name}", environment=environment)
    note = tmp_path / "note.txt"
    note.write_text("looked at")
    attach = (
        "attach",
        "--plain-http",
        "--artifact-type",
        "application/vnd.example.note",
        "--disable-path-validation",
    )
    said(programs["oras"].path, *attach, name, f"{note}:text/plain", environment=environment)
    done = command("copy", name, f"oci:{tmp_path}/ours:2", environment=environment)
    assert done.returncode == 0, done.stderr
    layout = Layout(tmp_path / "ours")
    assert layout.resolve("2").descriptor.digest == images.images[0].digest
    ((_, manifest),) = layout.referrers([images.images[0].sha256])
    assert manifest.artifact_type == "application/vnd.example.note"
    assert layout.document(manifest.layers[0]) == b"looked at"
    assert layout.check_files()


def test_a_wrong_password_is_an_error_with_the_way_out(
    host: str, images: Images, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = credentials(tmp_path / "docker", host)
    file = tmp_path / "docker" / "config.json"
    file.write_text(json.dumps({"auths": {host: {"username": "tester", "password": "not it 8c1d"}}}))
    done = command("publish", f"{host}/a", "--from", str(images.path), "--json", environment=environment)
    if "," not in request.node.callspec.params["host"]:
        assert done.returncode == 0  # it asks nobody
        return
    assert done.returncode == 16
    assert json.loads(done.stdout)["reason"] == "registry-auth"
    assert "docker login" in done.stderr
    assert "8c1d" not in done.stdout + done.stderr
