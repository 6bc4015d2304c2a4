"""CycloneDX documents against the CycloneDX 1.6 JSON schema, in milliseconds.

The schema files are those that ``cyclonedx-python-lib`` brings; its own validator needs seconds for documents of
this size, ``jsonschema-rs`` two milliseconds.
"""

from __future__ import annotations

import functools
import importlib.resources
import json

import jsonschema_rs

from wheelmark import strictjson
from wheelmark.errors import InputError, ToolError

_FILES = ("bom-1.6.SNAPSHOT.schema.json", "spdx.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json")
_BASE = "http://cyclonedx.org/schema/"
_SHOWN = 300


def validate(document: bytes) -> None:
    """Check a document against the CycloneDX 1.6 schema, string formats included.

    Raises:
        InputError: It is not valid (``sbom-schema``), or a ``json-…`` code of ``strictjson``.
        ToolError: The schema is not installed (``sbom-schema-missing``).
    """
    value = strictjson.load_object(document, what="SBOM")
    if value.get("specVersion") != "1.6":
        raise InputError(
            f"the SBOM has CycloneDX version {value.get('specVersion')!r}; this is 1.6's schema",
            reason="sbom-schema",
        )
    for error in _validator().iter_errors(value):
        where = "/".join(str(part) for part in error.instance_path)
        raise InputError(
            f"the SBOM is not valid CycloneDX 1.6 at /{where}: {error.message[:_SHOWN]}", reason="sbom-schema"
        )


@functools.cache
def _validator() -> jsonschema_rs.Validator:
    try:
        folder = importlib.resources.files("cyclonedx.schema") / "_res"
        schemas = [json.loads((folder / name).read_bytes()) for name in _FILES]
    except (ModuleNotFoundError, OSError) as error:
        raise ToolError(
            "the CycloneDX 1.6 schema is not installed",
            cause=str(error),
            fix="pip install 'wheelmark[build]'",
            reason="sbom-schema-missing",
        ) from error
    others = [(_BASE + name, schema) for name, schema in zip(_FILES[1:], schemas[1:], strict=True)]
    registry = jsonschema_rs.Registry(others, draft=jsonschema_rs.Draft7)
    return jsonschema_rs.Draft7Validator(schemas[0], registry=registry, validate_formats=True)
