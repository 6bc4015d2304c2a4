"""The one form of a bundle, for those who write them: what nothing signs is said in the only way that is accepted.

Under a canonical root a bundle has to be that form (``facts``, steps 2 and 8). Which of two ECDSA twins a log or a
timestamp authority answers with is chance; anybody can turn one into the other, so whoever writes a bundle turns
them into the smaller one.
"""

from __future__ import annotations

import dataclasses

from wheelmark.trust.roots import Material
from wheelmark.verify import log, timestamps
from wheelmark.verify.bundle import read_bundle


def in_one_form(data: bytes, material: Material) -> bytes:
    """A bundle in canonical spelling, with the smaller twin of each signature of the root's log and authorities.

    Args:
        data: A bundle, as a client made it.
        material: Of the root that its services answer under.

    Raises:
        InputError: A malformed bundle.
        RejectedError: One that lacks a part.
        ValueError: A signature or a timestamp that is malformed.
    """
    bundle = read_bundle(data)
    return dataclasses.replace(
        bundle,
        entry=log.with_smaller_twins(bundle.entry, material.logs),
        timestamps=tuple(
            timestamps.with_smaller_twin(token, material.timestamp_authorities) for token in bundle.timestamps
        ),
    ).spelled()
