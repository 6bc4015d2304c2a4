"""The three trust domains that a release can be signed in, and what each proves."""

from __future__ import annotations

import enum


class Domain(enum.Enum):
    """Who vouches for the signer."""

    EMBEDDED = "embedded"
    """This machine's own keys (``wheelmark.sign.embedded``); used unless another is named."""
    PUBLIC = "public"
    """Sigstore's public-good instance, with the identity that the CI service gives."""
    FILE = "file"
    """An instance that a ``ClientTrustConfig`` file describes."""

    @property
    def proves(self) -> str:
        """One line for people: what a signature in this domain says."""
        return {
            Domain.EMBEDDED: "integrity, and origin on a machine that holds this domain's keys; nothing more",
            Domain.PUBLIC: "integrity, and the identity that the public Sigstore instance certified",
            Domain.FILE: "integrity, and the identity that the configured Sigstore instance certified",
        }[self]
