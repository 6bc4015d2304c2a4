"""Reading a policy from TOML into its document: strictly, with a suggestion for each unknown key.

A policy that names no root, no signer, no requirement, or a requirement without evidence accepts nothing and is
a configuration error, not a policy; so is one whose parts contradict each other (``checks``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from wheelmark import stricttoml
from wheelmark.errors import InputError
from wheelmark.verify.policy import checks
from wheelmark.verify.policy.model import (
    SCHEMA_VERSION,
    Denial,
    Document,
    Example,
    Requirement,
    RootRule,
    Signer,
)
from wheelmark.verify.policy.tables import Said, Tables

MAX_BYTES = 1 << 18
"""Bytes of a policy."""
_MAX_TABLES = 1000
_KEYS = ("schema", "development", "root", "signer", "require", "deny", "example")
_Kind = TypeVar("_Kind")


def read_document(data: bytes, *, source: str) -> Document:
    """A policy's document from its bytes; no other file is looked at.

    Args:
        data: TOML.
        source: How messages name it.

    Raises:
        ConfigError: ``policy-syntax``, ``policy-version``, ``policy-key``, ``policy-value``, ``policy-empty``,
            ``policy-contradiction`` or ``policy-development``.
    """
    tables = Tables(source)
    try:
        document = stricttoml.loads(data, limit=MAX_BYTES)
    except InputError as error:
        raise tables.refuse(error.what, "policy-syntax") from error
    tables.known(document, _KEYS, "the policy")
    schema = document.get("schema")
    if type(schema) is not int or schema != SCHEMA_VERSION:
        raise tables.refuse(
            f"has schema {schema!r:.80}; this verifier reads {SCHEMA_VERSION}", "policy-version"
        )
    development = document.get("development", False)
    if not isinstance(development, bool):
        raise tables.refuse("development is not true or false", "policy-value")
    roots = _each(tables, document, RootRule, "root")
    signers = _each(tables, document, Signer, "signer")
    requirements = _each(tables, document, Requirement, "require")
    denials = _each(tables, document, Denial, "deny")
    examples = _each(tables, document, Example, "example")
    for name, found in (("root", roots), ("signer", signers), ("require", requirements)):
        if not found:
            raise tables.refuse(f"has no [[{name}]]", "policy-empty")
    checks.check_roots(tables, roots, signers, development=development)
    checks.check_signers(tables, roots, signers)
    checks.check_requirements(tables, requirements, signers)
    checks.check_denials(tables, denials)
    checks.check_examples(tables, examples)
    return Document(
        development=development,
        root=tuple(item.value for item in roots),
        signer=tuple(item.value for item in signers),
        require=tuple(item.value for item in requirements),
        deny=tuple(item.value for item in denials),
        example=tuple(item.value for item in examples),
    )


def _each(
    tables: Tables, document: Mapping[str, Any], kind: type[_Kind], name: str
) -> tuple[Said[_Kind], ...]:
    found = tables.array(document, name)
    if len(found) > _MAX_TABLES:
        raise tables.refuse(f"has {len(found):,} [[{name}]]; the limit is {_MAX_TABLES:,}", "policy-syntax")
    return tuple(tables.read(kind, table, f"{name}[{index}]") for index, table in enumerate(found))
