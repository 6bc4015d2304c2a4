"""ECDSA twins: of each signature (r, s) anybody can make (r, n - s), which verifies as well.

Where a bundle has to be the one form of its content, the one with the smaller s is that form. Which of the two a
service answers with is chance, so signers bring what they get into it (``smaller_twin``).
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import ec, utils

# Orders of the base points (SEC 2, version 2.0, sections 2.4.2, 2.5.1 and 2.6.1).
_ORDERS = {
    "secp256r1": int("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16),
    "secp384r1": int(
        "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973", 16
    ),
    "secp521r1": int(
        "01fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa"
        "51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409",
        16,
    ),
}


def smaller_twin(key: object, signature: bytes) -> bytes:
    """The twin of ``signature`` with the smaller s; itself where ``key`` is of another kind than ECDSA.

    Raises:
        ValueError: No DER of an ECDSA signature.
    """
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in _ORDERS:
        return signature
    r, s = utils.decode_dss_signature(signature)
    return utils.encode_dss_signature(r, min(s, _ORDERS[key.curve.name] - s))


def is_smaller_twin(key: object, signature: bytes) -> bool:
    """Whether ``signature`` is in the one form that ``smaller_twin`` gives."""
    try:
        return smaller_twin(key, signature) == signature
    except ValueError:
        return False
