"""TOML tables into the model's dataclasses: typed by the fields alone, unknown keys refused with a suggestion.

What is written has to say something: an empty string, an empty array and the number 0 are refused, since each
of them could be read as "none" by one person and as "any" by another. What is not meant is left out.
"""

from __future__ import annotations

import collections
import dataclasses
import difflib
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from wheelmark.errors import ConfigError

NOT_KEYS = frozenset({"key_id"})
"""Fields of the model that the loader fills in."""
LONGEST = 4096
"""Characters of a string."""
LARGEST = 36_500
"""Greatest number: a hundred years in days."""
_Kind = TypeVar("_Kind")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Said(Generic[_Kind]):
    """A table that was read, and which of its keys the file holds."""

    value: _Kind
    keys: frozenset[str]


class Tables:
    """Reads the tables of one policy; every refusal names the policy.

    Args:
        source: How messages name the policy.
    """

    def __init__(self, source: str) -> None:
        self._source = source

    def refuse(self, text: str, reason: str, *, cause: str = "", fix: str = "") -> ConfigError:
        """The error to raise."""
        return ConfigError(
            f"policy {self._source}: {text}",
            cause=cause,
            fix=fix or "see docs/reference/policy.md",
            reason=reason,
        )

    def known(self, table: Mapping[str, Any], names: Sequence[str], where: str) -> None:
        """Refuse a key that is not among ``names`` (``policy-key``)."""
        for key in table:
            if key not in names:
                near = difflib.get_close_matches(key, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
                raise self.refuse(f"{where} has an unknown key {key!r:.80}", "policy-key", fix=hint)

    def array(self, document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
        """The array of tables ``[[name]]``; empty where the file has none."""
        value = document.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.refuse(f"[[{name}]] is not an array of tables", "policy-value")
        return value

    def read(self, kind: type[_Kind], table: Mapping[str, Any], where: str) -> Said[_Kind]:
        """One table as a dataclass of the model.

        Args:
            kind: The dataclass.
            table: What TOML made of the table.
            where: How messages name it.

        Raises:
            ConfigError: ``policy-key``, ``policy-value`` or ``policy-empty``.
        """
        fields = keys_of(kind)
        self.known(table, list(fields), where)
        hints = typing.get_type_hints(kind)
        values: dict[str, Any] = {}
        for name, field in fields.items():
            if name in table:
                values[name] = self._value(hints[name], table[name], f"{where}: {name}")
            elif is_required(field):
                many = typing.get_origin(hints[name]) is tuple
                raise self.refuse(
                    f"{where} needs the key {name!r}", "policy-empty" if many else "policy-value"
                )
        return Said(value=kind(**values), keys=frozenset(values))

    def _value(self, hint: Any, value: Any, where: str) -> Any:
        origin = typing.get_origin(hint)
        if origin is types.UnionType:
            (hint,) = (option for option in typing.get_args(hint) if option is not types.NoneType)
        if origin is tuple:
            return self._values(typing.get_args(hint)[0], value, where)
        if origin is collections.abc.Mapping:
            if not isinstance(value, dict) or not value:
                raise self.refuse(f"{where} is no table with words in it", "policy-value")
            item = typing.get_args(hint)[1]
            return {key: self._value(item, word, f"{where}.{key}") for key, word in value.items()}
        if hint is bool:
            return self._typed(bool, value, f"{where} is not true or false")
        return self._number(value, where) if hint is int else self._line(hint, value, where)

    def _line(self, hint: Any, value: Any, where: str) -> Any:
        text = self._text(value, where)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self._word(hint, text, where)
        return Path(text) if hint is Path else text

    def _values(self, hint: Any, value: Any, where: str) -> tuple[Any, ...]:
        items = self._typed(list, value, f"{where} is not an array")
        if not items:
            raise self.refuse(f"{where} is empty", "policy-empty", fix="leave out a key that says nothing")
        found = tuple(self._value(hint, item, where) for item in items)
        if len(set(found)) != len(found):
            raise self.refuse(f"{where} has a word twice", "policy-value")
        return found

    def _number(self, value: Any, where: str) -> int:
        number: int = self._typed(int, value, f"{where} is not a whole number")
        if not 1 <= number <= LARGEST:
            raise self.refuse(
                f"{where} is {number}; it has to be between 1 and {LARGEST}",
                "policy-value",
                fix="leave the key out for no limit",
            )
        return number

    def _text(self, value: Any, where: str) -> str:
        text: str = self._typed(str, value, f"{where} is not a string")
        if not text or len(text) > LONGEST or text != text.strip() or not text.isprintable():
            raise self.refuse(
                f"{where} is {text!r:.80}: empty, too long, or with characters that are not to be seen",
                "policy-value",
                fix="leave out a key that says nothing; write one line, without spaces around it",
            )
        return text

    def _word(self, words: type[enum.Enum], text: str, where: str) -> enum.Enum:
        allowed = {str(word.value): word for word in words}
        if text not in allowed:
            raise self.refuse(
                f"{where}: {text!r:.80} is not one of the words allowed",
                "policy-value",
                fix=f"use one of: {', '.join(allowed)}",
            )
        return allowed[text]

    def _typed(self, kind: type[Any], value: Any, text: str) -> Any:
        if type(value) is not kind:  # True is an int to isinstance
            raise self.refuse(text, "policy-value")
        return value


def keys_of(kind: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The keys of a table: its dataclass's fields by name, those of the loader left out."""
    return {field.name: field for field in dataclasses.fields(kind) if field.name not in NOT_KEYS}


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether the file has to say it."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
