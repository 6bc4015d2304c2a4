"""What a signing certificate says about a token: its subject name and Fulcio's extensions.

Source: fulcio ``docs/oid-info.md`` (arc 1.3.6.1.4.1.57264.1). Extensions .1 to .6 hold raw strings, the later
ones DER UTF8Strings. A token of a GitHub workflow gets the whole set, as Fulcio gives it, so that policies for
workflow identities can be tried against the embedded domain; any other token gets its issuer alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cryptography import x509

from wheelmark.errors import InputError

Claims = Mapping[str, Any]

_ARC = "1.3.6.1.4.1.57264.1."
_GITHUB = "https://github.com/"
_WORKFLOW = "job_workflow_ref"
_RAW = {2: "event_name", 3: "sha", 4: "workflow", 5: "repository", 6: "ref"}
"""Deprecated extensions of GitHub workflows, by number."""
_TEXT = {
    10: "job_workflow_sha",
    11: "runner_environment",
    13: "sha",
    14: "ref",
    15: "repository_id",
    17: "repository_owner_id",
    19: "workflow_sha",
    20: "event_name",
    22: "repository_visibility",
    24: "sub",
}
_URI = {9: _WORKFLOW, 12: "repository", 16: "repository_owner", 18: "workflow_ref"}
"""Extensions that hold a URI: the claim after the server's address."""


def subject_name(claims: Claims) -> x509.GeneralName:
    """The certificate's one subject alternative name: an address, or the URI of a workflow or a workload."""
    if _WORKFLOW in claims:
        return x509.UniformResourceIdentifier(_GITHUB + _string(claims, _WORKFLOW))
    subject = proved_subject(claims)
    if "@" in subject and ":" not in subject:
        return x509.RFC822Name(subject)
    return x509.UniformResourceIdentifier(subject)


def proved_subject(claims: Claims) -> str:
    """What a client signs to prove that it holds its key: the verified address, else the subject."""
    if claims.get("email_verified") is True and "email" in claims:
        return _string(claims, "email")
    return _string(claims, "sub")


def extensions(claims: Claims) -> Iterator[x509.UnrecognizedExtension]:
    """The extensions of a certificate for ``claims``, by number."""
    issuer = _string(claims, "iss")
    yield _extension(1, issuer.encode())
    if _WORKFLOW not in claims:
        yield _extension(8, _utf8_string(issuer))
        return
    for number, claim in _RAW.items():
        yield _extension(number, _string(claims, claim).encode())
    texts = {8: issuer, 21: _run(claims)}
    texts |= {number: _string(claims, claim) for number, claim in _TEXT.items()}
    texts |= {number: _GITHUB + _string(claims, claim) for number, claim in _URI.items()}
    for number, text in sorted(texts.items()):
        yield _extension(number, _utf8_string(text))


def _run(claims: Claims) -> str:
    repository, run = _string(claims, "repository"), _string(claims, "run_id")
    return f"{_GITHUB}{repository}/actions/runs/{run}/attempts/{_string(claims, 'run_attempt')}"


def _string(claims: Claims, name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise InputError(f"identity token has no claim {name!r}", reason="token")
    return value


def _extension(number: int, value: bytes) -> x509.UnrecognizedExtension:
    return x509.UnrecognizedExtension(x509.ObjectIdentifier(f"{_ARC}{number}"), value)


def _utf8_string(text: str) -> bytes:
    """DER UTF8String (X.690, 8.1.3 and 8.23)."""
    data = text.encode()
    length = len(data)
    if length < 0x80:  # noqa: PLR2004 - the longest length in the short form
        return bytes([0x0C, length]) + data
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([0x0C, 0x80 | len(size)]) + size + data
