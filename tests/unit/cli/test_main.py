from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wheelmark.cli import COMMANDS, build_parser, main
from wheelmark.config import load_declaration
from wheelmark.errors import Exit

ROOT = Path(__file__).parents[3]


def test_every_command_has_help_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as caught:
            build_parser().parse_args([command, "--help"])
        assert caught.value.code == 0
        assert "--json" in capsys.readouterr().out


def test_an_error_goes_to_stderr_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path)]) == Exit.CONFIG
    said = capsys.readouterr()
    assert said.out == ""
    assert "next step:" in said.err


def test_json_errors_are_one_document_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", str(tmp_path)]) == Exit.CONFIG
    assert json.loads(capsys.readouterr().out)["reason"] == "no-declaration"


@pytest.mark.parametrize(
    "arguments", [[], ["frobnicate"], ["build", "--no-such"], ["verify", "--json", "dist"]]
)
def test_a_line_that_makes_no_sense(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As the head of the reference page says: text on stderr, also with ``--json``."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == Exit.USAGE
    said = capsys.readouterr()
    assert said.err.startswith("usage: wheelmark")
    assert said.out == ""


def test_interrupted_while_the_command_line_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules are imported then; nobody wants to see which."""

    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert main(["pull"]) == Exit.INTERRUPTED
    assert capsys.readouterr().err == "wheelmark: interrupted; nothing was begun\n"


def test_a_program_that_calls_main_keeps_its_own_sigterm(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["check", "--json", "/no/such/project"]) != 0
    assert signal.getsignal(signal.SIGTERM) == before
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert main(["check", "--json", "/no/such/project"]) != 0
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().out


def test_the_reference_page_says_how_usage_errors_are_told() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    head = page.partition("```text")[0]
    assert "exit code 2" in head
    assert "stderr" in head.partition("exit code 2")[2]


def test_help_imports_no_room_that_works() -> None:
    """``wheelmark --help`` stays instant: it loads neither sigstore nor any building room."""
    program = (
        "import sys; from wheelmark.cli import build_parser; build_parser().format_help();"
        "print([m for m in sys.modules if m.split('.')[0] in ('sigstore', 'cryptography', 'cyclonedx', 'requests')"
        " or m.startswith(('wheelmark.pipeline', 'wheelmark.build', 'wheelmark.verify'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_plan_lists_every_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--json", "--project", str(ROOT)]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["targets"]) == 9
    assert all(item["buildable"] or item["fix"] for item in plan["targets"])


def test_a_target_that_cannot_be_built_is_named_with_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHEELMARK_CXX_AARCH64", "no-such-compiler")
    assert main(["plan", "--json", "--project", str(ROOT)]) == 0
    items = {item["target"]: item for item in json.loads(capsys.readouterr().out)["targets"]}
    assert items["cpu-aarch64"]["buildable"] is False
    assert items["cpu-aarch64"]["fix"]
    assert items["cpu-x86_64"]["buildable"] is True
    assert main(["plan", "--project", str(ROOT), "--release"]) == Exit.TOOL
    assert main(["plan", "--project", str(ROOT), "--targets", "cpu-aarch64"]) == Exit.TOOL
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["plan", "--project", str(ROOT)]) == Exit.CONFIG
    assert "nothing can be built" in capsys.readouterr().err


def test_an_unknown_target_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--project", str(ROOT), "--targets", "cuda-sm91"]) == Exit.CONFIG
    assert "cuda-sm90" in capsys.readouterr().err


def test_doctor_says_what_mends_each_absence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHEELMARK_CXX_AARCH64", "no-such-compiler")
    assert main(["doctor", "--json"]) == Exit.OK
    needs = {need["name"]: need for need in json.loads(capsys.readouterr().out)["needs"]}
    assert needs["C++ compiler for aarch64"]["fix"].startswith("apt-get install")
    assert "image-run is UNCHECKED" in needs["containers"]["needed_for"]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["doctor"]) == Exit.TOOL
    assert "MISSING" in capsys.readouterr().out


def test_doctor_says_where_no_project_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--project", str(tmp_path)])
    assert f"no wheelmark.toml in {tmp_path}" in capsys.readouterr().out
    main(["doctor", "--project", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["project"] is False
    main(["doctor", "--project", str(ROOT)])
    assert "no wheelmark.toml" not in capsys.readouterr().out


def test_nox_has_one_parameter_for_each_row_of_the_table(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "nox",
        "--list",
        "--json",
        "-s",
        "rebuild",
        "--noxfile",
        str(ROOT / "noxfile.py"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    sessions = [item["call_spec"] for item in json.loads(done.stdout)]
    rows = load_declaration(ROOT / "wheelmark.toml").targets
    assert [spec["target"] for spec in sessions] == [str(row.target) for row in rows]


def test_the_ci_matrix_is_the_table() -> None:
    matrix = json.loads((ROOT / ".github" / "matrix.json").read_text(encoding="utf-8"))
    rows = load_declaration(ROOT / "wheelmark.toml").targets
    assert [item["target"] for item in matrix["include"]] == [str(row.target) for row in rows]


def test_generated_files_are_up_to_date() -> None:
    assert main(["docs", "--check", "--project", str(ROOT)]) == 0
