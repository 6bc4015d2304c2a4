"""The two CycloneDX 1.6 documents of a wheel, deterministic to the byte.

The embedded one (PEP 770) says what went in: it is made before the wheel closes, covers every file but itself and
RECORD, and does not name the runtime lock, so that a new lock does not change the wheel. The detached one is
made from the finished bytes: it covers all files, names the wheel by digest, and has the locked dependencies.

Serial numbers are UUIDs (version 5) of what is described; the time is the zip epoch, as in the wheel; the bytes are
RFC 8785 JSON.
"""

from __future__ import annotations

import email.parser
import email.policy
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

import wheelmark
from wheelmark import digests
from wheelmark.binaries import kernelmanifest
from wheelmark.binaries.kernelmanifest import KernelManifest, read_kernel_manifest
from wheelmark.binaries.wheel import read_wheel
from wheelmark.build.native import NativeLibrary
from wheelmark.build.wheel import wheel_name, wheel_version
from wheelmark.config import Declaration, TargetRow
from wheelmark.errors import BuildError, InputError
from wheelmark.packages.pins import Pin, read_pins
from wheelmark.sbom import components
from wheelmark.sbom.components import Json, component
from wheelmark.sbom.inputs import Facts, Inputs, license_expression, read_inputs

TIMESTAMP = "1980-01-01T00:00:00Z"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://wheelmark.dev/sbom")
_WHEEL = "wheel"


class CompiledKernels(Protocol):
    """What is compared of a target's compiled kernels."""

    @property
    def manifest(self) -> KernelManifest:
        """The kernel manifest that went into the wheel."""


def embedded_document(
    files: Mapping[str, bytes], *, declaration: Declaration, row: TargetRow, native: NativeLibrary
) -> bytes:
    """The document that goes into a wheel.

    Args:
        files: Path in the wheel -> bytes, of all files but RECORD and this document.
        declaration: The project.
        row: The target's row.
        native: The native library that is among ``files``.

    Raises:
        BuildError: A file belongs to no component, or library and files do not belong together (``sbom-parts``).
        ConfigError: A hand-kept input is malformed (``sbom-inputs``).
        InputError: The native library or the kernel manifest is malformed.
    """
    listing = "".join(f"{digests.sha256(data)}  {path}\n" for path, data in sorted(files.items()))
    document = _Document(declaration, row, native, dict(files))
    return document.as_bytes(seed=f"embedded:{digests.sha256(listing.encode())}", hashes=[], pins=())


def describe_wheel(
    wheel: Path,
    *,
    declaration: Declaration,
    row: TargetRow,
    lock: Path,
    native: NativeLibrary,
    kernels: CompiledKernels | None = None,
) -> bytes:
    """The document about a finished wheel, from its bytes.

    Args:
        wheel: The wheel.
        declaration: The project.
        row: The target's row.
        lock: The runtime lock of the target.
        native: How the library in it was made; its bytes must be those in the wheel.
        kernels: The code objects that went in, if any; their manifest must be the wheel's.

    Raises:
        BuildError: As ``embedded_document``.
        LockError: The lock cannot be read.
        InputError: The wheel, its library or its kernel manifest is malformed.
    """
    found = read_wheel(wheel)
    document = _Document(declaration, row, native, {path: found.read(path) for path in found.files})
    if kernels is not None and (
        document.manifest is None or document.manifest.as_bytes() != kernels.manifest.as_bytes()
    ):
        raise _parts(f"{wheel.name} has not the kernel manifest that was compiled")
    if found.file_name != wheel_name(declaration, row):
        raise _parts(f"{found.file_name} is not the wheel of {row.target}")
    return document.as_bytes(
        seed=f"wheel:{found.sha256}", hashes=[components.sha256_hash(found.sha256)], pins=read_pins(lock)
    )


