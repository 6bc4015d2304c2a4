"""The hook under real podman and runc: what was verified starts, and nothing else does, whatever is tried."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hooking
import rows
from forging import Forge
from hooking import GOOD, OTHER, Host, image_in
from imaging import CREATED, provenance
from publishing import docker_registry
from registry import Registry, served
from wheelmark.attest.predicates import PROVENANCE
from wheelmark.deploy import hooksetup
from wheelmark.deploy.store import EvidenceStore
from wheelmark.errors import Exit, InputError, RegistryError
from wheelmark.oci import types
from wheelmark.oci.layout import BLOBS, LayoutWriter
from wheelmark.oci.reference import parse_location
from wheelmark.oci.types import ImageIndex, Platform
from wheelmark.publish import copy
from wheelmark.sign import embedded
from wheelmark.verify import Memory
from wheelmark.verify.verdict import Accepted, Report


@pytest.mark.parametrize("driver", ["overlay", "vfs"])
def test_a_verified_image_starts_and_the_time_is_reported(
    program: bytes,
    domain: tuple[Path, Forge],
    driver: str,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    with hooking.opened(program, domain, driver) as host:
        pulled = host.pull(host.layout("good"), GOOD)
        assert pulled.report.accepted
        assert host.images() == {pulled.digest}
        host.install()
        assert host.starts(GOOD)
        assert host.starts(f"example.org/demo@{pulled.digest}", "--pull", "never")
        entry = json.loads(host.log.read_text(encoding="utf-8").splitlines()[-1])
        assert (entry["accepted"], entry["sha256"]) == (True, pulled.digest.removeprefix("sha256:"))
        assert entry["policySha256"]
        seconds = _seconds_of_the_hook(host)
        record_testsuite_property(f"hook_{driver}_seconds_median", round(statistics.median(seconds), 3))
        record_testsuite_property(f"hook_{driver}_seconds_least", round(min(seconds), 3))


def _seconds_of_the_hook(host: Host) -> list[float]:
    """Wall time of the hook for a container that was created and has not run."""
    made = host.podman("create", GOOD)
    assert made.code == 0, made.err
    container = made.out.strip()
    assert host.podman("init", container).code == 0  # its bundle is there now
    bundle = host.storage / f"{host.driver}-containers" / container / "userdata"
    said = json.dumps({"ociVersion": "1.0.2", "id": container, "status": "creating", "bundle": str(bundle)})
    hook = json.loads((host.folder / "hooks" / hooksetup.FILE).read_bytes())["hook"]
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        done = subprocess.run(
            hook["args"],
            env=dict(item.split("=", 1) for item in hook["env"]),
            input=said.encode(),
            check=False,
        )
        seconds.append(time.perf_counter() - begun)
        assert done.returncode == 0
    assert host.podman("rm", "--force", container).code == 0
    return seconds


def test_an_unsigned_image_is_not_handed_over_and_does_not_start(host: Host) -> None:
    unsigned = host.layout("unsigned", signed=False)
    pulled = host.pull(unsigned, OTHER)
    assert pulled.report.reasons() == ("no-bundle",)
    assert pulled.report.exit_code is Exit.MISSING
    assert image_in(unsigned).digest not in host.images()
    host.slip_in(unsigned, OTHER)
    assert not host.starts(OTHER)
    assert host.reasons() == {"hook-unknown-image"}
    assert host.starts(GOOD)


def test_an_image_of_another_signer_is_refused(host: Host) -> None:
    layout = host.layout("theirs", identity=embedded.runner_identity("somebody"))
    pulled = host.pull(layout, OTHER)
    assert "signer-identity" in pulled.report.reasons()
    assert host.images() == {image_in(host.folder / "layouts" / "good").digest}
    host.slip_in(layout, OTHER)
    assert not host.starts(OTHER)
    assert host.reasons() == {"hook-unknown-image"}


def test_a_signer_that_the_policy_no_longer_takes(host: Host) -> None:
    text = host.policy.read_text(encoding="utf-8")
    host.policy.write_text(text.replace("wheelmark/release", "wheelmark/later"), encoding="utf-8")
    assert not host.starts(GOOD)
    assert "signer-identity" in host.reasons()


@pytest.mark.parametrize("which", ["layer", "config", "manifest"])
def test_a_tampered_blob_is_not_handed_over(bare: Host, which: str) -> None:
    layout = bare.layout("good")
    image = image_in(layout)
    manifest = json.loads((layout / BLOBS / image.sha256).read_bytes())
    names = {
        "layer": manifest["layers"][0]["digest"],
        "config": manifest["config"]["digest"],
        "manifest": image.digest,
    }
    path = layout / BLOBS / names[which].removeprefix("sha256:")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    pulled = bare.pull(layout, GOOD, reference=f"@{image.digest}")
    assert pulled.report.reasons() == ("image-blob",)
    assert pulled.report.exit_code is Exit.REJECTED
    assert bare.images() == set()
    assert EvidenceStore(bare.store).images() == ()


@rows.row(19, "image-target")
def test_an_image_for_another_target_does_not_start(host: Host) -> None:
    host.install(targets=("cuda-sm90",))
    assert not host.starts(GOOD)
    assert host.reasons() == {"image-target"}
    text = host.policy.read_text(encoding="utf-8")
    host.policy.write_text(text.replace('["cpu-x86_64", "cpu-aarch64"]', '["cuda-sm90"]'), encoding="utf-8")
    host.install()
    assert not host.starts(GOOD)
    assert host.reasons() == {"policy-no-rule"}


@rows.row(38, "policy-permissions")
def test_a_policy_that_others_can_write_or_that_is_gone_starts_nothing(host: Host) -> None:
    host.policy.chmod(0o666)
    assert not host.starts(GOOD)
    assert host.reasons() == {"policy-permissions"}
    host.policy.chmod(0o600)
    assert host.starts(GOOD)
    host.policy.unlink()
    assert not host.starts(GOOD)
    assert host.reasons() == {"policy-absent"}


def test_a_configuration_that_others_can_write_or_that_is_gone_starts_nothing(host: Host) -> None:
    config = host.setup().config_path
    config.chmod(0o666)
    assert "policy-permissions" in host.run(GOOD).err
    config.write_text("schema = 1\nallow_all = true\n", encoding="utf-8")
    config.chmod(0o644)
    done = host.run(GOOD)
    assert done.code in hooking.REFUSED
    assert done.out == ""
    assert "hook-config" in done.err
    config.unlink()
    assert "hook-config" in host.run(GOOD).err


@rows.row(42, "denied")
@pytest.mark.parametrize("which", ["manifest", "layer", "config"])
def test_an_image_that_was_denied_since_does_not_start(host: Host, which: str) -> None:
    layout = host.folder / "layouts" / "good"
    image = image_in(layout)
    manifest = json.loads((layout / BLOBS / image.sha256).read_bytes())
    denied = {
        "manifest": image.digest,
        "layer": manifest["layers"][0]["digest"],
        "config": manifest["config"]["digest"],
    }[which].removeprefix("sha256:")
    with host.policy.open("a", encoding="utf-8") as stream:
        stream.write(f'\n[[deny]]\nsha256 = "{denied}"\nwhy = "leaks"\n')
    assert not host.starts(GOOD)
    assert host.reasons() == {"denied"}


@rows.row(39, "clock-behind")
@pytest.mark.parametrize(("seconds", "starts"), [(86_400, False), (90, False), (30, True)])
def test_a_clock_that_is_behind_starts_nothing(host: Host, seconds: int, *, starts: bool) -> None:
    """But for the minute by which the clock of who signed may be ahead of this machine's."""
    later = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
    seen = Accepted(
        subject="x",
        sha256="0" * 64,
        level="",
        root="",
        signer="",
        identity="",
        issuer="",
        time=later,
        predicates=(),
    )
    Memory(host.store / "memory").remember(Report(path="x", policy="", verdicts=(seen,)), now=later)
    assert host.starts(GOOD) is starts
    assert host.reasons() == (set() if starts else {"clock-behind"})


