from __future__ import annotations

import dataclasses
import functools
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packageurl import PackageURL

from sample_project import SampleKernels, kernels, make_project, native_library
from wheelmark import digests
from wheelmark.attest.sbom import Sbom, is_embedded_sbom, is_record, read_sbom, unexplained_files
from wheelmark.binaries.wheel import Wheel, read_wheel
from wheelmark.build.wheel import assemble_wheel
from wheelmark.config import Declaration
from wheelmark.errors import BuildError, ConfigError, InputError, ToolError
from wheelmark.packages.pins import read_pins
from wheelmark.sbom import describe_wheel, embedded_document, schema, validate
from wheelmark.sbom.components import purl
from wheelmark.sbom.inputs import read_inputs
from wheelmark.targets import Target

ROOT = Path(__file__).parents[3]
LOCK = """\
mpmath==1.3.0 \\
    --hash=sha256:{a}
numpy==2.4.6 \\
    --hash=sha256:{a}
sympy==1.14.0 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
torch==2.13.0+cpu \\
    --hash=sha256:{b}
typing-extensions==4.16.0 ; python_version >= "3.10" \\
    --hash=sha256:{a}
""".format(a="a" * 64, b="b" * 64)
INPUTS = """\
schema = 1
[packages.torch]
supplier = "PyTorch Foundation"
license = "BSD-3-Clause"
requires = ["sympy", "typing-extensions", "triton"]
[packages.sympy]
requires = ["mpmath"]
[native.gcc]
supplier = "Free Software Foundation"
license = "GPL-3.0-or-later"
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """A wheel with both of its documents."""

    declaration: Declaration
    path: Path
    wheel: Wheel
    lock: Path
    kernels: SampleKernels | None
    document: bytes
    embedded: bytes

    @property
    def value(self) -> dict[str, Any]:
        return dict(json.loads(self.document))

    def component(self, ref: str) -> dict[str, Any]:
        return next(dict(item) for item in self.value["components"] if item["bom-ref"] == ref)

    def depends(self, ref: str) -> set[str]:
        return next(set(item["dependsOn"]) for item in self.value["dependencies"] if item["ref"] == ref)


def make(root: Path, target: str, lock: str = LOCK) -> Made:
    declaration = make_project(root / "project")
    (root / "project/sbom").mkdir()
    (root / "project/sbom/components.toml").write_text(INPUTS)
    (root / "runtime.txt").write_text(lock)
    row = declaration.row(Target.parse(target))
    parts = kernels(target) if row.target.is_gpu else None
    native = native_library(row.host)
    path = assemble_wheel(
        declaration,
        row,
        native=native,
        kernels=parts,
        output=root,
        sbom=functools.partial(embedded_document, declaration=declaration, row=row, native=native),
    )
    wheel = read_wheel(path)
    return Made(
        declaration=declaration,
        path=path,
        wheel=wheel,
        lock=root / "runtime.txt",
        kernels=parts,
        document=describe_wheel(
            path, declaration=declaration, row=row, lock=root / "runtime.txt", native=native, kernels=parts
        ),
        embedded=next(wheel.read(name) for name in wheel.files if is_embedded_sbom(name)),
    )


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("gpu"), "cuda-sm90")


def hashes(wheel: Wheel) -> dict[str, str]:
    return {path: file.sha256 for path, file in wheel.files.items()}


def properties(item: dict[str, Any]) -> dict[str, str]:
    return {entry["name"].removeprefix("wheelmark:"): entry["value"] for entry in item["properties"]}


@pytest.mark.parametrize("target", ["cpu-x86_64", "cpu-aarch64", "cuda-sm90", "rocm-gfx942"])
def test_both_documents_are_valid_canonical_and_closed(tmp_path: Path, target: str) -> None:
    made = make(tmp_path, target)
    for document in (made.document, made.embedded):
        validate(document)
        assert digests.canonical_json(json.loads(document)) == document
    files = hashes(made.wheel)
    assert unexplained_files(read_sbom(made.document), files) == ()
    inside = {
        path: sha256 for path, sha256 in files.items() if not is_record(path) and not is_embedded_sbom(path)
    }
    assert unexplained_files(read_sbom(made.embedded), inside) == ()


def test_the_wheel_is_named_by_digest_purl_licence_and_supplier(gpu: Made) -> None:
    subject = gpu.value["metadata"]["component"]
    assert subject["hashes"] == [{"alg": "SHA-256", "content": gpu.wheel.sha256}]
    assert subject["licenses"][0]["expression"] == "Apache-2.0"
    assert subject["supplier"] == {"name": "Demo maintainers"}
    read = PackageURL.from_string(subject["purl"])
    assert (read.type, read.name, read.version) == ("pypi", "demo-kernels", "0.1.0+sm90")
    assert read.qualifiers == {"file_name": gpu.path.name}
    assert read_sbom(gpu.document).subject.hashes == (gpu.wheel.sha256,)
    assert read_sbom(gpu.embedded).subject.hashes == ()


@pytest.mark.parametrize(
    "given",
    [
        {"name": "torch", "version": "2.13.0+cpu"},
        {"name": "a", "version": "1!2.0", "file": "a-1!2.0+x y-py3-none-any.whl"},
        {"name": "gcc", "version": "12.2.0", "kind": "generic", "subpath": "libstdc++-v3"},
        {"name": "torch", "version": ""},
    ],
)
def test_package_urls_are_read_back_by_another_implementation(given: dict[str, str]) -> None:
    read = PackageURL.from_string(purl(**given))
    assert (read.name, read.version or "") == (given["name"], given["version"])
    assert read.qualifiers.get("file_name", "") == given.get("file", "")
    assert read.subpath == (given.get("subpath") or None)


def test_kernels_say_source_toolchain_and_what_the_objects_hold(gpu: Made) -> None:
    kernel = gpu.component("kernel:demo_sum")
    assert properties(kernel)["source-sha256"] == "4" * 64
    said = {properties(item)["variant"]: properties(item) for item in kernel["components"]}
    assert set(said) == {"fp16", "fp32"}
    assert (
        said["fp16"] | {"arch": "sm90", "registers": "16", "toolkit": "12.8", "min-driver": "570.26"}
        == said["fp16"]
    )
    assert gpu.depends("kernel:demo_sum") == {"tool:triton", "tool:assembler"}
    assert gpu.component("tool:triton")["version"] == "3.7.1"
    assert (gpu.component("tool:assembler")["name"], gpu.component("tool:assembler")["version"]) == (
        "ptxas",
        "12.8.93",
    )


def test_native_code_says_toolchain_and_system_libraries_from_the_bytes(gpu: Made) -> None:
    assert {"tool:gcc", "tool:ld", "compiled-in:torch-headers", "system:glibc"} <= gpu.depends("native")
    assert "pkg:pypi/torch@2.13.0%2Bcpu" in gpu.depends("native")
    assert gpu.component("tool:gcc")["licenses"][0]["expression"] == "GPL-3.0-or-later"
    assert gpu.component("tool:gcc")["scope"] == "excluded"
    system = properties(gpu.component("system:glibc"))
    assert "libc.so.6" in system["needed"]
    assert system["floor"].startswith("GLIBC_2.")
    assert properties(gpu.component("native"))["torch-target-version"] == "0x020a000000000000"


def test_dependencies_come_from_the_lock_with_hashes_and_graph(gpu: Made) -> None:
    torch = gpu.component("pkg:pypi/torch@2.13.0%2Bcpu")
    assert torch["hashes"] == [{"alg": "SHA-256", "content": "b" * 64}]
    assert (torch["supplier"]["name"], torch["scope"]) == ("PyTorch Foundation", "required")
    sympy = gpu.component("pkg:pypi/sympy@1.14.0")
    assert [item["content"] for item in sympy["hashes"]] == ["a" * 64, "b" * 64]
    assert gpu.depends("pkg:pypi/sympy@1.14.0") == {"pkg:pypi/mpmath@1.3.0"}
    assert gpu.depends(torch["bom-ref"]) == {"pkg:pypi/sympy@1.14.0", "pkg:pypi/typing-extensions@4.16.0"}
    assert {torch["bom-ref"], "pkg:pypi/typing-extensions@4.16.0", "native"} <= gpu.depends("wheel")
    # In the lock, and nothing that the wheel requires leads to it.
    assert gpu.component("pkg:pypi/numpy@2.4.6")["scope"] == "optional"
    assert (
        properties(gpu.component("pkg:pypi/typing-extensions@4.16.0"))["marker"] == 'python_version >= "3.10"'
    )
    described = {item.purl for item in read_sbom(gpu.document).components if item.role == "dependency"}
    assert described == {purl(pin.name, pin.version) for pin in read_pins(gpu.lock)}


def test_every_reference_leads_to_a_component(gpu: Made) -> None:
    known = {"wheel", *(item["bom-ref"] for item in gpu.value["components"])}
    assert {item["ref"] for item in gpu.value["dependencies"]} == known
    assert {ref for item in gpu.value["dependencies"] for ref in item["dependsOn"]} <= known


def test_rocm_leaves_torch_to_the_host(tmp_path: Path) -> None:
    made = make(tmp_path, "rocm-gfx942", lock="".join(LOCK.partition("torch==")[:1]))
    torch = made.component("pkg:pypi/torch")
    assert properties(torch)["role"] == "host-provided"
    assert properties(torch)["versions"] == "<2.15,>=2.10"
    assert "pkg:pypi/torch" in made.depends("wheel")


def test_the_lock_changes_the_detached_document_only(tmp_path: Path) -> None:
    first = make(tmp_path / "a", "cpu-x86_64")
    second = make(tmp_path / "b", "cpu-x86_64", lock=LOCK.replace("1.14.0", "1.14.1"))
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.document != second.document


def test_serial_and_time_are_derived(gpu: Made, tmp_path: Path) -> None:
    again = make(tmp_path / "elsewhere", "cuda-sm90")
    assert (again.document, again.embedded) == (gpu.document, gpu.embedded)
    other = make(tmp_path / "other", "cpu-x86_64")
    serials = {
        read_sbom(document).serial
        for document in (gpu.document, gpu.embedded, other.document, other.embedded)
    }
    assert len(serials) == 4
    assert gpu.value["metadata"]["timestamp"] == "1980-01-01T00:00:00Z"


def test_a_description_of_another_build_is_refused(gpu: Made, tmp_path: Path) -> None:
    row = gpu.declaration.row(Target.parse("cuda-sm90"))
    describe = functools.partial(
        describe_wheel, gpu.path, declaration=gpu.declaration, row=row, lock=gpu.lock
    )
    with pytest.raises(BuildError) as caught:
        describe(native=native_library(data=b"another"))
    assert caught.value.reason == "sbom-parts"
    with pytest.raises(BuildError) as caught:
        describe(native=native_library(), kernels=kernels("cuda-sm80"))
    assert caught.value.reason == "sbom-parts"
    with pytest.raises(BuildError) as caught:
        describe_wheel(
            gpu.path,
            declaration=gpu.declaration,
            row=gpu.declaration.row(Target.parse("cpu-x86_64")),
            lock=gpu.lock,
            native=native_library(),
        )
    assert caught.value.reason == "sbom-parts"


def test_a_file_that_no_part_explains_is_refused(gpu: Made) -> None:
    files = {path: gpu.wheel.read(path) for path in gpu.wheel.files}
    row = gpu.declaration.row(Target.parse("cuda-sm90"))
    for extra in ("evil.pth", "other_package/__init__.py"):
        with pytest.raises(BuildError, match=extra) as caught:
            embedded_document(
                {**files, extra: b""}, declaration=gpu.declaration, row=row, native=native_library()
            )
        assert caught.value.reason == "sbom-parts"


def test_a_code_object_that_is_not_there_is_refused(gpu: Made) -> None:
    files = {path: gpu.wheel.read(path) for path in gpu.wheel.files}
    row = gpu.declaration.row(Target.parse("cuda-sm90"))
    dropped = next(path for path in files if path.endswith(".cubin"))
    del files[dropped]
    with pytest.raises(BuildError, match=r"demo_sum") as caught:
        embedded_document(files, declaration=gpu.declaration, row=row, native=native_library())
    assert caught.value.reason == "sbom-parts"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("schema = 2\n", "schema"),
        ("schema = [\n", "TOML"),
        ("schema = 1\n[package]\n", "package"),
        ('schema = 1\n[packages.torch]\nlicence = "MIT"\n', "licence|license"),
        ('schema = 1\n[packages.torch]\nlicense = "Not A Licence"\n', "SPDX"),
        ('schema = 1\n[packages.Torch_Vision]\nlicense = "MIT"\n', "torch-vision"),
        ("schema = 1\n[packages.torch]\nrequires = 1\n", "requires"),
        ("schema = 1\n[packages.torch]\nsupplier = 1\n", "supplier"),
        ("schema = 1\npackages = 1\n", "packages"),
    ],
)
def test_malformed_inputs_are_refused(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "sbom").mkdir()
    (tmp_path / "sbom/components.toml").write_text(text)
    with pytest.raises(ConfigError, match=word) as caught:
        read_inputs(tmp_path)
    assert caught.value.reason == "sbom-inputs"


def test_without_inputs_nothing_is_claimed(tmp_path: Path) -> None:
    assert read_inputs(tmp_path).package("torch").license == ""


def test_this_repository_states_every_locked_package() -> None:
    inputs = read_inputs(ROOT)
    locked = {pin.name for path in ROOT.glob("lockfiles/runtime-*.txt") for pin in read_pins(path)}
    assert locked, "the runtime locks hold no package"
    assert {name for name in locked if not inputs.package(name).license} == set()
    assert {name for name in locked if not inputs.package(name).supplier} == set()
    assert set(inputs.packages) == locked
    stated = tomllib.loads((ROOT / "sbom/components.toml").read_text())["packages"]
    assert {need for item in stated.values() for need in item.get("requires", [])} <= locked


def first_part(value: dict[str, Any]) -> dict[str, Any]:
    return next(dict(item) for item in value["components"] if item["bom-ref"].startswith("package:"))


def in_part(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[dict[str, Any]], object]:
    """A change to the files of the Python package."""
    return lambda value: change(first_part(value)["components"])


FAULTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "schema": lambda value: value["components"][0].update(type="gadget"),
    "hash": lambda value: value["metadata"]["component"]["hashes"][0].update(content="x"),
    "serial": lambda value: value.update(serialNumber="urn:uuid:1"),
    "unknown": lambda value: value.update(colour="green"),
    "reference": lambda value: value["metadata"]["component"].update(
        externalReferences=[{"type": "website"}]
    ),
    "version": lambda value: value.update(specVersion="1.5"),
    "metadata": lambda value: value.pop("metadata"),
    "role": lambda value: value["components"][0].update(properties=[]),
    "reused": lambda value: value["components"].append({**first_part(value), "components": []}),
    "loose": lambda value: value["components"].append(first_part(value)["components"].pop(0)),
    "digest": in_part(lambda files: files[0].update(hashes=[{"alg": "SHA-256", "content": "0" * 64}])),
    "dropped": in_part(lambda files: files.pop(0)),
    "added": in_part(
        lambda files: files.append({**files[0], "name": "evil.pth", "bom-ref": "file:evil.pth"})
    ),
    "twice": in_part(lambda files: files.append(files[0])),
    "unhashed": in_part(lambda files: files[0].pop("hashes")),
}


def spoiled(document: bytes, change: str) -> bytes:
    value = json.loads(document)
    FAULTS[change](value)
    return json.dumps(value).encode()


@pytest.mark.parametrize("change", ["schema", "hash", "serial", "unknown", "reference", "version"])
def test_the_schema_refuses_planted_faults(gpu: Made, change: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(spoiled(gpu.document, change))
    assert caught.value.reason == "sbom-schema"


def test_a_schema_that_is_not_installed_is_named(gpu: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_FILES", ("absent.schema.json",))
    schema._validator.cache_clear()
    with pytest.raises(ToolError) as caught:
        validate(gpu.document)
    assert caught.value.reason == "sbom-schema-missing"
    schema._validator.cache_clear()


@pytest.mark.parametrize("change", ["digest", "dropped", "added"])
def test_the_closure_names_the_file(gpu: Made, change: str) -> None:
    odd = unexplained_files(read_sbom(spoiled(gpu.document, change)), hashes(gpu.wheel))
    assert odd == ("evil.pth" if change == "added" else "demo_kernels/__init__.py",)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("twice", "sbom-twice"),
        ("reused", "sbom-twice"),
        ("loose", "sbom-unexplained"),
        ("unhashed", "sbom-field"),
        ("role", "sbom-field"),
        ("hash", "sbom-field"),
        ("version", "sbom-format"),
        ("metadata", "sbom-field"),
    ],
)
def test_the_reader_refuses_planted_faults(gpu: Made, change: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read_sbom(spoiled(gpu.document, change))
    assert caught.value.reason == reason


def test_an_unlisted_file_of_the_wheel_is_unexplained(gpu: Made) -> None:
    found: Sbom = read_sbom(gpu.document)
    assert unexplained_files(found, {**hashes(gpu.wheel), "evil.pth": "0" * 64}) == ("evil.pth",)
