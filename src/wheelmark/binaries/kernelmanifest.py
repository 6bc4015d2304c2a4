"""The kernel manifest: what the code objects in a wheel are, and when each may be launched.

It is the boundary between the pipeline, which writes it, and a payload's launcher, which reads it; in a wheel
it stands at ``<import_name>/code_objects/manifest.json`` with the objects beside it. The format is
``https://wheelmark.dev/kernel-manifest/v1``: strict JSON, unknown members refused, canonical bytes
(RFC 8785), so that equal manifests have equal digests.

Refusals are ``InputError`` with reason ``kernel-manifest``, or a ``json-…`` code of ``strictjson``.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from wheelmark import digests, strictjson
from wheelmark.errors import ConfigError, InputError
from wheelmark.targets import Target

SCHEMA = "https://wheelmark.dev/kernel-manifest/v1"
NAME = "manifest.json"
FOLDER = "code_objects"
"""The folder of a package that holds the manifest and its objects."""

_LIMITS = strictjson.Limits(size=32 << 20, depth=12)
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_SYMBOL = re.compile(r"[A-Za-z_$.][A-Za-z0-9_$.]{0,4095}")
_SUFFIX = re.compile(r"[af]")
_TWO_NUMBERS = re.compile(r"[0-9]+\.[0-9]+")
_DRIVER = re.compile(r"[0-9]+(\.[0-9]+)*")
_LARGEST = (1 << 53) - 1

_Item = TypeVar("_Item")


class ParameterKind(enum.Enum):
    """How an argument is passed to a kernel."""

    POINTER = "pointer"
    """A device address, 8 bytes."""
    SCALAR = "scalar"
    """A number, by value, in its own width."""


class Relation(enum.Enum):
    """What an assumption says of its argument."""

    DTYPE = "dtype"
    """Its dtype is ``value`` (Triton's word: ``fp16``, ``i64``)."""
    DIVISIBLE_BY = "divisible_by"
    """The address or number is a multiple of ``value``."""
    NONE = "none"
    """The argument is not given; there is no value."""
    EQUAL = "equal"
    """The argument is exactly ``value``."""
    FITS = "fits"
    """The number lies in the range of the integer dtype ``value``."""
    BYTES_BELOW = "bytes_below"
    """The tensor's storage, as reached from the pointer, has fewer bytes than ``value``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """One argument that the launcher passes, in launch order."""

    name: str
    kind: ParameterKind
    dtype: str
    """Of the number, or of what the pointer points to: ``fp32``, ``i64``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assumption:
    """What has to hold of one argument for a variant to be right."""

    argument: str
    relation: Relation
    value: str | int | float | bool | None = None

    def as_json(self) -> dict[str, Any]:
        """The member of ``assumes``; without ``value`` for ``none``."""
        base = {"argument": self.argument, "is": self.relation.value}
        return base if self.relation is Relation.NONE else {**base, "value": self.value}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectFile:
    """A code object beside the manifest."""

    file: str
    """File name, without a folder."""
    sha256: str
    size: int
    """Bytes; never zero."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """One compiled form of a kernel: its object, what it needs, and what it assumes.

    Registers, spills, static shared memory, toolkit and arch repeat what the object's bytes say;
    ``kernelobjects.check_objects`` compares them. ``shared``, ``global_scratch`` and ``num_warps`` stand in no object: only
    the compiler knew them.
    """

    name: str
    object: ObjectFile
    entry: str
    """The kernel's symbol in the object."""
    arch: str
    """``sm90``, ``gfx942``."""
    arch_suffix: str
    """``a`` (exactly this chip), ``f`` (its family) or empty."""
    num_warps: int
    warp_size: int
    """Threads."""
    shared: int
    """Bytes of dynamic shared memory to pass at launch; static bytes come on top."""
    static_shared: int
    """Bytes of shared memory or LDS that the object itself reserves for a block."""
    registers: int
    """Registers a thread: as ptxas counts them, or vector and accumulation registers together."""
    spill_stores: int
    """CUDA: store instructions to local memory. ROCm: spilled VGPRs + SGPRs."""
    spill_loads: int
    """CUDA: load instructions from local memory. ROCm: zero (the object counts registers)."""
    code_size: int
    """Bytes of the entry's machine code."""
    ptx_version: str
    """``8.7``; empty for ROCm."""
    toolkit: str
    """CUDA toolkit of the assembler, ``12.8``; empty for ROCm."""
    min_driver: str
    """First Linux driver that can load it; empty where nothing is known."""
    min_driver_basis: str
    """What that was computed from, with the word ``inferred`` where it is."""
    global_scratch: int
    """Bytes of global scratch memory a launch needs."""
    profile_scratch: int
    scratch_pointers: int
    """Null or scratch pointers that follow ``parameters`` at launch."""
    parameters: tuple[Parameter, ...]
    constants: Mapping[str, str | int | float | bool | None]
    """Values of the compile-time arguments."""
    assumes: tuple[Assumption, ...]
    options: Mapping[str, Any]
    """Compiler options that decide the code, as JSON values."""

    def as_json(self) -> dict[str, Any]:
        """The member of ``variants``."""
        value = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in {"object", "parameters", "assumes", "constants", "options"}
        }
        return {
            **value,
            "object": dataclasses.asdict(self.object),
            "parameters": [
                {"name": item.name, "kind": item.kind.value, "dtype": item.dtype} for item in self.parameters
            ],
            "constants": dict(self.constants),
            "assumes": [item.as_json() for item in self.assumes],
            "options": dict(self.options),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernel:
    """One declared kernel and all variants of it for the target."""

    name: str
    source_digest: str
    """sha256 over the kernel's source and all that it calls."""
    variants: tuple[Variant, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Toolchain:
    """What compiled the objects."""

    triton: str
    assembler: str
    """``ptxas 12.8.93``, ``llvm 22``."""
    digest: str
    """sha256 over the compiler's files."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelManifest:
    """The whole of a kernel manifest.

    Raises:
        InputError: A kernel, a variant of one kernel, or an object file stands twice, or a variant's object
            has not the file suffix of the target.
    """

    target: Target
    toolchain: Toolchain
    kernels: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        _unique((kernel.name for kernel in self.kernels), "kernel")
        for kernel in self.kernels:
            _unique((variant.name for variant in kernel.variants), f"variant of {kernel.name}")
            if not kernel.variants:
                _refuse(f"kernel {kernel.name} has no variant")
        _unique((variant.object.file for _, variant in self.variants()), "object file")
        if not self.target.is_gpu:
            _refuse(f"{self.target} has no code objects")
        for _, variant in self.variants():
            if not variant.object.file.endswith("." + self.target.code_object):
                _refuse(f"object {variant.object.file} is not a .{self.target.code_object} file")

    def variants(self) -> Iterable[tuple[Kernel, Variant]]:
        """Every variant with its kernel, in manifest order."""
        for kernel in self.kernels:
            for variant in kernel.variants:
                yield kernel, variant

    def as_bytes(self) -> bytes:
        """Canonical JSON, the bytes of ``manifest.json``."""
        return digests.canonical_json(
            {
                "schema": SCHEMA,
                "target": str(self.target),
                "toolchain": dataclasses.asdict(self.toolchain),
                "kernels": [
                    {
                        "name": kernel.name,
                        "source_digest": kernel.source_digest,
                        "variants": [variant.as_json() for variant in kernel.variants],
                    }
                    for kernel in self.kernels
                ],
            }
        )


def read_kernel_manifest(data: bytes) -> KernelManifest:
    """Read a kernel manifest; the bytes must be the canonical ones.

    Raises:
        InputError: Not a kernel manifest of this schema, a member is absent, unknown or malformed, or the
            bytes are not canonical.
    """
    value = strictjson.load_object(data, what="kernel manifest", limits=_LIMITS)
    if value.get("schema") != SCHEMA:
        _refuse(f"schema is {str(value.get('schema'))[:80]!r}; known is {SCHEMA}")
    _members(value, ("schema", "target", "toolchain", "kernels"), "the manifest")
    try:
        target = Target.parse(_text(value["target"], "target"))
    except ConfigError as error:
        raise InputError(f"kernel manifest: {error.what}", reason="kernel-manifest") from error
    toolchain = _members(value["toolchain"], ("triton", "assembler", "digest"), "toolchain")
    manifest = KernelManifest(
        target=target,
        toolchain=Toolchain(
            triton=_text(toolchain["triton"], "toolchain.triton"),
            assembler=_text(toolchain["assembler"], "toolchain.assembler"),
            digest=_digest(toolchain["digest"], "toolchain.digest"),
        ),
        kernels=_list(value["kernels"], "kernels", _kernel),
    )
    if manifest.as_bytes() != data:
        _refuse("it is not in canonical form")
    return manifest


def _kernel(value: Any, where: str) -> Kernel:
    _members(value, ("name", "source_digest", "variants"), where)
    return Kernel(
        name=_match(_LABEL, value["name"], f"{where}.name"),
        source_digest=_digest(value["source_digest"], f"{where}.source_digest"),
        variants=_list(value["variants"], f"{where}.variants", _variant),
    )


_VARIANT_FIELDS = tuple(field.name for field in dataclasses.fields(Variant))


def _variant(value: Any, where: str) -> Variant:
    _members(value, _VARIANT_FIELDS, where)
    item = _members(value["object"], ("file", "sha256", "size"), f"{where}.object")

    def count(name: str, least: int = 0) -> int:
        return _count(value[name], f"{where}.{name}", least)

    def optional(name: str, pattern: re.Pattern[str]) -> str:
        return "" if value[name] == "" else _match(pattern, value[name], f"{where}.{name}")

    return Variant(
        name=_match(_LABEL, value["name"], f"{where}.name"),
        object=ObjectFile(
            file=_match(_FILE, item["file"], f"{where}.object.file"),
            sha256=_digest(item["sha256"], f"{where}.object.sha256"),
            size=_count(item["size"], f"{where}.object.size", 1),
        ),
        entry=_match(_SYMBOL, value["entry"], f"{where}.entry"),
        arch=_match(_LABEL, value["arch"], f"{where}.arch"),
        arch_suffix=optional("arch_suffix", _SUFFIX),
        num_warps=count("num_warps", 1),
        warp_size=count("warp_size", 1),
        shared=count("shared"),
        static_shared=count("static_shared"),
        registers=count("registers"),
        spill_stores=count("spill_stores"),
        spill_loads=count("spill_loads"),
        code_size=count("code_size", 1),
        ptx_version=optional("ptx_version", _TWO_NUMBERS),
        toolkit=optional("toolkit", _TWO_NUMBERS),
        min_driver=optional("min_driver", _DRIVER),
        min_driver_basis=_text(value["min_driver_basis"], f"{where}.min_driver_basis", empty=True),
        global_scratch=count("global_scratch"),
        profile_scratch=count("profile_scratch"),
        scratch_pointers=count("scratch_pointers"),
        parameters=_list(value["parameters"], f"{where}.parameters", _parameter),
        constants={
            _text(name, f"{where}.constants"): _scalar(constant, f"{where}.constants")
            for name, constant in _object(value["constants"], f"{where}.constants").items()
        },
        assumes=_list(value["assumes"], f"{where}.assumes", _assumption),
        options=_object(value["options"], f"{where}.options"),
    )


def _parameter(value: Any, where: str) -> Parameter:
    _members(value, ("name", "kind", "dtype"), where)
    kinds = {kind.value: kind for kind in ParameterKind}
    kind = value["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        _refuse(f"{where}.kind is none of {', '.join(kinds)}")
    return Parameter(
        name=_text(value["name"], f"{where}.name"),
        kind=kinds[kind],
        dtype=_text(value["dtype"], f"{where}.dtype"),
    )


def _assumption(value: Any, where: str) -> Assumption:
    relations = {relation.value: relation for relation in Relation}
    word = _object(value, where).get("is")
    if not isinstance(word, str) or word not in relations:
        _refuse(f"{where}.is is none of {', '.join(relations)}")
    relation = relations[word]
    names = ("argument", "is") if relation is Relation.NONE else ("argument", "is", "value")
    _members(value, names, where)
    argument = _text(value["argument"], f"{where}.argument")
    if relation is Relation.NONE:
        return Assumption(argument=argument, relation=relation)
    given = value["value"]
    if relation in {Relation.DTYPE, Relation.FITS}:
        return Assumption(argument=argument, relation=relation, value=_text(given, f"{where}.value"))
    if relation in {Relation.DIVISIBLE_BY, Relation.BYTES_BELOW}:
        return Assumption(argument=argument, relation=relation, value=_count(given, f"{where}.value", 1))
    return Assumption(argument=argument, relation=relation, value=_scalar(given, f"{where}.value"))


def _refuse(text: str) -> NoReturn:
    raise InputError(f"kernel manifest: {text}", reason="kernel-manifest")


def _unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            _refuse(f"{what} {name} stands twice")
        seen.add(name)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(f"{where} is not an object")
    return value


def _members(value: Any, names: tuple[str, ...], where: str) -> dict[str, Any]:
    members = _object(value, where)
    for name in names:
        if name not in members:
            _refuse(f"{where} has no {name}")
    for name in members:
        if name not in names:
            _refuse(f"{where} has an unknown member {name[:80]!r}")
    return members


def _list(value: Any, where: str, read: Callable[[Any, str], _Item]) -> tuple[_Item, ...]:
    if not isinstance(value, list):
        _refuse(f"{where} is not an array")
    return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(value))


def _text(value: Any, where: str, *, empty: bool = False) -> str:
    if not isinstance(value, str) or (not value and not empty):
        _refuse(f"{where} is not a string with text")
    return value


def _match(pattern: re.Pattern[str], value: Any, where: str) -> str:
    text = _text(value, where)
    if pattern.fullmatch(text) is None:
        _refuse(f"{where} is malformed: {text[:80]!r}")
    return text


def _digest(value: Any, where: str) -> str:
    text = _text(value, where)
    if not digests.is_sha256(text):
        _refuse(f"{where} is no sha256")
    return text


def _count(value: Any, where: str, least: int) -> int:
    # bool is an int in Python; `true` is no number of bytes.
    if type(value) is not int or not least <= value <= _LARGEST:
        _refuse(f"{where} is not an integer of at least {least}")
    return value


def _scalar(value: Any, where: str) -> str | int | float | bool | None:
    if value is not None and not isinstance(value, str | int | float | bool):
        _refuse(f"{where} holds a value that is not a scalar")
    return value
