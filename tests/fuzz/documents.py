"""JSON as trees that can hold what a JSON object of Python cannot: members twice, in any order, in any spelling."""

from __future__ import annotations

import json
from json.encoder import encode_basestring, encode_basestring_ascii
from random import Random
from typing import Any

Path = tuple[int, ...]


class Members(list[tuple[str, Any]]):
    """An object: its members in order."""


class Raw(str):
    """JSON text that is written as it stands."""

    __slots__ = ()


def parse(data: bytes) -> Any:
    return json.loads(data, object_pairs_hook=Members)


def copied(value: Any) -> Any:
    if isinstance(value, Members):
        return Members((name, copied(item)) for name, item in value)
    return [copied(item) for item in value] if isinstance(value, list) else value


def places(value: Any, path: Path = ()) -> list[Path]:
    """Paths of everything inside, by position."""
    found: list[Path] = []
    if isinstance(value, list):
        for index, item in enumerate(value):
            found.append((*path, index))
            found += places(item[1] if isinstance(value, Members) else item, (*path, index))
    return found


def at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step][1] if isinstance(value, Members) else value[step]
    return value


def put(tree: Any, path: Path, new: Any) -> None:
    holder = at(tree, path[:-1])
    holder[path[-1]] = (holder[path[-1]][0], new) if isinstance(holder, Members) else new


def names(tree: Any, path: Path) -> str:
    """The path in words, for finding a place: ``verificationMaterial.tlogEntries.0.logIndex``."""
    words = []
    for step in path:
        words.append(tree[step][0] if isinstance(tree, Members) else str(step))
        tree = tree[step][1] if isinstance(tree, Members) else tree[step]
    return ".".join(words)


def written(value: Any, *, canonical: bool = False, rng: Random | None = None) -> bytes:
    """The tree as JSON: compact; sorted where ``canonical``; in some odd but lawful spelling where ``rng`` is given."""
    return _text(value, canonical, rng).encode("utf-8", "surrogatepass")


def _text(value: Any, canonical: bool, rng: Random | None) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, str):
        return _string(value, rng)
    space = "" if rng is None else rng.choice(["", "", "", " ", "\n", "\t", "\r\n  "])
    if isinstance(value, Members):
        members = sorted(value, key=lambda item: item[0]) if canonical else value
        inner = [f"{space}{_string(n, rng)}{space}:{_text(item, canonical, rng)}" for n, item in members]
        return "{" + ",".join(inner) + space + "}"
    if isinstance(value, list):
        return "[" + ",".join(space + _text(item, canonical, rng) for item in value) + space + "]"
    return json.dumps(value)


def _string(value: str, rng: Random | None) -> str:
    if rng is None or rng.random() < 0.7:
        return str(encode_basestring(value))
    if rng.random() < 0.5:
        return str(encode_basestring_ascii(value)).replace("/", "\\/")
    at_char = rng.randrange(len(value) + 1)
    if at_char == len(value) or ord(value[at_char]) > 0xFFFF:
        return str(encode_basestring_ascii(value))
    escape = f"\\u{ord(value[at_char]):04x}"
    escape = escape.upper().replace("\\U", "\\u") if rng.random() < 0.5 else escape
    return f"{encode_basestring(value[:at_char])[:-1]}{escape}{encode_basestring(value[at_char + 1 :])[1:]}"


ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    1.5,
    "",
    "0",
    "x",
    [],
    [[]],
    [None],
    Members(),
    Members([("", "")]),
    Raw("1e400"),
    Raw("NaN"),
    Raw("-0"),
    Raw("1" * 50),
    Raw('"\\ud800"'),
    Raw('"\\u0000"'),
    Raw(""),
    Raw("[" * 40 + "]" * 40),
    "9" * 18,
    "9" * 19,
    "-1",
    "18446744073709551615",
)


def dropped(rng: Random, tree: Any) -> Any:
    """One member or item taken out."""
    path = rng.choice(places(tree))
    del at(tree, path[:-1])[path[-1]]
    return tree


def doubled(rng: Random, tree: Any) -> Any:
    """One member or item twice, the second time perhaps with another value."""
    path = rng.choice(places(tree))
    holder = at(tree, path[:-1])
    again = copied(holder[path[-1]])
    if isinstance(holder, Members) and rng.random() < 0.5:
        again = (again[0], rng.choice(ODD_VALUES))
    holder.insert(rng.randrange(len(holder) + 1), again)
    return tree


