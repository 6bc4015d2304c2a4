"""OpenVEX in in-toto: somebody says that a known vulnerability does not affect an artifact, or is fixed in it.

Format: OpenVEX v0.2.0 (https://github.com/openvex/spec, ``OPENVEX-SPEC.md``) as the predicate of a statement whose
subjects are the artifacts (``ATTESTING.md``). Read strictly, and with less than the format allows, so that nothing is
set aside by what was not understood: ``not_affected`` needs one of the five justifications (an impact statement in
prose is not enough), ``affected`` needs its action statement, unknown members are refused.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import re
from collections.abc import Collection, Mapping
from typing import Any

from wheelmark.attest.fields import Fields, time_text

VEX = "https://openvex.dev/ns/v0.2.0"
_REASON = "vex"
_SHA256 = "sha-256"
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})")
_DOCUMENT = (
    *("@context", "@id", "author", "role", "timestamp", "last_updated", "version", "tooling", "supplier"),
    "statements",
)
_STATEMENT = (
    *("@id", "version", "vulnerability", "timestamp", "last_updated", "products", "status", "supplier"),
    *("status_notes", "justification", "impact_statement", "action_statement", "action_statement_timestamp"),
)
_COMPONENT = ("@id", "identifiers", "hashes")


class Status(enum.Enum):
    """What is said of a vulnerability (OpenVEX, "Status Labels")."""

    NOT_AFFECTED = "not_affected"
    AFFECTED = "affected"
    FIXED = "fixed"
    UNDER_INVESTIGATION = "under_investigation"


class Justification(enum.Enum):
    """Why an artifact is not affected (OpenVEX, "Status Justifications")."""

    COMPONENT_NOT_PRESENT = "component_not_present"
    VULNERABLE_CODE_NOT_PRESENT = "vulnerable_code_not_present"
    NOT_IN_EXECUTE_PATH = "vulnerable_code_not_in_execute_path"
    NOT_CONTROLLED_BY_ADVERSARY = "vulnerable_code_cannot_be_controlled_by_adversary"
    MITIGATIONS_EXIST = "inline_mitigations_already_exist"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Product:
    """What a VEX statement is about, where it narrows its in-toto subjects down."""

    id: str
    sha256: str = ""
    components: tuple[str, ...] = ()
    """Identifiers (package URLs) of the components inside that it speaks of; none: all of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VexStatement:
    """One statement about one vulnerability."""

    vulnerability: str
    """``CVE-…``, ``GHSA-…`` or ``PYSEC-…``."""
    status: Status
    time: dt.datetime
    """By the author's word; only orders the statements of one document."""
    aliases: tuple[str, ...] = ()
    justification: Justification | None = None
    products: tuple[Product, ...] = ()
    """None: every subject of the in-toto statement."""
    action: str = ""
    """What to do, where it is affected."""

    @property
    def sets_aside(self) -> bool:
        """Whether a finding that it speaks of needs no further attention."""
        return self.status in {Status.NOT_AFFECTED, Status.FIXED}

    @property
    def names(self) -> frozenset[str]:
        """Every name of the vulnerability."""
        return frozenset({self.vulnerability, *self.aliases})

    def speaks_of(self, artifact: Collection[str], component: str) -> bool:
        """Whether it is about a component of an artifact, which is a subject of the in-toto statement.

        Args:
            artifact: Its sha256, and those of what holds it by digest.
            component: Its package URL; empty where a finding names none.
        """
        if not self.products:
            return True
        mine = [product for product in self.products if product.sha256 in artifact]
        return any(not product.components or component in product.components for product in mine)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vex:
    """An OpenVEX document."""

    id: str
    author: str
    time: dt.datetime
    statements: tuple[VexStatement, ...]
    version: int = 1

    def as_predicate(self) -> dict[str, Any]:
        """The JSON object that ``read_vex`` reads back."""
        return {
            "@context": VEX,
            "@id": self.id,
            "author": self.author,
            "timestamp": time_text(self.time),
            "version": self.version,
            "statements": [_statement_json(item) for item in self.statements],
        }


