"""Real pip and real uv install what was verified, and nothing that was put in its place; what differs is refused."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploying import MODULE, Shop, demo, say, site_of, swap_after_verification
from releasing import part
from rows import report, row
from wheelmark import digests
from wheelmark.deploy import Request, audit_environment, install
from wheelmark.errors import ConfigError, Exit, InputError, MachineError, RejectedError, StateError
from wheelmark.packages import installer
from wheelmark.verify import Memory, load_policy

PACKAGE = "demo_kernels"
BOTH = pytest.mark.parametrize("program", ["uv", "pip"])


def wheel_in(dist: Path) -> Path:
    (path,) = (dist / "wheels").glob("*.whl")
    return path


def audit(python: Path) -> list[str]:
    """Reason codes of an audit."""
    return [item.reason for one in audit_environment(python) for item in one.findings]


@BOTH
def test_the_wheel_runs_and_the_audit_finds_nothing(
    shop: Shop, good: Path, python: Path, program: str
) -> None:
    done = shop.install(good, python, program=program)
    assert done.receipt is not None
    assert (done.receipt.installer, done.receipt.target) == (program, "cpu-x86_64")
    assert done.receipt.wheel_sha256 == digests.sha256_file(wheel_in(good))
    assert done.receipt.release_sha256 == digests.sha256_file(good / "release.json")
    assert done.receipt.policy_sha256 == digests.sha256_file(shop.policy)
    script = python.parent / "demo-kernels"
    assert subprocess.run([str(script)], capture_output=True, text=True, check=True).stdout == "right\n"
    assert say(python, "import demo_kernels; demo_kernels.main()") == "right"  # compiles it
    assert list((site_of(python) / PACKAGE).rglob("*.pyc"))
    assert audit(python) == []
    assert shop.install(good, python, program=program).already


@BOTH
def test_an_upgrade_leaves_nothing_behind(
    shop: Shop, good: Path, python: Path, program: str, tmp_path: Path
) -> None:
    shop.install(good, python, program=program)
    say(python, "import demo_kernels")
    newer = shop.release(tmp_path, demo(more=b"MORE = 1\n"))
    done = shop.install(newer, python, program=program)
    assert done.receipt is not None
    assert not done.already
    assert say(python, "import demo_kernels.more as m; print(m.MORE)") == "1"
    older = shop.install(good, python, program=program)
    assert older.receipt is not None
    assert not (site_of(python) / PACKAGE / "more.py").exists()
    assert audit(python) == []


@BOTH
def test_uninstalling_takes_the_copy_away(shop: Shop, good: Path, python: Path, program: str) -> None:
    shop.install(good, python, program=program)
    uv = installer.find_uv()
    assert uv is not None
    subprocess.run(
        [str(uv), "pip", "uninstall", "--python", str(python), "demo-kernels"],
        check=True,
        capture_output=True,
    )
    assert [path.name for path in site_of(python).iterdir() if "demo" in path.name] == []
    assert audit(python) == ["installed-missing"]
    assert shop.install(good, python, program=program).receipt is not None


@row(25)
@report("trailofbits/pypi-attestations#130")
@BOTH
@pytest.mark.parametrize("alone", [False, True])
def test_a_wheel_replaced_after_verification_is_not_what_is_installed(
    shop: Shop, dist: Path, python: Path, program: str, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = wheel_in(dist)
    evil = demo(evil=b"EVIL = 1\n").wheel
    swap_after_verification(monkeypatch, lambda: wheel.write_bytes(evil))
    done = shop.install(wheel if alone else dist, python, program=program)
    assert done.receipt is not None
    assert wheel.read_bytes() == evil
    assert not (site_of(python) / PACKAGE / "evil.py").exists()
    assert say(python, "import demo_kernels; demo_kernels.main()") == "right"


def test_a_release_manifest_replaced_after_verification_changes_nothing(
    shop: Shop, dist: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dist / "release.json"
    text = path.read_bytes().replace(digests.sha256_file(wheel_in(dist)).encode(), b"0" * 64)
    swap_after_verification(monkeypatch, lambda: path.write_bytes(text))
    assert shop.install(dist, python).receipt is not None


@row(25)
def test_bytes_copied_before_a_good_release_took_their_place_are_not_installed(
    shop: Shop, good: Path, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way round: what was copied is evil, and what is verified is good."""
    evil = shop.release(tmp_path, demo(evil=b"EVIL = 1\n"))
    module = importlib.import_module("wheelmark.deploy.install")
    real = module.verify

    def verify(path: Path, *args: Any, **kwargs: Any) -> Any:
        shutil.rmtree(path)
        shutil.copytree(good, path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(module, "verify", verify)
    with pytest.raises(RejectedError) as caught:
        shop.install(evil, python)
    assert caught.value.reason == "file-digest"
    assert list(site_of(python).iterdir()) == []


def after_installing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Somebody writes to the environment in the moment when the real installer has ended."""
    real = installer.install

    def run(*args: Any, **kwargs: Any) -> str:
        program = real(*args, **kwargs)
        change()
        return program

    monkeypatch.setattr(installer, "install", run)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("evil.pth", b"import evil\n", "installed-added"),
        ("sitecustomize.py", b"", "installed-added"),
        (f"{PACKAGE}/extra.py", b"", "installed-added"),
        (f"{PACKAGE}/__init__.py", MODULE + b"#", "installed-changed"),
        (f"{PACKAGE}/__init__.py", None, "installed-missing"),
        (f"{PACKAGE}/__pycache__/__init__.cpython-311.pyc", b"\0" * 40, "installed-changed"),
        ("demo_kernels-9.dist-info/METADATA", b"", "installed-replaced"),
    ],
)
def test_what_then_lies_on_disk_is_looked_at(
    shop: Shop,
    good: Path,
    python: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    data: bytes | None,
    reason: str,
) -> None:
    path = site_of(python) / name

    def change() -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data) if data is not None else path.unlink()

    after_installing(monkeypatch, change)
    with pytest.raises(RejectedError) as caught:
        shop.install(good, python)
    assert caught.value.reason == reason
    assert caught.value.exit_code is Exit.REJECTED
    assert audit(python) == ["receipt-absent"]


def test_what_a_cache_holds_is_not_what_is_installed(
    shop: Shop, good: Path, new_python: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of uv's cache is spoiled after a first installation by uv itself."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("UV_CACHE_DIR", str(cache))
    uv = installer.find_uv()
    assert uv is not None
    wheel = wheel_in(good)
    subprocess.run(
        [str(uv), "pip", "install", "--python", str(new_python()), str(wheel)],
        check=True,
        capture_output=True,
    )
    for path in cache.rglob("*.py"):
        path.write_text("VALUE = 'evil'\n")
    python = new_python()
    assert shop.install(good, python).receipt is not None
    assert say(python, "import demo_kernels; print(demo_kernels.VALUE)") == "right"


def test_somebody_elses_installation_is_not_replaced_unasked(shop: Shop, good: Path, python: Path) -> None:
    uv = installer.find_uv()
    assert uv is not None
    subprocess.run(
        [str(uv), "pip", "install", "--python", str(python), str(wheel_in(good))],
        check=True,
        capture_output=True,
    )
    with pytest.raises(StateError) as caught:
        shop.install(good, python)
    assert caught.value.reason == "installed-foreign"
    done = shop.install(good, python, replace=True)
    assert any(
        line.startswith("replace: demo_kernels-0.1.0+cpu.dist-info was put there") for line in done.plan
    )
    assert audit(python) == []


def test_a_folder_that_belongs_to_nobody_is_not_written_into(shop: Shop, good: Path, python: Path) -> None:
    folder = site_of(python) / PACKAGE
    folder.mkdir()
    (folder / "leftover.py").write_text("")
    with pytest.raises(StateError) as caught:
        shop.install(good, python)
    assert caught.value.reason == "installed-foreign"
    with pytest.raises(RejectedError) as added:
        shop.install(good, python, replace=True)
    assert added.value.reason == "installed-added"


def test_a_tampered_installation_is_not_replaced_unasked(shop: Shop, good: Path, python: Path) -> None:
    shop.install(good, python)
    (site_of(python) / PACKAGE / "__init__.py").write_text("VALUE = 'evil'\n")
    assert audit(python) == ["installed-changed"]
    with pytest.raises(StateError) as caught:
        shop.install(good, python)
    assert caught.value.reason == "installed-damaged"
    assert "demo_kernels/__init__.py" in caught.value.what
    assert shop.install(good, python, replace=True).receipt is not None
    assert audit(python) == []


def test_an_installation_that_was_killed_is_finished(
    shop: Shop, good: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        after_installing(patch, killed)
        with pytest.raises(KeyboardInterrupt):
            shop.install(good, python)
    assert audit(python) == ["receipt-absent"]
    assert shop.install(good, python).receipt is not None
    assert audit(python) == []


def test_a_dry_run_changes_nothing(shop: Shop, good: Path, python: Path) -> None:
    done = shop.install(good, python, dry_run=True)
    assert done.report.accepted
    assert done.receipt is None
    assert done.plan[0].startswith(f"install {wheel_in(good).name} into ")
    assert list(site_of(python).iterdir()) == []


@row(43)
def test_a_tampered_release_installs_nothing(shop: Shop, dist: Path, python: Path) -> None:
    wheel = wheel_in(dist)
    data = bytearray(wheel.read_bytes())
    data[len(data) // 3] ^= 1
    wheel.write_bytes(data)
    done = shop.install(dist, python)
    assert done.report.exit_code is Exit.REJECTED
    assert "file-digest" in done.report.reasons()
    assert (done.source, done.receipt) == (None, None)
    assert list(site_of(python).iterdir()) == []


def test_what_verification_says_goes_before_what_does_not_fit(shop: Shop, dist: Path, python: Path) -> None:
    (dist / "stray").write_text("")
    done = shop.install(dist, python, target="cuda-sm90")
    assert done.report.reasons() == ("unaccounted-file",)


def test_a_target_that_does_not_fit(shop: Shop, good: Path, python: Path) -> None:
    with pytest.raises(MachineError) as caught:
        shop.install(good, python, target="cuda-sm90")
    assert caught.value.reason == "target-absent"


@pytest.mark.parametrize("kind", ["wheel", "release"])
def test_a_wheel_for_another_machine_goes_in_only_when_asked_for(
    shop: Shop, python: Path, tmp_path: Path, kind: str
) -> None:
    dist = shop.release(tmp_path, demo(), part("cuda-sm90", "sm90"))
    wheel = next((dist / "wheels").glob("*sm90*.whl"))
    ref = wheel if kind == "wheel" else dist
    with pytest.raises(MachineError) as caught:
        shop.install(ref, python, target="cuda-sm90")
    assert caught.value.reason == "target-unfit"
    done = shop.install(ref, python, target="cuda-sm90", without_card=True)
    assert done.receipt is not None
    assert done.receipt.unchecked == ("card",)


def test_neither_a_release_nor_a_wheel(shop: Shop, python: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        shop.install(tmp_path, python)
    assert caught.value.reason == "not-a-release"


@row(38, "policy-permissions")
def test_a_policy_that_others_can_write(shop: Shop, good: Path, python: Path, tmp_path: Path) -> None:
    policy = tmp_path / "open.toml"
    shutil.copyfile(shop.policy, policy)
    policy.chmod(0o666)
    ran = shop.run("install", good, "--policy", policy, "--python", python, "--json", "--no-deps")
    assert (ran.code, ran.reason) == (int(Exit.CONFIG), "policy-permissions")
    assert list(site_of(python).iterdir()) == []


def test_a_policy_of_somebody_else(shop: Shop, good: Path, python: Path, tmp_path: Path) -> None:
    policy = tmp_path / "theirs.toml"
    text = shop.policy.read_text().replace("wheelmark/release", "wheelmark/somebody-else")
    policy.write_text(text)
    policy.chmod(0o600)
    ran = shop.run("install", good, "--policy", policy, "--python", python, "--json", "--no-deps")
    assert ran.code == int(Exit.REJECTED)
    assert ran.document["installed"] is False
    assert "signer-identity" in json.dumps(ran.document)
    assert list(site_of(python).iterdir()) == []


def test_a_channel_that_the_policy_does_not_speak_of(shop: Shop, good: Path, python: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        shop.install(good, python, channel="prod")
    assert caught.value.reason == "policy-no-rule"
    assert list(site_of(python).iterdir()) == []


def test_a_policy_in_the_release_is_not_the_operators(shop: Shop, dist: Path, python: Path) -> None:
    policy = dist / "policy.toml"
    shutil.copyfile(shop.policy, policy)
    policy.chmod(0o600)
    ran = shop.run("install", dist, "--policy", policy, "--python", python, "--json", "--no-deps")
    assert (ran.code, ran.reason) == (int(Exit.CONFIG), "policy-inside")


def test_a_clock_behind_what_this_machine_has_seen(
    shop: Shop, good: Path, python: Path, tmp_path: Path
) -> None:
    memory = Memory(tmp_path / "memory")
    policy = load_policy(shop.policy, strict=True)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=2)
    request = Request(ref=good, python=python, dependencies=False, dry_run=True)
    assert install(request, policy, now=later, memory=memory).report.accepted
    done = install(request, policy, now=later - dt.timedelta(days=1), memory=memory)
    assert set(done.report.reasons()) == {"clock-behind"}
    assert done.source is None


def test_a_malformed_receipt_is_not_taken_for_anything(shop: Shop, good: Path, python: Path) -> None:
    done = shop.install(good, python)
    assert done.receipt_path is not None
    done.receipt_path.write_text("{}")
    with pytest.raises(StateError) as caught:
        shop.install(good, python)
    assert caught.value.reason == "receipt-malformed"
    assert shop.install(good, python, replace=True).receipt is not None
    assert audit(python) == []


def test_a_wheel_that_is_another_than_the_manifest_says_is_refused_by_verification(
    shop: Shop, dist: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put back before verification: what was looked at then is not what is accepted."""
    wheel = wheel_in(dist)
    right = wheel.read_bytes()
    wheel.write_bytes(demo(evil=b"").wheel)
    module = importlib.import_module("wheelmark.deploy.install")
    real = module.verify

    def verify(*args: Any, **kwargs: Any) -> Any:
        wheel.write_bytes(right)
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "verify", verify)
    with pytest.raises(RejectedError) as caught:
        shop.install(dist, python)
    assert caught.value.reason == "file-digest"
    assert list(site_of(python).iterdir()) == []


