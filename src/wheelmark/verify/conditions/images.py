"""Images: whether they are what was asked for, and what their recipe says that they hold, or a stand-in for it."""

from __future__ import annotations

from wheelmark.verify.case import Question, Standing
from wheelmark.verify.trail import Trail


def check_asked(question: Question, standing: Standing, trail: Trail) -> None:
    """An index that was asked for is signed itself, and a name that speaks of a target leads to an image for it.

    An index is a choice: whoever writes one can leave an image out, or lead a platform to another image. That each of its
    images is signed says nothing of that.
    """
    artifact, asked = question.artifact, question.artifact.asked
    if asked.target:
        if asked.target != artifact.target:
            said = artifact.target or "no target"
            text = f"its label says {said}; the name that it was asked for by says {asked.target}"
            trail.refuse("target", text, reason="image-target", rule="always")
        trail.settle("target", f"it is for {asked.target}, as its name says", rule="always")
    if not asked.index or not standing.counted:
        return
    about = [item.attestation for item in standing.counted if asked.index in item.attestation.digests()]
    if not about:
        text = (
            f"no statement of a signer that counts is about the index sha256:{asked.index} that was asked for"
        )
        trail.refuse("index", text, reason="image-index", rule="always")
    trail.settle("index", f"{', '.join(item.path for item in about)}: about the index", rule="always")


def check_image(question: Question, trail: Trail) -> None:
    """An image that says itself that its dependencies are a stand-in is taken only where the policy says so."""
    if not question.artifact.is_image:
        return
    condition, text = (
        "allow_stand_in",
        "the image holds a stand-in for its dependencies, and is not to be released",
    )
    if not question.artifact.is_stand_in:
        trail.hold(condition, "the dependencies are those of its recipe")
    elif question.rule.allow_stand_in:
        trail.note(text)
        trail.hold(condition, f"{text}; the policy lets that pass")
    else:
        trail.refuse(condition, text, reason="image-stand-in")
