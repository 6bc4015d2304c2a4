"""The launch contract, through a library that is built here, on real code objects: what it accepts and what it finds."""

from __future__ import annotations

import importlib.util
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from wheelmark.build.kernels import CompiledKernels, compile_kernels
from wheelmark.build.native import build_native
from wheelmark.config import HostArch, load_declaration
from wheelmark.gates.fake_driver import build_fake_driver
from wheelmark.targets import Target

ROOT = Path(__file__).parents[2]
TARGETS = ("cuda-sm90", "rocm-gfx942")
Python = Callable[..., subprocess.CompletedProcess[str]]

FAULTS = {
    "driver.cpp": {
        # less shared memory is asked for than the kernel needs
        "if (fixed + dynamic > kNoOptIn)": "if (fixed + dynamic > 2 * kNoOptIn)",
        "if (previous.changed) set_current_(previous.context);": "(void)previous;",
        'if (found == nullptr) refuse("driver-junk", "the CUDA driver found': 'if (false) refuse("driver-junk", "the CUDA driver found',
    },
    "launcher.cpp": {
        "if (found != sha256)": "if (found.empty())",
        "if (arch != object.arch)": "if (arch.empty())",
        "static_cast<std::intptr_t>(stream)": "static_cast<std::intptr_t>(stream + 1)",
        "for (std::int64_t& address : scratch) pointers.push_back(&address);": "for (std::int64_t& address : scratch) pointers.push_back(address ? &address : &arguments[0]);",
        "const std::int64_t most = axis == 0 ? INT32_MAX : 65535;": "const std::int64_t most = UINT32_MAX;",
    },
}  # fmt: skip
"""Faults planted together in one build; each is found by a case of its own, named below."""

FOUND = {
    "launch/shared-60000": "out of resources",
    "launch/two-devices": "context left behind",
    "launch/refusal-junk-function": "reason is",
    "launch/refusal-object-flipped-bit": "reason is|raised nothing",
    "launch/refusal-arch-of-the-object-alone": "reason is object-refused, due is arch",
    "launch/fp16-i64-d64-t3-b11-weighted-sum-shift0": "stream is",
    "launch/global-scratch": "scratch pointers is",
    "launch/fp32-i32-d17-t3-b11-sum-shift0": "parameters is",
    "launch/refusal-grid-too-large": "",
}


@pytest.fixture(scope="session")
def compiled(pytestconfig: pytest.Config) -> Mapping[str, CompiledKernels]:
    """This project's kernels for two targets, by the pipeline's own compiler."""
    found = compile_kernels(
        [ROOT / "kernels" / "kernels.toml"],
        ROOT / "kernels",
        [Target.parse(name) for name in TARGETS],
        python=Path(sys.executable),
        cache=pytestconfig.cache.mkdir("kernels"),
    )
    return {str(target): kernels for target, kernels in found.items()}


