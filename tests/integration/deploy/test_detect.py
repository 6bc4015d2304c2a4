"""Cards, asked of real shared objects in a process of their own: the recording driver, and libraries that misbehave."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from presence import not_run
from wheelmark.deploy import Interpreter, Machine, Places, detect, read_interpreter
from wheelmark.gates.fake_driver import build_fake_driver, find_c_compiler

NVML = """
#include <string.h>
int nvmlInit_v2(void) { return %d; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { strncpy(out, "570.86.15", size); return 0; }
"""


@pytest.fixture(scope="module")
def here() -> Interpreter:
    return read_interpreter(Path(sys.executable))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not find_c_compiler():
        not_run("no C compiler")
    return build_fake_driver(tmp_path_factory.mktemp("driver"))


def library(folder: Path, text: str) -> Path:
    """A shared object of a few lines."""
    compiler = find_c_compiler() or not_run("no C compiler")
    source = folder / "library.c"
    source.write_text(text)
    built = folder / f"library{len(list(folder.iterdir()))}.so"
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", str(built), str(source)], check=True)
    return built


def look(
    here: Interpreter, folder: Path, cuda: Path, nvml: str = "absent.so", timeout: float = 30
) -> Machine:
    return detect(
        here, Places(cuda=str(cuda), nvml=nvml, proc=folder / "proc", sys=folder / "sys", timeout=timeout)
    )


@pytest.mark.parametrize(
    ("archs", "devices", "found"),
    [("90", "1", ["sm90"]), ("80,100", "2", ["sm80", "sm100"]), ("120", "3", ["sm120"] * 3), ("90", "0", [])],
)
def test_cards_of_the_recording_driver(
    here: Interpreter,
    driver: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    archs: str,
    devices: str,
    found: list[str],
) -> None:
    monkeypatch.setenv("FAKE_DRIVER_ARCH", archs)
    monkeypatch.setenv("FAKE_DRIVER_DEVICES", devices)
    machine = look(here, tmp_path, driver)
    assert [card.arch for card in machine.cards] == found
    assert {card.cuda for card in machine.cards} <= {"13.0"}
    assert {card.driver for card in machine.cards} <= {""}
    if not found:
        assert "NVIDIA: cuInit answers 100" in machine.notes


def test_the_drivers_version_is_nvmls_else_the_modules(
    here: Interpreter, driver: Path, tmp_path: Path
) -> None:
    module = tmp_path / "proc" / "driver" / "nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build  (dvs-builder)\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
    )
    (card,) = look(here, tmp_path, driver).cards
    assert card.driver == "560.35.03"
    (card,) = look(here, tmp_path, driver, nvml=str(library(tmp_path, NVML % 0))).cards
    assert (card.driver, str(card)) == ("570.86.15", "sm90, driver 570.86.15")
    (card,) = look(here, tmp_path, driver, nvml=str(library(tmp_path, NVML % 9))).cards
    assert card.driver == "560.35.03"


@pytest.mark.parametrize(
    ("variable", "value", "note"),
    [
        ("FAKE_DRIVER_FAIL", "cuInit:803", "cuInit answers 803"),
        ("FAKE_DRIVER_FAIL", "cuDeviceGetCount:999", "cuDeviceGetCount answers 999"),
        ("FAKE_DRIVER_JUNK", "cuDeviceGetCount", "cuDeviceGetCount says -7 cards"),
        ("FAKE_DRIVER_FAIL", "cuDeviceGet:101", "card 0 does not say what it is"),
        ("FAKE_DRIVER_JUNK", "cuDeviceGetAttribute", "card 0 does not say what it is"),
    ],
)
def test_a_driver_that_answers_nonsense_is_a_note(
    here: Interpreter,
    driver: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    note: str,
) -> None:
    monkeypatch.setenv(variable, value)
    machine = look(here, tmp_path, driver)
    assert machine.cards == ()
    assert any(note in item for item in machine.notes), machine.notes


@pytest.mark.parametrize(
    ("body", "note"),
    [
        (
            "#include <stdlib.h>\nint cuDriverGetVersion(int *v) { abort(); }",
            "ended the process that asked it (signal 6)",
        ),
        (
            "#include <stdlib.h>\nint cuDriverGetVersion(int *v) { exit(7); }",
            "ended the process that asked it (exit 7)",
        ),
        (
            "#include <unistd.h>\nint cuDriverGetVersion(int *v) { for (;;) pause(); }",
            "gave no answer in 2 s",
        ),
        (
            "#include <unistd.h>\n__attribute__((constructor)) void load(void) { for (;;) pause(); }",
            "gave no answer in 2 s",
        ),
    ],
)
def test_a_driver_that_crashes_or_hangs_takes_nothing_with_it(
    here: Interpreter, tmp_path: Path, body: str, note: str
) -> None:
    machine = look(here, tmp_path, library(tmp_path, body), timeout=2)
    assert machine.cards == ()
    assert any(note in item for item in machine.notes), machine.notes
