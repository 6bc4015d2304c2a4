"""Kernel declarations are read strictly."""

from pathlib import Path

import pytest

from wheelmark.build.kernels.declaration import ImportMode, Tuning, load_kernel_declaration
from wheelmark.errors import ConfigError
from wheelmark.targets import Target

MINIMAL = 'schema = 1\n[[kernel]]\nname = "k"\nmodule = "m"\nattribute = "f"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "kernels.toml"
    path.write_text(text)
    return path


def test_defaults_of_the_shortest_declaration(tmp_path: Path) -> None:
    declarations = load_kernel_declaration(write(tmp_path, MINIMAL))
    (kernel,) = declarations.kernels
    assert declarations.folders(tmp_path) == (tmp_path,)
    assert kernel.import_mode is ImportMode.PLAIN
    assert kernel.autotune is Tuning.DECLARED
    assert kernel.variant == "default"
    assert kernel.generic
    assert kernel.is_for(Target("cuda-sm80"))
    assert not kernel.is_for(Target("cpu-x86_64"))


def test_project_default_import_is_overridden_by_the_kernel(tmp_path: Path) -> None:
    text = MINIMAL.replace("[[kernel]]", '[project]\nimport = "shimmed"\n[[kernel]]', 1)
    text += '[[kernel]]\nname = "l"\nmodule = "m"\nattribute = "f"\nimport = "plain"\n'
    first, second = load_kernel_declaration(write(tmp_path, text)).kernels
    assert (first.import_mode, second.import_mode) == (ImportMode.SHIMMED, ImportMode.PLAIN)


def test_targets_and_exclude_are_patterns(tmp_path: Path) -> None:
    text = MINIMAL + 'targets = ["cuda-*"]\nexclude = ["cuda-sm8?"]\n'
    (kernel,) = load_kernel_declaration(write(tmp_path, text)).kernels
    fits = [name for name in ("cuda-sm80", "cuda-sm90", "rocm-gfx90a") if kernel.is_for(Target(name))]
    assert fits == ["cuda-sm90"]


@pytest.mark.parametrize(
    ("text", "reason", "said"),
    [
        ("schema = 2\n", "schema-version", "schema 2"),
        ("schema = true\n", "schema-version", "True"),
        ("schema = 1\n", "kernel-matrix", "no [[kernel]]"),
        ("schema = \n", "toml-syntax", "not TOML"),
        (MINIMAL + 'argument = "x"\n', "unknown-key", "did you mean 'arguments'?"),
        (MINIMAL + "[kernel.options]\nnum_warp = 4\n", "unknown-key", "did you mean 'num_warps'?"),
        (MINIMAL + '[kernel.options]\nextern_libs = "/x"\n', "unknown-key", "extern_libs"),
        (MINIMAL.replace('module = "m"\n', ""), "missing-key", "module"),
        (MINIMAL.replace('"m"', '"m;import os"'), "wrong-type", "no dotted name"),
        (MINIMAL.replace('"k"', '"../k"'), "kernel-name", "'../k'"),
        (MINIMAL + 'import = "lazy"\n', "unknown-choice", "plain, shimmed"),
        (MINIMAL + 'targets = ["cuda-sm75"]\n', "unknown-target", "cuda-sm75"),
        (MINIMAL + "[kernel.matrix]\nw = []\n", "kernel-matrix", "at least one"),
        (MINIMAL + '[kernel.matrix]\nw = ["a", "a"]\n', "kernel-matrix", "stands twice"),
        (
            MINIMAL + '[kernel.matrix]\nw = ["a"]\n[[kernel.skip]]\nw = "b"\n',
            "unknown-key",
            "unknown label of w",
        ),
        (MINIMAL + '[[kernel.override]]\nwhere = { w = "a" }\n', "unknown-key", "unknown axis"),
        ('schema = 1\n[project]\npath = ["../up"]\n' + MINIMAL[11:], "unsafe-path", "../up"),
        (MINIMAL + "generic = 1\n", "wrong-type", "generic"),
    ],
)
def test_refusals(tmp_path: Path, text: str, reason: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_kernel_declaration(write(tmp_path, text))
    assert caught.value.reason == reason
    assert said in str(caught.value)


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_kernel_declaration(tmp_path / "none.toml")
    assert caught.value.reason == "unreadable"


def test_a_source_root_elsewhere_takes_the_place_of_the_files_folder(tmp_path: Path) -> None:
    (tmp_path / "repository" / "kernels").mkdir(parents=True)
    path = write(
        tmp_path / "repository" / "kernels",
        MINIMAL.replace("[[kernel]]", '[project]\npath = ["p"]\n[[kernel]]'),
    )
    declarations = load_kernel_declaration(path)
    assert declarations.folders(tmp_path / "repository") == (tmp_path / "repository" / "kernels" / "p",)
    assert declarations.folders(tmp_path / "site-packages") == (tmp_path / "site-packages" / "p",)
