"""A second opinion, where a root asks for one: sigstore-python has to accept what was accepted here.

The path is ours (``facts``): it looks everywhere, gives reasons, and costs less; that the two agree is tested
over changes of whole families of bundles. A second implementation on every bundle takes twice the time, so it is
the operator's choice. The ends of the root's windows are taken out of what it is given: ours are closed intervals
and were checked before, its own check leaves out an authority's last instant. It knows no managed keys, and is not
asked about them.

Importing ``sigstore.verify`` costs 0.3 s, so this module is imported only where a root asks.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from cryptography import x509

from wheelmark.errors import ConfigError, RejectedError
from wheelmark.trust.roots import CONFIG_TYPE, ROOT_TYPES, Root

SIGNING_CONFIG_TYPE = "application/vnd.dev.sigstore.signingconfig.v0.2+json"


class ReferenceClient:
    """sigstore-python's verifier under one root.

    Args:
        root: The root that it is to trust, and no other.

    Raises:
        ConfigError: sigstore-python cannot use the root (``root-shape``).
    """

    def __init__(self, root: Root) -> None:
        try:
            self._verifier = _verifier(root)
        except Exception as error:  # pydantic's, sigstore's own, and what lies between
            raise ConfigError(
                f"trust root {root.name!r} asks for a second opinion, and sigstore-python cannot use it: "
                f"{type(error).__name__}: {str(error)[:300]}",
                fix="use the instance's own trusted_root.json, or leave second_opinion out",
                reason="root-shape",
            ) from error

    def check(self, bundle: bytes, artifact: bytes | None, certificate: x509.Certificate) -> None:
        """Ask it about one bundle.

        Args:
            bundle: The bundle's bytes.
            artifact: sha256 of the artifact, for a message signature; ``None`` for a DSSE envelope.
            certificate: The signing certificate that was verified here.

        Raises:
            RejectedError: It does not accept the bundle (``second-opinion``).
        """
        from sigstore.hashes import Hashed  # noqa: PLC0415 - 0.3 s, only where it is asked
        from sigstore.models import Bundle  # noqa: PLC0415
        from sigstore_models.common.v1 import HashAlgorithm  # noqa: PLC0415

        try:
            model = Bundle.from_json(bundle)
            if artifact is None:
                self._verifier.verify_dsse(model, _SameCertificate(certificate))
            else:
                hashed = Hashed(digest=artifact, algorithm=HashAlgorithm.SHA2_256)
                self._verifier.verify_artifact(hashed, model, _SameCertificate(certificate))
        except Exception as error:  # anything the library raises is a refusal
            raise RejectedError(
                f"sigstore-python does not accept the bundle: {type(error).__name__}: {str(error)[:300]}",
                reason="second-opinion",
            ) from error


def _verifier(root: Root) -> Any:
    from sigstore.models import ClientTrustConfig  # noqa: PLC0415
    from sigstore.verify import Verifier  # noqa: PLC0415

    config = {
        "mediaType": CONFIG_TYPE,
        "trustedRoot": {**_without_ends(root.document), "mediaType": ROOT_TYPES[0]},
        # The model wants a signing configuration beside the root; verification never reads it.
        "signingConfig": {
            "mediaType": SIGNING_CONFIG_TYPE,
            "caUrls": [],
            "oidcUrls": [],
            "rekorTlogUrls": [],
            "tsaUrls": [],
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaConfig": {"selector": "ANY"},
        },
    }
    return Verifier(trusted_root=ClientTrustConfig.from_json(json.dumps(config)).trusted_root)


class _SameCertificate:
    """A sigstore-python policy: the certificate that it verifies is the one that was verified here."""

    def __init__(self, certificate: x509.Certificate) -> None:
        self._certificate = certificate

    def verify(self, cert: x509.Certificate) -> None:
        """Called by sigstore-python with the bundle's signing certificate."""
        from sigstore.errors import VerificationError  # noqa: PLC0415

        if cert != self._certificate:
            raise VerificationError("another certificate than the one that was verified")


def _without_ends(document: Mapping[str, Any]) -> dict[str, Any]:
    root = copy.deepcopy(dict(document))
    for field in ("certificateAuthorities", "timestampAuthorities", "tlogs", "ctlogs"):
        for item in root.get(field, []):
            for holder in (item, item.get("publicKey", {})):
                if isinstance(holder.get("validFor"), dict):
                    holder["validFor"].pop("end", None)
    return root