def read_vex(predicate: Mapping[str, Any]) -> Vex:
    """Read an OpenVEX predicate.

    Raises:
        InputError: A member is absent, unknown or malformed (reason ``vex``).
    """
    fields = Fields(predicate, what="VEX document", reason=_REASON, known=_DOCUMENT)
    if fields.string("@context") != VEX:
        raise fields.refusal(f"is not of {VEX}")
    time = _time(fields, "timestamp")
    version = predicate.get("version")
    if type(version) is not int or version < 1:
        raise fields.refusal("has no version, a whole number from 1 up")
    statements = tuple(_read_statement(item, time) for item in fields.items("statements"))
    if not statements:
        raise fields.refusal("has no statements")
    return Vex(
        id=fields.string("@id"),
        author=fields.string("author"),
        time=time,
        statements=statements,
        version=version,
    )


def _read_statement(value: Any, inherited: dt.datetime) -> VexStatement:
    fields = Fields(value, what="VEX statement", reason=_REASON, known=_STATEMENT)
    named = fields.inner("vulnerability", ("@id", "name", "description", "aliases"))
    status = _word(fields, Status, fields.string("status"))
    given = fields.string("justification", "")
    justification = _word(fields, Justification, given) if given else None
    if (status is Status.NOT_AFFECTED) != (justification is not None):
        raise fields.refusal("is not_affected without a justification, or has one and is not")
    action = fields.string("action_statement", "")
    if status is Status.AFFECTED and not action:
        raise fields.refusal("is affected without an action statement")
    products = fields.items("products")
    if "products" in value and not products:
        raise fields.refusal("has a list of products with nothing in it")
    # An inner time goes before the document's; the later of two before the earlier (OpenVEX, "Inheritance Model").
    times = [_time(fields, name) for name in ("timestamp", "last_updated") if name in value]
    return VexStatement(
        vulnerability=named.string("name"),
        aliases=named.strings("aliases"),
        status=status,
        justification=justification,
        time=max(times, default=inherited),
        products=tuple(_read_product(item) for item in products),
        action=action,
    )


def _read_product(value: Any) -> Product:
    fields = Fields(value, what="VEX product", reason=_REASON, known=(*_COMPONENT, "subcomponents"))
    hashes = Fields(fields.mapping("hashes"), what="VEX product: hashes", reason=_REASON)
    inside = [
        Fields(item, what="VEX subcomponent", reason=_REASON, known=_COMPONENT)
        for item in fields.items("subcomponents")
    ]
    return Product(
        id=fields.string("@id", ""),
        sha256=hashes.string(_SHA256, ""),
        components=tuple(item.string("@id") for item in inside),
    )


def _word(fields: Fields, words: type[Any], text: str) -> Any:
    try:
        return words(text)
    except ValueError as error:
        raise fields.refusal(f"has an unknown word {text[:80]!r}") from error


def _time(fields: Fields, name: str) -> dt.datetime:
    """RFC 3339 with any offset; Go writes nanoseconds, of which microseconds are kept."""
    match = _TIME.fullmatch(fields.string(name))
    try:
        if match is None:
            raise ValueError(name)  # noqa: TRY301 - one place turns it into our error
        seconds, fraction, zone = match.groups(default="")
        return dt.datetime.fromisoformat(f"{seconds}{fraction[:7]}{zone}")
    except ValueError as error:
        raise fields.refusal(f"has a {name!r} that is no RFC 3339 time") from error


def _statement_json(item: VexStatement) -> dict[str, Any]:
    vulnerability: dict[str, Any] = {"name": item.vulnerability}
    if item.aliases:
        vulnerability["aliases"] = list(item.aliases)
    value: dict[str, Any] = {
        "vulnerability": vulnerability,
        "timestamp": time_text(item.time),
        "status": item.status.value,
    }
    if item.justification is not None:
        value["justification"] = item.justification.value
    if item.action:
        value["action_statement"] = item.action
    if item.products:
        value["products"] = [_product_json(product) for product in item.products]
    return value


def _product_json(product: Product) -> dict[str, Any]:
    value: dict[str, Any] = {"@id": product.id} if product.id else {}
    if product.sha256:
        value["hashes"] = {_SHA256: product.sha256}
    if product.components:
        value["subcomponents"] = [{"@id": name} for name in product.components]
    return value
