"""The copy of a trusted root beside a release: never believed, and refused where it would tell another story.

After ``wheelmark trust rotate`` this machine's root holds more than the copies in earlier releases: those are
the root without the generations that came later, and with the validity of their keys still open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelmark import digests, strictjson
from wheelmark.errors import InputError
from wheelmark.plainfiles import read_bounded
from wheelmark.trust.roots import Root

_LARGEST = 4 << 20


def is_known_root(path: Path, roots: Sequence[Root]) -> bool:
    """Whether a file is a root of the policy, or one as it was before further generations were added to it.

    Args:
        path: The file; one that cannot be read is none.
        roots: The policy's.
    """
    try:
        data = read_bounded(path, _LARGEST)
        if digests.sha256(data) in {root.sha256 for root in roots}:
            return True
        copy = strictjson.load_object(data, what="root copy")
        return digests.canonical_json(copy) == data and any(
            _is_earlier(copy, root.document) for root in roots
        )
    except InputError:
        return False  # a link, a device, too large or no JSON


def _is_earlier(copy: Mapping[str, object], root: Mapping[str, object]) -> bool:
    """Whether each entry of ``copy`` stands in ``root``, there perhaps with an end of its validity.

    Each generation of keys adds one entry to every list; a copy that lacks one in some lists never was a root.
    """

    def parts(member: object) -> tuple[object, ...]:
        return tuple(member) if isinstance(member, list) else (member,)

    generations = {len(member) for member in copy.values() if isinstance(member, list)}
    return (
        set(copy) == set(root)
        and len(generations) == 1
        and 0 not in generations
        and all(
            item in parts(root[name]) or item in map(_without_end, parts(root[name]))
            for name in copy
            for item in parts(copy[name])
        )
    )


def _without_end(value: object) -> object:
    """An entry of a trusted root as it was while its key was in use."""
    if not isinstance(value, dict):
        return value
    return {
        name: {key: text for key, text in member.items() if key != "end"}
        if name == "validFor" and isinstance(member, dict)
        else _without_end(member)
        for name, member in value.items()
    }