@pytest.fixture(scope="session")
def planted_launcher(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """The package with ``FAULTS`` in its C++ sources."""
    folder = tmp_path_factory.mktemp("planted-launcher")
    shutil.copy(ROOT / "wheelmark.toml", folder)
    shutil.copytree(
        ROOT / "kernels", folder / "kernels", ignore=shutil.ignore_patterns("__pycache__", "_native.so")
    )
    for name, edits in FAULTS.items():
        file = folder / "kernels" / "csrc" / name
        text = file.read_text(encoding="utf-8")
        for old, new in edits.items():
            assert text.count(old) == 1, f"{name} no longer holds {old!r} once: correct the planted fault"
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    library = build_native(
        load_declaration(folder / "wheelmark.toml"),
        HostArch(platform.machine()),
        torch_include=Path(torch.origin).parent / "include",
        cache=pytestconfig.cache.mkdir("payload"),
    )
    (folder / "kernels" / library.path).write_bytes(library.data)
    return folder / "kernels"


@pytest.fixture(scope="session")
def driver(pytestconfig: pytest.Config) -> Path:
    return build_fake_driver(pytestconfig.cache.mkdir("payload"))


def with_objects(package: Path, kernels: CompiledKernels, folder: Path) -> Path:
    """A copy of the package with the code objects of one target, as its wheel holds them."""
    shutil.copytree(package / "wheelmark_kernels", folder / "wheelmark_kernels")
    objects = folder / "wheelmark_kernels" / "code_objects"
    objects.mkdir()
    (objects / "manifest.json").write_bytes(kernels.manifest.as_bytes())
    for name, data in kernels.objects.items():
        (objects / name).write_bytes(data)
    return folder


def run_launch(python: Python, package: Path, driver: Path, folder: Path) -> tuple[int, dict[str, Any]]:
    done = python(
        package, "-m", "wheelmark_kernels.contract", "launch", "--driver", str(driver),
        "--log", str(folder / "calls.jsonl"), "--report", str(folder / "report.json"),
    )  # fmt: skip
    assert (folder / "report.json").is_file(), done.stderr
    return done.returncode, json.loads((folder / "report.json").read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_every_clause_holds(
    python: Python,
    package_folder: Path,
    compiled: Mapping[str, CompiledKernels],
    driver: Path,
    tmp_path: Path,
    target: str,
) -> None:
    package = with_objects(package_folder, compiled[target], tmp_path)
    code, report = run_launch(python, package, driver, tmp_path)
    failed = [case for case in report["cases"] if not case["passed"]]
    assert (code, failed) == (0, [])
    assert report["versions"]["code_objects"] == target
    names = {case["name"] for case in report["cases"]}
    assert len(names) == len(report["cases"])
    cuda_only = {
        "launch/refusal-parameter-left-out",
        "launch/refusal-attribute-refused",
        "launch/driver-without-parameter-records",
    }
    assert bool(cuda_only & names) == target.startswith("cuda")
    assert {"launch/every-variant", "launch/two-devices", "launch/refusal-other-arch"} <= names
    # nothing was launched by a driver that was not asked: the log holds real calls
    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    launches = [call for call in calls if "LaunchKernel" in call["call"] and call["result"] == 0]
    assert len(launches) > 200


def test_planted_faults_are_found_each_by_its_own_case(
    python: Python,
    planted_launcher: Path,
    compiled: Mapping[str, CompiledKernels],
    driver: Path,
    tmp_path: Path,
) -> None:
    package = with_objects(planted_launcher, compiled["cuda-sm90"], tmp_path)
    code, report = run_launch(python, package, driver, tmp_path)
    failed = {case["name"]: case["message"] for case in report["cases"] if not case["passed"]}
    assert code == 1
    for name, words in FOUND.items():
        assert name in failed
        assert any(word in failed[name] for word in words.split("|")), failed[name]


@pytest.mark.parametrize("what", ["object", "order"])
def test_a_wheel_whose_objects_are_not_as_its_manifest_says(
    python: Python,
    package_folder: Path,
    compiled: Mapping[str, CompiledKernels],
    driver: Path,
    tmp_path: Path,
    what: str,
) -> None:
    package = with_objects(package_folder, compiled["cuda-sm90"], tmp_path)
    objects = package / "wheelmark_kernels" / "code_objects"
    if what == "object":  # a dropped code object
        (objects / "tbe_forward.fp16-i32-plain-any.cubin").unlink()
    else:  # two parameters of one size change places
        manifest = json.loads((objects / "manifest.json").read_bytes())
        variant = next(
            item for item in manifest["kernels"][0]["variants"] if item["name"] == "fp16-i32-plain-any"
        )
        parameters = variant["parameters"]
        parameters[0], parameters[1] = parameters[1], parameters[0]
        (objects / "manifest.json").write_text(json.dumps(manifest))
    done = python(
        package, "-m", "wheelmark_kernels.contract", "launch", "--driver", str(driver),
        "--log", str(tmp_path / "calls.jsonl"), "--report", str(tmp_path / "report.json"),
    )  # fmt: skip
    assert done.returncode == 1
    said = "tbe_forward.fp16-i32-plain-any.cubin cannot be read" if what == "object" else "parameters is"
    assert said in done.stderr


def test_a_package_without_code_objects_cannot_be_checked(
    python: Python, package_folder: Path, driver: Path, tmp_path: Path
) -> None:
    shutil.copytree(package_folder / "wheelmark_kernels", tmp_path / "wheelmark_kernels")
    shutil.rmtree(tmp_path / "wheelmark_kernels" / "code_objects", ignore_errors=True)
    done = python(
        tmp_path, "-m", "wheelmark_kernels.contract", "launch", "--driver", str(driver),
        "--log", str(tmp_path / "log"), "--report", str(tmp_path / "report.json"),
    )  # fmt: skip
    assert done.returncode == 3
    assert "a wheel for the CPU" in done.stderr
    assert not (tmp_path / "report.json").exists()


def test_hardware_without_a_card_is_not_a_pass(python: Python, package_folder: Path, tmp_path: Path) -> None:
    done = python(
        package_folder, "-m", "wheelmark_kernels.contract", "hardware", "--report", str(tmp_path / "r.json"),
        CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip
    assert done.returncode == 3
    assert "finds no card on this machine" in done.stderr
    assert not (tmp_path / "r.json").exists()


HARDWARE = """
import torch
from wheelmark_kernels import launch
from wheelmark_kernels.contract import hardware
from wheelmark_kernels.contract.correctness import forward_cases
from wheelmark_kernels.variants import read_code_objects

device = torch.device("cpu", 0)
launcher = launch.Launcher(read_code_objects())
cases = [hardware.launched(launcher, case, device) for case in forward_cases()]
cases += [hardware.launched(launcher, case, device, shift=1) for case in hardware.shifted_cases()]
cases += [hardware.every_variant(launcher, cases), hardware.same_bits(device), *hardware.bad_values(device)]
print(len(cases), [case for case in cases if not case.passed])
print(hardware.every_variant(launcher, cases[:40]))
"""


def test_the_cases_for_a_card_reach_every_variant_and_hold_on_the_cpu(
    python: Python,
    package_folder: Path,
    compiled: Mapping[str, CompiledKernels],
    driver: Path,
    tmp_path: Path,
) -> None:
    """What `hardware` would run, with the CPU operator in the card's place: only streams and graphs are left out."""
    package = with_objects(package_folder, compiled["cuda-sm90"], tmp_path)
    settings = {"WHEELMARK_DRIVER_LIBRARY": str(driver), "FAKE_DRIVER_ARCH": "90"}
    done = python(package, "-c", HARDWARE, **settings)
    assert done.returncode == 0, done.stderr
    all_cases, some = done.stdout.splitlines()
    assert all_cases.endswith(" []"), all_cases
    assert int(all_cases.split()[0]) > 150
    assert "passed=False" in some
    assert "not run: " in some


def test_variants_are_few_small_and_do_not_spill(compiled: Mapping[str, CompiledKernels]) -> None:
    for target, kernels in compiled.items():
        assert kernels.refused == ()
        variants = [variant for _, variant in kernels.manifest.variants()]
        assert len(variants) == 24
        assert {variant.arch for variant in variants} == {target.partition("-")[2]}
        assert all(variant.spill_stores == variant.spill_loads == 0 for variant in variants)
        assert sum(len(data) for data in kernels.objects.values()) < 500_000