def swapped(rng: Random, tree: Any) -> Any:
    """Two values in each other's place, neither inside the other."""
    paths = places(tree)
    one, two = rng.choice(paths), rng.choice(paths)
    if one[: len(two)] == two or two[: len(one)] == one:
        return shuffled(rng, tree)
    first, second = at(tree, one), at(tree, two)
    put(tree, one, second)
    put(tree, two, first)
    return tree


def retyped(rng: Random, tree: Any) -> Any:
    """One value of another type."""
    path = rng.choice(places(tree))
    value = at(tree, path)
    ways = [
        rng.choice(ODD_VALUES),
        [value],
        Members([("", value)]),
        written(value).decode("utf-8", "replace"),
    ]
    if isinstance(value, str) and value.isdecimal():
        ways += [
            int(value),
            float(value),
            f"0{value}",
            f"+{value}",
            f" {value}",
            f"{value}.0",
            f"{value}e0",
            f"-{value}",
        ]
        ways += [
            value.translate({ord(digit): ord(digit) + 0xFEE0 for digit in "0123456789"}),
            f"{value}_0",
            hex(int(value)),
        ]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        ways += [str(value), float(value), Raw(f"{value}.0"), Raw(f"{value}e0"), -value]
    elif isinstance(value, Members):
        ways += [[item for _, item in value], [list(pair) for pair in value]]
    put(tree, path, rng.choice(ways))
    return tree


def renamed(rng: Random, tree: Any) -> Any:
    """One member under another name that some reader may take for the same; or an unknown one added."""
    paths = [path for path in places(tree) if isinstance(at(tree, path[:-1]), Members)]
    path = rng.choice(paths)
    holder, index = at(tree, path[:-1]), path[-1]
    name, value = holder[index]
    snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
    other = rng.choice(
        [
            snake,
            name.upper(),
            name.lower(),
            f"{name} ",
            f"\ufeff{name}",
            f"{name}\0",
            name[:-1],
            f"{name}s",
            "",
        ]
    )
    if rng.random() < 0.3:
        holder.append((rng.choice([other, "x", "$schema", "@type", "__proto__"]), copied(value)))
    else:
        holder[index] = (other, value)
    return tree


def shuffled(rng: Random, tree: Any) -> Any:
    """The members of one object, or the items of one list, in another order."""
    lists = [
        path for path in ((), *places(tree)) if isinstance(at(tree, path), list) and len(at(tree, path)) > 1
    ]
    rng.shuffle(at(tree, rng.choice(lists)))
    return tree


def respelled(rng: Random, data: bytes) -> bytes:
    """Bytes around or in a document that change its spelling and, to a lawful reader, nothing or everything."""
    text = data.decode("utf-8", "surrogatepass")
    ways = (
        lambda: data + rng.choice([b"\n", b" ", b"\0", b"{}", b"//", b"\xef\xbb\xbf", data]),
        lambda: rng.choice([b"\xef\xbb\xbf", b" ", b"\n", b"\0", b")]}'\n", b"\x1e"]) + data,
        lambda: text.encode(rng.choice(["utf-16", "utf-16-le", "utf-32", "utf-7"]), "surrogatepass"),
        lambda: data.replace(b",", b",,", 1) if rng.random() < 0.5 else data.replace(b"}", b",}", 1),
        lambda: data.replace(b'"', b"'", 2),
        lambda: data[: rng.randrange(len(data))],
        lambda: written(parse(data), rng=rng),
        lambda: written(parse(data), rng=rng),
        lambda: json.dumps(json.loads(data), indent=rng.randrange(4), ensure_ascii=rng.random() < 0.5).encode(
            "utf-8", "surrogatepass"
        ),
    )
    return rng.choice(ways)()


def flipped(rng: Random, data: bytes) -> bytes:
    """A bit turned, a byte replaced, taken out or put in, or a stretch cut or repeated."""
    if not data:
        return bytes([rng.randrange(256)])
    index = rng.randrange(len(data))
    way = rng.randrange(6)
    if way <= 1:
        return data[:index] + bytes([data[index] ^ 1 << rng.randrange(8)]) + data[index + 1 :]
    if way == 2:
        return data[:index] + bytes([rng.randrange(256)]) + data[index + 1 :]
    if way == 3:
        return data[:index] + data[index + 1 :]
    if way == 4:
        return data[:index] + bytes([rng.randrange(256)]) + data[index:]
    end = min(len(data), index + rng.choice([1, 2, 8, 64]))
    return data[:index] + data[index:end] * rng.choice([0, 2]) + data[end:]
