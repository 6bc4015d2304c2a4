"""CycloneDX documents about wheels, made from their bytes.

``embedded_document`` describes what goes into a wheel and is put into it (PEP 770); ``describe_wheel`` describes
the finished bytes and stands beside them. The reader that decisions use is ``wheelmark.attest.sbom``.
"""

from wheelmark.sbom.document import describe_wheel, embedded_document
from wheelmark.sbom.schema import validate

__all__ = ["describe_wheel", "embedded_document", "validate"]
