"""How bad an advisory says a vulnerability is; figures of vectors from FIRST's and NVD's own examples."""

from __future__ import annotations

import pytest

from wheelmark.attest.predicates import Finding
from wheelmark.attest.severity import word_of, worst_word

V4 = "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N"


@pytest.mark.parametrize(
    ("method", "score", "word"),
    [
        # CVE-2021-44228 (10.0), CVE-2014-0160 (7.5 and, in v2, 5.0), CVE-2015-8252 (9.8), CVE-2013-1937 (6.1).
        ("CVSS_V3", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", "critical"),
        ("CVSS_V3", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N", "high"),
        ("CVSS_V3", "CVSS:3.0/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", "medium"),
        ("CVSS_V3", "CVSS:3.1/AV:L/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N", "low"),
        ("CVSS_V3", "CVSS:3.1/AV:L/AC:H/PR:H/UI:R/S:U/C:N/I:N/A:N", "none"),
        ("CVSS_V2", "AV:N/AC:L/Au:N/C:P/I:N/A:N", "medium"),
        ("CVSS_V2", "AV:N/AC:L/Au:N/C:C/I:C/A:C", "high"),
        ("CVSS_V2", "AV:L/AC:H/Au:M/C:P/I:N/A:N", "low"),
        ("CVSS_V4", V4, "critical"),
        ("CVSS_V4", "CVSS:4.0/AV:L/AC:L/AT:P/PR:N/UI:P/VC:N/VI:N/VA:L/SC:N/SI:N/SA:N", "low"),
        # What somebody says of exploits or of an environment makes nothing milder.
        ("CVSS_V4", f"{V4}/E:U", "critical"),
        ("CVSS_V3", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H/E:U/RL:O/RC:U", "critical"),
        ("nvd", "9.0", "critical"),
        ("nvd", "8.9", "high"),
        ("nvd", "6.9", "medium"),
        ("nvd", "3.9", "low"),
        ("nvd", "0.1", "low"),
        ("nvd", "0.0", "none"),
        ("CVSS_V2", "10", "high"),
        ("cvssv2", "0", "low"),
        ("Ubuntu", "negligible", "low"),
        ("x", "Moderate", "medium"),
        ("x", " Important ", "high"),
        ("x", "CRITICAL", "critical"),
        ("nvd", "10.1", ""),
        ("nvd", "-1", ""),
        ("nvd", "nan", ""),
        ("nvd", "inf", ""),
        ("x", "", ""),
        ("x", "bad", ""),
        ("CVSS_V3", "CVSS:3.1/AV:N", ""),
        ("CVSS_V3", "CVSS:3.9/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", ""),
        ("CVSS_V4", "CVSS:4.0/AV:N", ""),
        ("CVSS_V4", "CVSS:4/", ""),
        ("CVSS_V5", "CVSS:5.0/AV:N/AC:L", ""),
        ("CVSS_V3", "CVSS:3.1/" + "AV:N/" * 200, ""),
    ],
)
def test_words_of_vectors_scores_and_words(method: str, score: str, word: str) -> None:
    assert word_of(method, score) == word


def test_the_worst_counts_and_what_is_not_understood_is_unknown() -> None:
    assert worst_word([]) == ""
    assert worst_word([("x", "low"), ("x", "high"), ("x", "medium")]) == "high"
    assert worst_word([("x", "low"), ("x", "?")]) == ""
    assert Finding(id="CVE-1").severity == ""
    assert Finding(id="CVE-1", severities=(("x", "low"),)).severity == "low"
