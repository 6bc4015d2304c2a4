"""Images: what their recipe says that they hold, or a stand-in for it."""

from __future__ import annotations

from wheelmark.verify.case import Question
from wheelmark.verify.trail import Trail


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
