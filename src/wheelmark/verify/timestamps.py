"""Signed time: RFC 3161 timestamps over the bundle's signature, by an authority that the root names.

On ``rfc3161-client``, which checks the token's signature, its chain at the token's own time, the
time-stamping usage and the imprint. The authority's window of trust is closed at both ends and is ours.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence

from rfc3161_client import TimeStampResponse, Verifier, VerifierBuilder, decode_timestamp_response

from wheelmark.errors import InputError, RejectedError
from wheelmark.trust.roots import Authority

_IMPRINTS = {
    "2.16.840.1.101.3.4.2.1": hashlib.sha256,
    "2.16.840.1.101.3.4.2.2": hashlib.sha384,
    "2.16.840.1.101.3.4.2.3": hashlib.sha512,
}


def check_timestamp(token: bytes, signature: bytes, authorities: Sequence[Authority]) -> dt.datetime:
    """The time that an authority signed for ``signature``.

    Args:
        token: An RFC 3161 TimeStampResp, DER.
        signature: The bundle's signature, which the token has to be about.
        authorities: Timestamp authorities of the root.

    Raises:
        InputError: No RFC 3161 response, or one whose DER is not the one spelling (``timestamp-malformed``).
        RejectedError: Over another signature (``timestamp-other``), by nobody that the root names
            (``timestamp-untrusted``), or outside the authority's window (``tsa-window``).
    """
    response = _decode(token)
    imprint = response.tst_info.message_imprint
    function = _IMPRINTS.get(imprint.hash_algorithm.dotted_string)
    if function is None or function(signature).digest() != imprint.message:
        raise RejectedError("the timestamp is over another signature", reason="timestamp-other")
    time = response.tst_info.gen_time.astimezone(dt.UTC)
    failures: list[str] = []
    signing: list[Authority] = []
    for authority in authorities:
        try:
            _verifier(authority).verify_message(response, signature)
        except Exception as error:  # noqa: BLE001 - every failure of the library is a refusal
            failures.append(f"{type(error).__name__}: {error}")
        else:
            signing.append(authority)
    if not signing:
        raise RejectedError(
            "the timestamp is by no authority of this root"
            + (f" ({'; '.join(failures)})" if failures else ": it names none"),
            reason="timestamp-untrusted",
        )
    if not any(authority.window.contains(time) for authority in signing):
        raise RejectedError(
            f"the timestamp authority was not trusted at {time.isoformat()}", reason="tsa-window"
        )
    return time


def _decode(token: bytes) -> TimeStampResponse:
    try:
        response = decode_timestamp_response(token)
        same = response.as_bytes() == token
    except Exception as error:  # a parser of another library: anything it raises is a malformed input
        raise InputError(
            f"malformed timestamp: {type(error).__name__}: {error}", reason="timestamp-malformed"
        ) from error
    if not same:
        raise InputError("a timestamp with bytes that mean nothing", reason="timestamp-malformed")
    return response


def _verifier(authority: Authority) -> Verifier:
    certificates = authority.certificates
    return VerifierBuilder(
        tsa_certificate=certificates[0] if len(certificates) > 1 else None,
        intermediates=list(certificates[1:-1]),
        roots=[certificates[-1]],
    ).build()
