"""Bundles put into an image layout, as artifacts that refer to the image they are about.

Form: OCI image specification 1.1 (``subject``), Sigstore's "Cosign bundle specification" (media types, annotations),
and the fallback tag of the distribution specification: an index ``sha256-<hex>`` in ``index.json`` lists what refers
to an image, so that the layout is accounted for and every client finds it.
"""

from __future__ import annotations

import base64
import datetime as dt
from pathlib import Path

from cryptography import x509

from wheelmark.attest.bundle import read_bundle
from wheelmark.attest.dsse import read_envelope
from wheelmark.attest.statement import Statement, read_statement
from wheelmark.errors import InputError
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.oci.types import Descriptor
from wheelmark.publish.listing import update_listing


def attach(layout: Path, image_digest: str, bundle: bytes) -> Descriptor:
    """Keep a bundle in a layout as a referrer of an image or index, and list it in the image's fallback index.

    The same bundle attached again changes nothing. Blobs that nothing refers to afterwards are removed: the fallback
    index of before, and what a killed run left. One writer at a time (a release directory is held).

    Args:
        layout: The layout directory (``dist/images``), already holding the image.
        image_digest: ``sha256:<hex>`` of the image's manifest or of an index.
        bundle: Sigstore bundle v0.3 with an in-toto statement of which the image is a subject.

    Returns:
        The referrer's manifest.

    Raises:
        InputError: No such layout or image; no bundle with a statement; a statement about something else
            (``image-subject``); a certificate that is none (``certificate-malformed``).
        StateError: The layout cannot be written (``image-write``).
    """
    subject = Layout(layout).resolve(image_digest).descriptor
    statement, created = _read(bundle)
    if all(item.sha256 != subject.sha256 for item in statement.subjects):
        raise InputError(
            f"the bundle's statement ({statement.predicate_type}) is not about {subject.digest}",
            cause="it was signed over another build of the image",
            fix="sign again after the build",
            reason="image-subject",
        )
    made = LayoutWriter(layout).attach(
        subject, bundle, predicate_type=statement.predicate_type, created=created
    )
    update_listing(layout, referrers={subject.sha256: [made]})
    return made


def _read(bundle: bytes) -> tuple[Statement, str]:
    """The statement, and the time at which signing began (RFC 3339; empty where a bare key signed)."""
    value = read_bundle(bundle)
    statement = read_statement(read_envelope(value.get("dsseEnvelope")).payload)
    material = value.get("verificationMaterial")
    certificate = material.get("certificate") if isinstance(material, dict) else None
    if not isinstance(certificate, dict):
        return statement, ""
    try:
        raw = base64.b64decode(certificate.get("rawBytes", ""), validate=True)
        began = x509.load_der_x509_certificate(raw).not_valid_before_utc
    except (TypeError, ValueError) as error:
        raise InputError("the bundle's certificate cannot be read", reason="certificate-malformed") from error
    return statement, began.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
