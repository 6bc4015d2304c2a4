"""The timestamp authority: RFC 3161 over this machine's clock.

Formats: RFC 3161, section 2.4 (request, ``TSTInfo``, response); the token is a CMS SignedData (RFC 5652) with
the ESSCertIDv2 attribute of RFC 5816. The clock is the machine's own: an embedded time says when the signer
claims to have signed, and no more.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets

from asn1crypto import cms, core, tsp
from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import Encoding

from wheelmark.errors import InputError

_POLICY = "1.3.6.1.4.1.57264.2"
"""Policy of Sigstore's timestamp-authority (its default ``DefaultTSAPolicy``)."""
_SIZES = {"sha256": 32, "sha384": 48, "sha512": 64}
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of P-256 (SEC 2, 2.4.2)."""


def low(signature: bytes) -> bytes:
    """The one of an ECDSA signature's two forms that has the smaller s; nothing else covers these bytes of a bundle."""
    r, s = utils.decode_dss_signature(signature)
    return utils.encode_dss_signature(r, min(s, _ORDER - s))


class TimestampAuthority:
    """Answers timestamp requests."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = asn1_x509.Certificate.load(certificate.public_bytes(Encoding.DER))

    def answer(self, request: bytes) -> bytes:
        """The ``TimeStampResp`` to a ``TimeStampReq``, both in DER; the time has whole seconds.

        Raises:
            InputError: Not a request, or over a digest of another kind (reason ``timestamp-request``).
        """
        try:
            asked = tsp.TimeStampReq.load(request, strict=True)
            algorithm = asked["message_imprint"]["hash_algorithm"]["algorithm"].native
            imprint = asked["message_imprint"]["hashed_message"].native
            nonce, wants_certificate = asked["nonce"].native, asked["cert_req"].native
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"malformed timestamp request: {error}", reason="timestamp-request") from error
        if _SIZES.get(algorithm) != len(imprint):
            raise InputError(f"a digest of kind {algorithm} is not timestamped", reason="timestamp-request")
        now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        info = tsp.TSTInfo(
            {
                "version": "v1",
                "policy": _POLICY,
                "message_imprint": asked["message_imprint"],
                "serial_number": secrets.randbits(63),
                "gen_time": now,
                "nonce": nonce,
            }
        ).dump()
        token = self._sign(info, now, with_certificate=bool(wants_certificate))
        response = tsp.TimeStampResp({"status": {"status": "granted"}, "time_stamp_token": token})
        answer: bytes = response.dump()
        return answer

    def _sign(self, info: bytes, now: dt.datetime, *, with_certificate: bool) -> cms.ContentInfo:
        attributes = cms.CMSAttributes(
            [
                _attribute("content_type", "tst_info"),
                _attribute("signing_time", cms.Time({"utc_time": now})),
                _attribute("message_digest", hashlib.sha256(info).digest()),
                _attribute("signing_certificate_v2", self._certificate_id()),
            ]
        )
        signer = cms.SignerInfo(
            {
                "version": "v1",
                "sid": cms.SignerIdentifier(
                    {
                        "issuer_and_serial_number": {
                            "issuer": self._certificate.issuer,
                            "serial_number": self._certificate.serial_number,
                        }
                    }
                ),
                "digest_algorithm": {"algorithm": "sha256"},
                "signed_attrs": attributes,
                "signature_algorithm": {"algorithm": "sha256_ecdsa"},
                # RFC 5652, 5.4: the signature is over the attributes in DER as a SET OF.
                "signature": low(self._key.sign(attributes.dump(), ec.ECDSA(hashes.SHA256()))),
            }
        )
        signed = {
            "version": "v3",
            "digest_algorithms": [{"algorithm": "sha256"}],
            "encap_content_info": {"content_type": "tst_info", "content": core.ParsableOctetString(info)},
            "signer_infos": [signer],
        }
        if with_certificate:
            signed["certificates"] = [self._certificate]
        return cms.ContentInfo({"content_type": "signed_data", "content": cms.SignedData(signed)})

    def _certificate_id(self) -> tsp.SigningCertificateV2:
        digest = hashlib.sha256(self._certificate.dump()).digest()
        return tsp.SigningCertificateV2({"certs": [tsp.ESSCertIDv2({"cert_hash": digest})]})


def _attribute(kind: str, value: object) -> cms.CMSAttribute:
    return cms.CMSAttribute({"type": kind, "values": [value]})