@pytest.mark.parametrize(
    "options",
    [
        ["--annotation", "dev.wheelmark.skip=true"],
        [
            "--annotation",
            "io.podman.annotations.infra=true",
            "--annotation",
            "io.kubernetes.cri-o.ContainerType=sandbox",
        ],
        ["--annotation", f"org.opencontainers.image.base.digest=sha256:{'0' * 64}"],
        ["--label", "dev.wheelmark.target=cpu-x86_64"],
        ["--env", "WHEELMARK_STATE=/tmp", "--env", "PYTHONPATH=/tmp", "--env", "PYTHONSTARTUP=/etc/passwd"],
        ["--privileged"],
        ["--entrypoint", "/hello"],
        ["--name", "example.org-demo"],
        ["--init=false", "--read-only", "--user", "65532"],
    ],
    ids=lambda options: " ".join(options)[:40],
)
def test_nothing_that_a_container_is_given_lets_it_start(host: Host, options: list[str]) -> None:
    host.slip_in(host.layout("unsigned", signed=False), OTHER)
    assert not host.starts(OTHER, *options)
    assert host.reasons() == {"hook-unknown-image"}


def test_a_name_that_was_moved_after_the_pull_does_not_count(host: Host) -> None:
    verified = image_in(host.folder / "layouts" / "good")
    unsigned = host.slip_in(host.layout("unsigned", signed=False), OTHER)
    assert host.podman("tag", unsigned, GOOD).code == 0
    assert not host.starts(GOOD)
    assert host.reasons() == {"hook-unknown-image"}
    config = json.loads((host.folder / "layouts/good" / BLOBS / verified.sha256).read_bytes())["config"]
    image = config["digest"].removeprefix("sha256:")
    assert host.podman("tag", image, OTHER).code == 0
    assert host.starts(OTHER)  # the verified bytes, whatever they are called


