"""Gates on a wheel that was built elsewhere: what it has to say, and what of it is expected."""

import dataclasses
import io
from pathlib import Path

import pytest

from wheelmaking import NAME, manifest, variant, wheel_bytes
from wheelmark.binaries.wheel import read_wheel
from wheelmark.cli import main
from wheelmark.config import load_declaration
from wheelmark.errors import ConfigError, Exit
from wheelmark.pipeline import Progress, open_workspace
from wheelmark.pipeline.elsewhere import declared_in, gate_wheel
from wheelmark.targets import Target

ROOT = Path(__file__).parents[3]
KERNELS = """
schema = 1

[[kernel]]
name = "scale"
module = "scale"
attribute = "scale"
variant = "{x}"
targets = ["cuda-*"]

[kernel.arguments]
x = "*{x} unaligned large"

[kernel.matrix]
x = ["fp16", "fp32"]
"""


@pytest.mark.parametrize("route", [{}, {"image": "sha256:00"}, {"route": ""}])
def test_a_route_without_a_name_is_refused(tmp_path: Path, route: dict[str, str]) -> None:
    workspace = open_workspace(project=ROOT, cache=tmp_path)
    wheel = tmp_path / NAME
    wheel.write_bytes(wheel_bytes({}))
    row = workspace.declaration.row(Target.parse("cpu-x86_64"))
    with pytest.raises(ConfigError) as caught:
        gate_wheel(workspace, wheel, row, route=route, progress=Progress(stream=io.StringIO()))
    assert caught.value.reason == "gate-route"
    with pytest.raises(ConfigError) as caught:
        gate_wheel(
            workspace,
            wheel,
            row,
            route={"route": "x"},
            gates=["audit"],
            progress=Progress(stream=io.StringIO()),
        )
    assert caught.value.reason == "gate-name"


def test_the_command_refuses_a_target_outside_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["gate", str(tmp_path / NAME), "--target", "cuda-sm70", "--route", "route=x"]
    assert main([*arguments, "--project", str(ROOT), "--cache", str(tmp_path)]) == Exit.CONFIG
    assert "cuda-sm70" in capsys.readouterr().err


@pytest.mark.parametrize("optional", [False, True])
def test_optional_variants_that_a_wheel_lacks_are_not_asked_for(tmp_path: Path, *, optional: bool) -> None:
    declaration = load_declaration(ROOT / "wheelmark.toml")
    project = dataclasses.replace(declaration.project, source=Path("kernels"), import_name="demo_kernels")
    declaration = dataclasses.replace(
        declaration,
        root=tmp_path,
        project=project,
        kernels=dataclasses.replace(declaration.kernels, declarations=(Path("kernels.toml"),)),
    )
    (tmp_path / "kernels").mkdir()
    text = KERNELS.replace("[kernel.arg", 'optional = ["cuda-*"]\n\n[kernel.arg') if optional else KERNELS
    (tmp_path / "kernels" / "kernels.toml").write_text(text)
    held = manifest("sm90", [variant("sm90", "fp16")]).as_bytes()
    wheel = read_wheel(wheel_bytes({"demo_kernels/code_objects/manifest.json": held}), name=NAME)
    row = declaration.row(Target.parse("cuda-sm90"))
    found = declared_in(wheel, declaration, row)
    assert found == {"scale": ("fp16",) if optional else ("fp16", "fp32")}
    cpu = declaration.row(Target.parse("cpu-x86_64"))
    assert declared_in(wheel, declaration, cpu) == {}