class _Document:
    """One document in the making: the wheel's files, sorted to the parts that explain them."""

    def __init__(
        self, declaration: Declaration, row: TargetRow, native: NativeLibrary, files: dict[str, bytes]
    ) -> None:
        self.declaration, self.row, self.native, self.files = declaration, row, native, files
        self.inputs = read_inputs(declaration.root)
        project = declaration.project
        self.version = str(wheel_version(declaration, row))
        self.facts = Facts(
            supplier=project.supplier, license=license_expression(project.license, "project.license")
        )
        self.folder = f"{project.import_name}/{kernelmanifest.FOLDER}"
        manifest = files.get(f"{self.folder}/{kernelmanifest.NAME}")
        self.manifest = None if manifest is None else read_kernel_manifest(manifest)

    def as_bytes(self, *, seed: str, hashes: list[Json], pins: Iterable[Pin]) -> bytes:
        """The document; ``seed`` decides its serial number."""
        pins = tuple(pins)
        parts = self._first_party()
        made_with = components.native_parts(self.native.tools, self.inputs)
        if self.manifest is not None:
            made_with += components.kernel_toolchain(self.manifest.toolchain, self.inputs)
        system = components.system_libraries(self.native.data, self.inputs)
        direct = self._direct_requirements()
        graph = _reached({pin.name for pin in pins}, direct, self.inputs)
        needed = [
            components.dependency_component(pin, self.inputs, reached=pin.name in graph) for pin in pins
        ]
        locked = {pin.name for pin in pins}
        if pins:
            needed += [
                components.host_component(name, versions, self.inputs)
                for name, versions in direct.items()
                if name not in locked
            ]
        listed = sorted([*parts, *made_with, *system, *needed], key=lambda item: str(item["bom-ref"]))
        value = {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, seed)}",
            "version": 1,
            "metadata": self._metadata(hashes),
            "components": listed,
            "dependencies": self._dependencies(parts, made_with, system, needed, direct),
            "compositions": [
                {
                    "aggregate": "complete",
                    "assemblies": [_WHEEL, *sorted(str(part["bom-ref"]) for part in parts)],
                }
            ],
        }
        return digests.canonical_json(value)

    def _metadata(self, hashes: list[Json]) -> Json:
        project = self.declaration.project
        name = wheel_name(self.declaration, self.row)
        subject = component(
            "library",
            "wheel",
            _WHEEL,
            canonicalize_name(project.name),
            facts=self.facts,
            version=self.version,
            description=project.summary,
            hashes=hashes,
            purl=components.purl(canonicalize_name(project.name), self.version, file=name),
            externalReferences=[{"type": "website", "url": project.homepage}] if project.homepage else None,
            properties=[
                ("target", str(self.row.target)),
                ("file", name),
                ("torch-versions", self.row.torch),
                ("torch-build", self.row.torch_build.value),
            ],
        )
        tool = {"type": "application", "name": "wheelmark", "version": wheelmark.__version__}
        return {
            "timestamp": TIMESTAMP,
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [tool]},
            "component": subject,
            "supplier": {"name": project.supplier},
        }

    def _first_party(self) -> list[Json]:
        """The wheel's own parts; every file stands in exactly one of them."""
        left = dict(self.files)
        if left.pop(self.native.path, None) != self.native.data:
            raise _parts(f"{self.native.path} in the wheel is not the native library that was built")
        parts = [
            components.native_component(
                self.native.path,
                self.native.data,
                self.native.tools,
                flags=self.native.flags,
                version=self.version,
                facts=self.facts,
            )
        ]
        for kernel in self.manifest.kernels if self.manifest else ():
            for variant in kernel.variants:
                if left.pop(f"{self.folder}/{variant.object.file}", None) is None:
                    raise _parts(f"the wheel has no code object {variant.object.file}")
            parts.append(
                components.kernel_component(
                    kernel, self.folder, self.files, version=self.version, facts=self.facts
                )
            )
        package = self.declaration.project.import_name
        sources = {path: data for path, data in left.items() if path.startswith(f"{package}/")}
        described = {path: data for path, data in left.items() if ".dist-info/" in path}
        if unexplained := sorted(set(left) - set(sources) - set(described)):
            raise _parts(f"no component explains {unexplained[0]}")
        parts.append(
            components.file_group(
                "python-package",
                f"package:{package}",
                package,
                sources,
                kind="library",
                version=self.version,
                facts=self.facts,
            )
        )
        parts.append(
            components.file_group(
                "wheel-metadata",
                "dist-info",
                "dist-info",
                described,
                kind="data",
                version=self.version,
                facts=self.facts,
            )
        )
        return parts

    def _direct_requirements(self) -> dict[str, str]:
        """Normalized name -> version range, from METADATA's bytes; torch also where it is an extra (ROCm)."""
        paths = [path for path in self.files if path.endswith(".dist-info/METADATA")]
        if len(paths) != 1:
            raise _parts("the wheel has not one METADATA")
        message = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(self.files[paths[0]])
        try:
            requirements = [Requirement(str(text)) for text in message.get_all("Requires-Dist", [])]
        except InvalidRequirement as error:
            raise InputError(f"METADATA: {error}", reason="wheel-metadata") from error
        return {canonicalize_name(item.name): str(item.specifier) for item in requirements}

    def _dependencies(
        self,
        parts: list[Json],
        made_with: list[Json],
        system: list[Json],
        needed: list[Json],
        direct: Mapping[str, str],
    ) -> list[Json]:
        refs: dict[str, set[str]] = {}
        for item in needed:
            refs.setdefault(str(item["name"]), set()).add(str(item["bom-ref"]))
        own = [str(part["bom-ref"]) for part in parts]
        tools = {str(item["bom-ref"]) for item in made_with}
        kernel_tools = tools & {"tool:triton", "tool:assembler"}
        edges: dict[str, set[str]] = {_WHEEL: set(own).union(*(refs.get(name, set()) for name in direct))}
        for ref in own:
            edges[ref] = set(kernel_tools) if ref.startswith("kernel:") else set()
        edges["native"] = (tools - kernel_tools) | {str(item["bom-ref"]) for item in system}
        edges["native"] |= refs.get("torch", set())
        for name, found in refs.items():
            needs = [refs.get(other, set()) for other in self.inputs.package(name).requires]
            edges |= {ref: set().union(*needs) for ref in found}
        for ref in (*tools, *(str(item["bom-ref"]) for item in system)):
            edges.setdefault(ref, set())
        return [{"ref": ref, "dependsOn": sorted(found)} for ref, found in sorted(edges.items())]


def _reached(locked: set[str], direct: Iterable[str], inputs: Inputs) -> set[str]:
    """Locked packages that a direct requirement leads to."""
    waiting, reached = list(direct), set[str]()
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += inputs.package(name).requires
    return reached & locked


def _parts(what: str) -> BuildError:
    return BuildError(what, cause="the description and the bytes are of two builds", reason="sbom-parts")
