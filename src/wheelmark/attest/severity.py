"""How bad an advisory says a vulnerability is, in the words of FIRST: from CVSS vectors, scores or words.

Of vectors the *base* score counts: what an advisory's author says of exploits in the wild, or of an environment of
their own, makes nothing milder here. Words by score: CVSS v3.1 specification, section 5, and v4.0, section 6 (the same
bounds); for v2, which defines none, NVD's (https://nvd.nist.gov/vuln-metrics/cvss).
"""

from __future__ import annotations

from collections.abc import Iterable

NONE, LOW, MEDIUM, HIGH, CRITICAL = WORDS = ("none", "low", "medium", "high", "critical")
_SYNONYMS = {"negligible": LOW, "minor": LOW, "moderate": MEDIUM, "important": HIGH, "severe": HIGH}
_V4_BASE = ("AV", "AC", "AT", "PR", "UI", "VC", "VI", "VA", "SC", "SI", "SA")
_V2_METHODS = ("CVSS_V2", "CVSSV2", "CVSS2")
_LONGEST = 500
_HIGHEST_SCORE = 10.0


def worst_word(severities: Iterable[tuple[str, str]]) -> str:
    """The worst of what an advisory states; empty if it states nothing, or anything that is not understood.

    Args:
        severities: Pairs of method (``CVSS_V3``) and score: a vector, a number or a word.
    """
    words = [word_of(method, score) for method, score in severities]
    if not words or "" in words:
        return ""
    return max(words, key=WORDS.index)


def word_of(method: str, score: str) -> str:
    """One of ``WORDS``, or empty where the score is not understood."""
    text = score.strip()
    word = text.lower()
    if word in WORDS:
        return word
    if word in _SYNONYMS:
        return _SYNONYMS[word]
    if "/" in text:
        return _of_vector(text)
    try:
        number = float(text)
    except ValueError:
        return ""
    return _of_score(number, second=method.upper() in _V2_METHODS)


def _of_vector(text: str) -> str:
    # Imported where there is a vector: most artifacts have no finding.
    from cvss import CVSS2, CVSS3, CVSS4  # noqa: PLC0415
    from cvss.exceptions import CVSSError  # noqa: PLC0415

    if len(text) > _LONGEST:
        return ""
    try:
        if text.startswith("CVSS:4"):
            prefix, *metrics = text.split("/")
            base = [item for item in metrics if item.partition(":")[0] in _V4_BASE]
            return _of_score(float(CVSS4("/".join([prefix, *base])).base_score), second=False)
        if text.startswith("CVSS:3"):
            return _of_score(float(CVSS3(text).base_score), second=False)
        return _of_score(float(CVSS2(text).base_score), second=True)
    except (CVSSError, ArithmeticError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return ""  # the library's own error, or one of its arithmetic over what it did not foresee


def _of_score(score: float, *, second: bool) -> str:
    if not 0.0 <= score <= _HIGHEST_SCORE:
        return ""
    bounds = ((4.0, LOW), (7.0, MEDIUM)) if second else ((0.1, NONE), (4.0, LOW), (7.0, MEDIUM), (9.0, HIGH))
    last = HIGH if second else CRITICAL
    return next((word for bound, word in bounds if score < bound), last)
