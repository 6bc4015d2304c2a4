"""The predicate types of a release, and one door to their builders and readers.

Registered types only: SLSA provenance v1 for how it was made, CycloneDX for what is in it, in-toto
test-result v0.1 for what the gates found, in-toto vulns v0.2 for what the advisories say; and two that others add
later: OpenVEX for which advisories do not matter, SLSA verification summaries for which channels it may go to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wheelmark import strictjson
from wheelmark.attest.fields import Fields
from wheelmark.attest.promotion import PROMOTION, Promotion, read_promotion
from wheelmark.attest.provenance import BUILD_TYPE, PROVENANCE, Provenance, read_provenance
from wheelmark.attest.testresult import TEST_RESULT, Result, TestResult, read_test_result
from wheelmark.attest.vex import VEX, Vex, read_vex
from wheelmark.attest.vulns import VULNS, Finding, Scan, read_vulns
from wheelmark.errors import InputError

SBOM = "https://cyclonedx.org/bom"
"""The predicate is a CycloneDX document as it stands (CycloneDX specification, "Attestations")."""

ALL = (PROVENANCE, SBOM, TEST_RESULT, VULNS)

__all__ = [
    "ALL",
    "BUILD_TYPE",
    "PROMOTION",
    "PROVENANCE",
    "SBOM",
    "TEST_RESULT",
    "VEX",
    "VULNS",
    "Finding",
    "Promotion",
    "Provenance",
    "Result",
    "Scan",
    "TestResult",
    "Vex",
    "read_promotion",
    "read_provenance",
    "read_sbom",
    "read_test_result",
    "read_vex",
    "read_vulns",
    "sbom_predicate",
]


def sbom_predicate(document: bytes) -> dict[str, Any]:
    """The predicate that carries a CycloneDX document.

    Args:
        document: The SBOM's bytes.

    Raises:
        InputError: JSON that strictjson refuses, or no CycloneDX document (reason ``sbom-predicate``).
    """
    value = strictjson.load_object(document, what="SBOM")
    read_sbom(value)
    return value


def read_sbom(predicate: Mapping[str, Any]) -> str:
    """The CycloneDX version of an SBOM predicate.

    Raises:
        InputError: Not a CycloneDX document (reason ``sbom-predicate``).
    """
    fields = Fields(predicate, what="SBOM predicate", reason="sbom-predicate")
    if fields.string("bomFormat") != "CycloneDX":
        raise InputError("an SBOM predicate is no CycloneDX document", reason="sbom-predicate")
    return fields.string("specVersion")
