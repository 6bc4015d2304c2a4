"""The JSON Schema of a policy and the key tables of its reference page, made from the model's fields.

The schema is for editors: it knows types, words and keys. What parts have to fit together is said by the reader
alone (``checks``), and a document that the schema accepts can still be refused.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import inspect
import types
import typing
from pathlib import Path
from typing import Any

from wheelmark.evidence import Level
from wheelmark.fielddocs import field_docs
from wheelmark.targets import known_ids
from wheelmark.verify.policy import model
from wheelmark.verify.policy.checks import ANSWERS
from wheelmark.verify.policy.tables import LARGEST, LONGEST, is_required, keys_of

_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a policy, as editors use it."""
    schema = _table(model.Document)
    version = {"const": model.SCHEMA_VERSION, "description": "Version of this format."}
    schema["properties"] = {"schema": version, **schema["properties"]}
    schema["required"] = ["schema", *schema["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Wheelmark verification policy",
        **schema,
    }


def tables() -> dict[str, str]:
    """Name of each table of the reference page -> Markdown: the keys of a policy's tables, and words with a meaning."""
    hints = typing.get_type_hints(model.Document)
    found = {
        f"[[{name}]]": keys_table(typing.get_args(hints[name])[0])
        for name in keys_of(model.Document)
        if typing.get_origin(hints[name]) is tuple
    }
    return {**found, "kinds": words_table(model.Kind), "levels": words_table(Level)}


def keys_table(kind: type[Any]) -> str:
    """The keys of one table: type, default and meaning."""
    lines = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    described, hints = field_docs(kind), typing.get_type_hints(kind)
    for name, field in keys_of(kind).items():
        meaning = described.get(name, "").replace("``", "`").replace("|", "\\|")
        lines.append(f"| `{name}` | {_type_words(name, hints[name])} | {_default_words(field)} | {meaning} |")
    return "\n".join(lines) + "\n"


def words_table(kind: type[enum.Enum]) -> str:
    """The words of an enum and what each means."""
    described = field_docs(kind)
    lines = ["| word | meaning |", "| --- | --- |"]
    lines += [f"| `{word.value}` | {described.get(word.name, '').replace('``', '`')} |" for word in kind]
    return "\n".join(lines) + "\n"


def _table(kind: type[Any]) -> dict[str, Any]:
    described, hints = field_docs(kind), typing.get_type_hints(kind)
    properties: dict[str, Any] = {}
    for name in keys_of(kind):
        properties[name] = _schema_of(name, hints[name])
        if text := described.get(name):
            properties[name]["description"] = text.replace("``", "`")
    return {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__ or "").replace("``", "`"),
        "additionalProperties": False,
        "properties": properties,
        "required": [name for name, field in keys_of(kind).items() if is_required(field)],
    }


def _schema_of(name: str, hint: Any) -> dict[str, Any]:
    origin = typing.get_origin(hint)
    if origin is types.UnionType:
        (hint,) = (option for option in typing.get_args(hint) if option is not types.NoneType)
    if origin is tuple:
        items = _schema_of(name, typing.get_args(hint)[0])
        whole: dict[str, Any] = {"type": "array", "items": items, "minItems": 1}
        return whole if dataclasses.is_dataclass(typing.get_args(hint)[0]) else {**whole, "uniqueItems": True}
    if origin is collections.abc.Mapping:
        return {
            "type": "object",
            "additionalProperties": _schema_of(name, typing.get_args(hint)[1]),
            "minProperties": 1,
        }
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _table(hint)
    return _scalar(name, hint)


def _scalar(name: str, hint: Any) -> dict[str, Any]:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    text: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": LONGEST}
    by_type: dict[Any, dict[str, Any]] = {
        bool: {"type": "boolean"},
        int: {"type": "integer", "minimum": 1, "maximum": LARGEST},
    }
    by_name: dict[str, dict[str, Any]] = {
        "targets": {"enum": [model.ANY, *known_ids()]},
        "answer": {"enum": list(ANSWERS)},
        "sha256": dict(_DIGEST),
    }
    return by_name.get(name) or by_type.get(hint) or text


def _type_words(name: str, hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is tuple:
        return f"array of {_type_words(name, typing.get_args(hint)[0])}"
    if origin is collections.abc.Mapping:
        return f"table of {_type_words(name, typing.get_args(hint)[1])}"
    if hint is Path or Path in typing.get_args(hint):
        return "path"
    schema = _scalar(name, hint)
    if name == "targets":
        return "target id"
    if "enum" in schema:
        return "one of " + ", ".join(f"`{choice}`" for choice in schema["enum"])
    return "sha256" if "pattern" in schema else str(schema["type"])


def _default_words(field: dataclasses.Field[Any]) -> str:
    if is_required(field):
        return "required"
    default = field.default
    if isinstance(default, enum.Enum):
        return f"`{default.value}`"
    if default == (model.ANY,):
        return f'`["{model.ANY}"]`'
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "none"
