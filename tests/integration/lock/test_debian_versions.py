"""Our order of versions is dpkg's."""

from __future__ import annotations

import random
import subprocess

from presence import need_program
from wheelmark.lock.debian import version_key

PIECES = ["0", "1", "9", "10", "01", ".", "~", "~~", "+", "-", "a", "Z", "deb12u1", "b1", "rc"]


def some_version(chance: random.Random) -> str:
    text = chance.choice("0129") + "".join(chance.choices(PIECES, k=chance.randrange(6)))
    return f"{chance.choice(['', '', '', '0:', '1:'])}{text}{chance.choice(['', '0', '1'])}".rstrip("-")


def test_random_pairs_are_ordered_as_dpkg_orders_them() -> None:
    need_program("dpkg")
    chance = random.Random(4)
    pairs = [(some_version(chance), some_version(chance)) for _ in range(1500)]
    # A change of one place, where differences hide.
    pairs += [(first, first[:-1] + chance.choice(PIECES)) for first, _ in pairs[:500] if len(first) > 3]
    pairs += [(first, first + chance.choice(["-0", "0", ".0", "-", "+0"])) for first, _ in pairs[:300]]
    pairs = [pair for pair in pairs if not any(text.endswith((":", "-")) for text in pair)]
    script = 'while read -r a b; do if dpkg --compare-versions "$a" lt "$b"; then echo -1; elif dpkg --compare-versions "$a" eq "$b"; then echo 0; else echo 1; fi; done'
    given = "".join(f"{first} {second}\n" for first, second in pairs)
    done = subprocess.run(["sh", "-c", script], input=given, capture_output=True, text=True, check=True)
    theirs = [int(line) for line in done.stdout.split()]
    assert done.stderr == ""
    ours = [
        (version_key(first) > version_key(second)) - (version_key(first) < version_key(second))
        for first, second in pairs
    ]
    assert [pair for pair, mine, yours in zip(pairs, ours, theirs, strict=True) if mine != yours] == []
    assert set(theirs) == {-1, 0, 1}
