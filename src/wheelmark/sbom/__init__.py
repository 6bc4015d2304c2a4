"""CycloneDX documents about wheels and images, made from their bytes.

``embedded_document`` describes what goes into a wheel and is put into it (PEP 770); ``describe_wheel`` describes
the finished bytes and stands beside them; ``describe_image`` does so for a container image. The reader that decisions
use is ``wheelmark.attest.sbom``.
"""

from wheelmark.sbom.document import describe_wheel, embedded_document
from wheelmark.sbom.image import ImageContents, debian_purl, describe_image
from wheelmark.sbom.schema import validate

__all__ = [
    "ImageContents",
    "debian_purl",
    "describe_image",
    "describe_wheel",
    "embedded_document",
    "validate",
]
