"""in-toto ``DigestSet`` and ``ResourceDescriptor``, read strictly.

Format: in-toto attestation framework, ``spec/v1/digest_set.md`` and ``spec/v1/resource_descriptor.md``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from wheelmark.errors import InputError

_HEX_LENGTHS: dict[str, tuple[int, ...]] = {
    "sha224": (56,),
    "sha256": (64,),
    "sha384": (96,),
    "sha512": (128,),
    "sha512_224": (56,),
    "sha512_256": (64,),
    "sha3_224": (56,),
    "sha3_256": (64,),
    "sha3_384": (96,),
    "sha3_512": (128,),
    "sha1": (40,),
    "blake2b": (128,),
    "blake2s": (64,),
    # Git objects are named by sha1, or by sha256 in repositories of the newer object format.
    "gitCommit": (40, 64),
    "gitTree": (40, 64),
    "gitBlob": (40, 64),
    "gitTag": (40, 64),
}
"""Algorithm names of the in-toto registry that are read here, and the hexadecimal digits of each."""
_LOWER_HEX = re.compile(r"[0-9a-f]+")
_FIELDS = {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}
_STRINGS = ("name", "uri", "mediaType", "downloadLocation")


def read_digests(value: Any, *, what: str) -> dict[str, str]:
    """A ``DigestSet``: at least one known algorithm, each value in its lowercase hexadecimal form.

    Args:
        value: The JSON value.
        what: How an error names what the digests are of.

    Raises:
        InputError: Not such a set (reason ``statement-digest``).
    """
    if not isinstance(value, dict) or not value:
        raise InputError(f"{what} has no digest", reason="statement-digest")
    for algorithm, text in value.items():
        lengths = _HEX_LENGTHS.get(algorithm)
        if lengths is None:
            raise InputError(
                f"{what}: unknown digest algorithm {algorithm[:40]!r}", reason="statement-digest"
            )
        if not isinstance(text, str) or len(text) not in lengths or not _LOWER_HEX.fullmatch(text):
            raise InputError(f"{what}: malformed {algorithm} digest", reason="statement-digest")
    return dict(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resource:
    """A thing that a predicate speaks of. At least one of ``name``, ``uri`` and ``digest`` is there."""

    name: str = ""
    uri: str = ""
    digest: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Algorithm of the in-toto registry (``sha256``, ``gitCommit``) to lowercase hexadecimal."""
    media_type: str = ""
    download_location: str = ""
    annotations: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON values."""

    def as_json(self) -> dict[str, Any]:
        """The JSON object, without the fields that are empty."""
        fields = {
            "name": self.name,
            "uri": self.uri,
            "digest": dict(self.digest),
            "mediaType": self.media_type,
            "downloadLocation": self.download_location,
            "annotations": dict(self.annotations),
        }
        return {key: value for key, value in fields.items() if value}


def read_resource(value: Any, *, what: str) -> Resource:
    """A ``ResourceDescriptor`` without inline ``content``.

    Args:
        value: The JSON value.
        what: How an error names it.

    Raises:
        InputError: Not a resource descriptor (reason ``statement-resource``) or a bad digest
            (reason ``statement-digest``).
    """
    if not isinstance(value, dict) or not set(value) <= _FIELDS - {"content"}:
        raise InputError(f"{what} is no resource descriptor that is read here", reason="statement-resource")
    strings = {name: value.get(name, "") for name in _STRINGS}
    annotations = value.get("annotations", {})
    if not all(isinstance(text, str) for text in strings.values()) or not isinstance(annotations, dict):
        raise InputError(f"{what} has a field of the wrong type", reason="statement-resource")
    digest = read_digests(value["digest"], what=what) if "digest" in value else {}
    if not (strings["name"] or strings["uri"] or digest):
        raise InputError(f"{what} names nothing: no name, uri or digest", reason="statement-resource")
    return Resource(
        name=strings["name"],
        uri=strings["uri"],
        digest=digest,
        media_type=strings["mediaType"],
        download_location=strings["downloadLocation"],
        annotations=annotations,
    )
