"""What is in it: each signed SBOM explains every file, and is what lies in the release (row 32)."""

from __future__ import annotations

from wheelmark.verify import sbom
from wheelmark.verify.case import Question, Standing
from wheelmark.verify.policy import Predicate
from wheelmark.verify.trail import Trail


def check_sboms(question: Question, standing: Standing, trail: Trail) -> None:
    """Each counting SBOM, and where a release holds documents, each of them against the signed ones."""
    found = standing.of(Predicate.SBOM)
    documents = question.case.documents
    for item in found:
        for problem in sbom.check_description(item.predicate, question.artifact):
            trail.refuse("sbom", f"{item.path}: {problem.text}", reason=problem.reason)
        if documents is not None and not any(
            sbom.same_document(item.predicate, document) for document in documents
        ):
            text = f"{item.path}: the signed SBOM is not what any document in the release says"
            trail.refuse("sbom", text, reason="sbom-document")
    for index, document in enumerate((documents or ()) if found else ()):
        if not any(sbom.same_document(item.predicate, document) for item in found):
            text = f"document {index + 1} of {len(documents or ())} in the release is signed by no SBOM statement"
            trail.refuse("sbom", text, reason="sbom-document")
    if found:
        trail.settle("sbom", f"{len(question.artifact.files)} files, each explained")