@rows.row(24)
def test_a_tag_that_moves_while_it_is_verified_does_not_change_what_is_handed_over(
    bare: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = bare.layout("good")
    verified = image_in(layout)
    other = bare.layout("evil", signed=False)
    module = importlib.import_module("wheelmark.deploy.pull")
    real = module.verify_image

    def verify(*args: Any, **kwargs: Any) -> Any:
        report = real(*args, **kwargs)
        shutil.rmtree(layout)
        shutil.copytree(other, layout)
        return report

    monkeypatch.setattr(module, "verify_image", verify)
    pulled = bare.pull(layout, GOOD)
    assert image_in(layout).digest != verified.digest
    assert (pulled.resolved, pulled.digest) == (verified.digest, verified.digest)
    assert bare.images() == {verified.digest}
    bare.install()
    assert bare.starts(GOOD)


@rows.row(23, "no-bundle")
def test_an_attested_index_vouches_for_what_it_holds_and_for_nothing_else(bare: Host) -> None:
    layout = bare.folder / "layouts" / "index"
    writer = LayoutWriter(layout)
    here = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    images = [
        hooking.draft(
            bare.program,
            note=arch,
            platform=Platform(os="linux", architecture=arch),
            target={"amd64": "cpu-x86_64", "arm64": "cpu-aarch64"}[arch],
        ).write(writer, platform=Platform(os="linux", architecture=arch))
        for arch in ("amd64", "arm64")
    ]
    index = writer.add(
        ImageIndex(manifests=tuple(images)).as_bytes(), types.INDEX, annotations={types.REFERENCE: "v1"}
    )
    bundle = writer.attach(
        index, bare.forge.sign(provenance(index.sha256)), predicate_type=PROVENANCE, created=CREATED
    )
    writer.finish([index, writer.fallback(index, [bundle])])
    mine = next(item for item in images if item.platform is not None and item.platform.architecture == here)
    for reference in (":v1", f"@{index.digest}", f"@{mine.digest}"):
        pulled = bare.pull(layout, GOOD, reference=reference)
        assert pulled.report.accepted, pulled.report.as_table()
        assert pulled.digest == mine.digest
    bare.install()
    assert bare.starts(GOOD)
    stranger = bare.layout("stranger", signed=False)
    assert bare.pull(stranger, OTHER).report.reasons() == ("no-bundle",)
    bare.slip_in(stranger, OTHER)
    assert not bare.starts(OTHER)


@pytest.mark.parametrize("kind", ["docker-registry", "referrers API"])
def test_an_image_is_pulled_from_a_registry_with_its_evidence(
    bare: Host, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bundles are found by the fallback tag, or by the API; the engine never asks the registry itself."""
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    layout, unsigned = bare.layout("good"), bare.layout("unsigned", signed=False)
    with contextlib.ExitStack() as held:
        if kind == "docker-registry":
            registry = held.enter_context(docker_registry(bare.folder / "registry"))
        else:
            registry = held.enter_context(served(Registry())).host
        for source, tag in ((layout, "1"), (unsigned, "2")):
            copy(parse_location(f"oci:{source}:v1"), parse_location(f"{registry}/team/demo:{tag}"))
        digest = image_in(layout).digest
        for reference in (":1", f"@{digest}"):
            pulled = bare.pull_from(f"{registry}/team/demo{reference}", name=GOOD)
            assert pulled.report.accepted, pulled.report.as_table()
            assert (pulled.digest, pulled.bundles) == (digest, 1)
        refused = bare.pull_from(f"{registry}/team/demo:2", name=OTHER)
        assert refused.report.reasons() == ("no-bundle",)
        with pytest.raises(RegistryError) as caught:
            bare.pull_from(f"{registry}/team/demo:3")
        assert caught.value.reason == "registry-missing"
        with pytest.raises(InputError) as nothing:
            bare.pull_from(f"{registry}/team/demo")
        assert nothing.value.reason == "registry-reference"
    assert bare.images() == {digest}
    bare.install()
    assert bare.starts(GOOD)  # and the registry is gone


def test_an_image_that_the_operator_allows_by_digest_starts(host: Host) -> None:
    unsigned = host.layout("pause", signed=False)
    host.slip_in(unsigned, OTHER)
    host.install(allow={image_in(unsigned).sha256: "pause container of this machine"})
    assert host.starts(OTHER)
    host.slip_in(host.layout("another", signed=False), "example.org/third:1")
    assert not host.starts("example.org/third:1")


def test_without_a_log_nothing_starts(host: Host) -> None:
    host.log.unlink(missing_ok=True)
    host.log.mkdir()
    done = host.run(GOOD)
    assert done.code in hooking.REFUSED
    assert done.out == ""
    assert "audit-log" in done.err


def test_a_refusal_is_in_syslog(host: Host) -> None:
    """crun does not show what a hook writes to stderr: the operator reads it there."""
    place = Path("/dev/log")
    if os.path.lexists(place):
        pytest.skip("not run: a system log of this machine is at /dev/log already")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(place))
        try:
            listener.settimeout(30)
            host.policy.unlink()
            assert not host.starts(GOOD)
            said = listener.recv(1 << 16).decode()
        finally:
            place.unlink()
    assert "wheelmark-hook[" in said
    assert "wheelmark: refused" in said
    assert "policy-absent" in said


def test_the_command_line_pulls_and_installs(bare: Host) -> None:
    layout = bare.layout("good")

    def wheelmark(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "wheelmark", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    places = (
        "--store",
        bare.store,
        "--hooks-dir",
        bare.folder / "hooks",
        "--config",
        bare.folder / "hook.toml",
    )
    dry = wheelmark("hook", "install", "--policy", bare.policy, *places, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert '"always": true' in dry.stdout
    assert not (bare.folder / "hooks").exists()
    assert wheelmark("hook", "status", *places).returncode == int(Exit.CONFIG)
    for _ in range(2):  # the second time nothing is left to do
        done = wheelmark("hook", "install", "--policy", bare.policy, *places, "--json")
        assert done.returncode == 0, done.stderr
    assert wheelmark("hook", "status", *places).returncode == 0
    engine = " ".join(bare.engine)
    pulled = wheelmark(
        "pull",
        f"oci:{layout}:v1",
        "--policy",
        bare.policy,
        "--store",
        bare.store,
        "--engine",
        engine,
        "--json",
    )
    assert pulled.returncode == 0, pulled.stderr
    value = json.loads(pulled.stdout)
    assert (value["name"], value["digest"]) == ("localhost/good:v1", image_in(layout).digest)
    assert bare.starts("localhost/good:v1")
    bare.policy.chmod(0o666)
    refused = wheelmark("pull", f"oci:{layout}:v1", "--policy", bare.policy, "--store", bare.store)
    assert refused.returncode == int(Exit.CONFIG)
    assert "can be written by others" in refused.stderr
    bare.policy.chmod(0o600)
    assert wheelmark("hook", "uninstall", *places).returncode == 0
    assert (
        bare.podman("--hooks-dir", bare.folder / "hooks", "run", "--rm", "localhost/good:v1").out
        == hooking.SAYS
    )
