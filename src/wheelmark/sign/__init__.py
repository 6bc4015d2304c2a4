"""Signing: one code path with the ordinary sigstore client, in one of three trust domains."""

from __future__ import annotations

from wheelmark.sign.domains import Domain
from wheelmark.sign.signer import Signer, open_signer

__all__ = ["Domain", "Signer", "open_signer"]