def test_there_is_no_default_policy(shop: Shop, good: Path, python: Path) -> None:
    ran = shop.run("install", good, "--python", python)
    assert ran.code == int(Exit.USAGE)
    assert "--policy" in ran.err


def test_the_command_says_what_it_did(shop: Shop, good: Path, python: Path) -> None:
    log = shop.home.parent / "log.jsonl"
    arguments = (
        "install",
        good,
        "--policy",
        shop.policy,
        "--python",
        python,
        "--no-deps",
        "--audit-log",
        log,
    )
    ran = shop.run(*arguments)
    assert ran.code == 0, ran.err
    assert "cpu-x86_64: CPU x86_64" in ran.out
    assert "installed, and compared with what was verified" in ran.out
    assert json.loads(log.read_text().splitlines()[0])["accepted"] is True
    assert "is there already, unchanged" in shop.run(*arguments).out
    assert "as installed" in shop.run("audit-installed", "demo-kernels", "--python", python).out
    (site_of(python) / PACKAGE / "__init__.py").write_text("")
    changed = shop.run("audit-installed", "--python", python)
    assert changed.code == int(Exit.REJECTED)
    assert changed.out.startswith("installed-changed: demo_kernels/__init__.py: ")
    absent = shop.run("audit-installed", "no-such", "--python", python)
    assert (absent.code, "receipt-absent" in absent.out) == (int(Exit.MISSING), True)
    assert "--replace` puts the verified bytes back" in changed.out
    assert "no-such: NOT COMPARED (no receipt to compare with)\n  next step:" in absent.out
