"""DER as trees, and what can be done to them: other values, other encodings of the same values, elements moved."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from cryptography.hazmat.primitives.asymmetric import utils

_CONSTRUCTED, _LONG, _CERTIFICATES = 0x20, 0x80, 0xA0
ORDERS = {
    "secp256r1": 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    "secp384r1": int("F" * 48 + "C7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973", 16),
}


class Node:
    """One element: a tag with octets, or with elements inside."""

    __slots__ = ("children", "content", "form", "tag")

    def __init__(self, tag: int, content: bytes, children: list[Node] | None) -> None:
        self.tag, self.content, self.children = tag, content, children
        self.form = ""

    def encoded(self) -> bytes:
        content = (
            self.content if self.children is None else b"".join(child.encoded() for child in self.children)
        )
        return _spelled(self.tag, content, self.form)


def parsed(data: bytes) -> list[Node]:
    """The elements in ``data``; octets that are elements themselves are taken apart too.

    Raises:
        ValueError: Not DER.
    """
    found, start = [], 0
    while start < len(data):
        if start + 2 > len(data) or data[start] & 0x1F == 0x1F:
            raise ValueError("cut off")
        tag, length, head = data[start], data[start + 1], 2
        if length & _LONG:
            octets = length & 0x7F
            length, head = int.from_bytes(data[start + 2 : start + 2 + octets], "big"), 2 + octets
            if not 1 <= octets <= 4:
                raise ValueError("length")
        end = start + head + length
        if end > len(data):
            raise ValueError("cut off")
        content = data[start + head : end]
        children = parsed(content) if tag & _CONSTRUCTED else None
        if tag == 0x04 and content[:1] in {b"\x30", b"\x03", b"\x04"}:
            try:
                children = parsed(content)
            except ValueError:
                children = None
        found.append(Node(tag, content, children))
        start = end
    return found


def _spelled(tag: int, content: bytes, form: str) -> bytes:
    length = len(content)
    if form == "indefinite":
        return bytes([tag | _CONSTRUCTED, _LONG]) + content + b"\0\0"
    if form == "long":
        return bytes([tag, _LONG | 4]) + length.to_bytes(4, "big") + content
    if form == "pieces":
        half = length // 2
        inner = _spelled(tag & ~_CONSTRUCTED, content[:half], "") + _spelled(
            tag & ~_CONSTRUCTED, content[half:], ""
        )
        return _spelled(tag | _CONSTRUCTED, inner, "")
    if form == "cut":
        return bytes([tag]) + content
    if length < _LONG:
        return bytes([tag, length]) + content
    octets = (length.bit_length() + 7) // 8
    return bytes([tag, _LONG | octets]) + length.to_bytes(octets, "big") + content


def _all(nodes: list[Node]) -> list[tuple[list[Node], int]]:
    found = []
    for index, node in enumerate(nodes):
        found.append((nodes, index))
        if node.children is not None:
            found += _all(node.children)
    return found


def mutated(rng: Random, data: bytes) -> bytes:
    """DER with one or two elements changed, moved, or encoded otherwise; containers' lengths follow."""
    try:
        tree = parsed(data)
    except (ValueError, RecursionError):
        return data[:-1]
    for _ in range(rng.choice([1, 1, 1, 2])):
        holder, index = rng.choice(_all(tree))
        _change(rng, holder, index)
        if not tree:
            break
    return b"".join(node.encoded() for node in tree)


def _change(rng: Random, holder: list[Node], index: int) -> None:
    node = holder[index]
    match rng.randrange(9):
        case 0:
            node.form = rng.choice(["indefinite", "long", "pieces", "cut"])
        case 1:
            del holder[index]
        case 2:
            holder.insert(rng.randrange(len(holder) + 1), node)
        case 3:
            other = rng.randrange(len(holder))
            holder[index], holder[other] = holder[other], holder[index]
        case 4:
            node.tag ^= rng.choice([0x20, 0x40, 0x80, 0xC0, 0x01, 0x02, 0x08])
        case 5:
            junk = rng.choice(
                [b"\x05\x00", b"\x02\x01\x01", b"\x30\x00", b"\x04\x01x", b"\xa1\x00", b"\xa2\x02\x05\x00"]
            )
            holder.insert(rng.randrange(len(holder) + 1), parsed(junk)[0])
        case 6 if node.children is None:
            odd = {0x01: b"\x01", 0x02: b"\0" + node.content, 0x03: b"\x07" + node.content[1:], 0x05: b"\0"}
            node.content = odd.get(node.tag, node.content + b"\0")
        case _ if node.children is None and node.content:
            at = rng.randrange(len(node.content))
            bit = 1 << rng.randrange(8)
            node.content = node.content[:at] + bytes([node.content[at] ^ bit]) + node.content[at + 1 :]
        case _:
            node.content = b"".join(child.encoded() for child in node.children or ()) + b"\0"
            node.children = None


def twin(signature: bytes) -> bytes:
    """The other ECDSA signature (r, n - s) that is as good as this one."""
    r, s = utils.decode_dss_signature(signature)
    return utils.encode_dss_signature(r, _order(r, s) - s)


def smaller(signature: bytes) -> bytes:
    """One of the two twins, whichever is given; other bytes as they are."""
    try:
        r, s = utils.decode_dss_signature(signature)
    except ValueError:
        return signature
    return utils.encode_dss_signature(r, min(s, abs(_order(r, s) - s)))


def _order(r: int, s: int) -> int:
    small = ORDERS["secp256r1"]
    return small if max(r, s) < small else ORDERS["secp384r1"]


def odd_signatures(rng: Random, signature: bytes) -> bytes:
    """An ECDSA signature otherwise: its twin, numbers out of range, raw, padded, in other encodings."""
    try:
        r, s = utils.decode_dss_signature(signature)
    except ValueError:
        return signature[::-1] if rng.random() < 0.5 else signature + b"\0"
    n = _order(r, s)
    ways = (
        lambda: twin(signature),
        lambda: utils.encode_dss_signature(r + n, s),
        lambda: utils.encode_dss_signature(r, s + n),
        lambda: utils.encode_dss_signature(0, 0),
        lambda: utils.encode_dss_signature(s, r),
        lambda: utils.encode_dss_signature(r, 1),
        lambda: r.to_bytes(66, "big")[-48 if n.bit_length() > 256 else -32 :] + s.to_bytes(48, "big")[-32:],
        lambda: signature + rng.choice([b"\0", b"\x30\x00", signature]),
        lambda: mutated(rng, signature),
    )
    return rng.choice(ways)()


def with_signature(token: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A timestamp token with the signature at its end changed; containers' lengths follow.

    Raises:
        ValueError: Not DER, or without such a signature.
    """
    tree = parsed(token)
    node = tree[-1]
    while node.tag != 0x04:
        if not node.children:
            raise ValueError("no signature at the end")
        node = node.children[-1]
    node.content, node.children = change(node.content), None
    return b"".join(item.encoded() for item in tree)


def without_certificates(token: bytes) -> bytes:
    """A timestamp token without the certificates in its SignedData.

    Raises:
        ValueError: Not such a token.
        IndexError: Not such a token.
    """
    tree = parsed(token)
    signed = ((tree[0].children or [])[1].children or [])[1].children or []
    fields = signed[0].children or []
    # version, digest algorithms, content, then certificates: [0]
    if fields[3].tag == _CERTIFICATES:
        del fields[3]
    return b"".join(item.encoded() for item in tree)
