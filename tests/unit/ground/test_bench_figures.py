import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.figures import placed, spread, surroundings, version_of
from wheelmark.errors import ConfigError

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "benchmarks" / "images.md"
PARTS = ("build", "memory", "places", "publish", "hook")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_measured_again_leaves_the_others_as_they_were(part: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    once = placed(page, part, "first")
    again = placed(once, part, r"\1 second")
    assert "first" in once
    assert again == once.replace("\nfirst\n", "\n\\1 second\n")
    other = next(name for name in PARTS if name != part)
    assert placed(again, other, "third").count(r"\1 second") == 1


@pytest.mark.parametrize("page", ["", "<!-- build: written by x -->\n<!-- end of build -->\n" * 2])
def test_a_page_has_one_place_for_a_part(page: str) -> None:
    with pytest.raises(ConfigError) as caught:
        placed(page, "build", "text")
    assert caught.value.reason == "bench-page"


def test_a_range_and_where_it_is_from() -> None:
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)"
    assert "loaded by other work (5.0)" in surroundings("command", "machine", (), load=5.0)
    assert "idle (0.1)" in surroundings("command", "machine", (), load=0.1)
    assert version_of("no-such-program") == "absent"


def test_what_a_command_leaves_behind_is_waited_for_and_counted() -> None:
    """The shell ends at once; what it started in the background goes on and uses the CPU."""
    burn = "sum(n for n in range(10_000_000))"
    command = ["sh", "-c", 'setsid "$0" -c "$1" >/dev/null 2>&1 & exit 0', sys.executable, burn]
    spent = [sys.executable, "-I", str(ROOT / "tests" / "bench" / "spent.py")]
    found = json.loads(subprocess.run([*spent, *command], capture_output=True, check=True).stdout)
    assert found["code"] == 0
    assert found["cpu"] > 0.1


def test_the_command_line_knows_the_parts_of_the_page() -> None:
    program = [sys.executable, str(ROOT / "tests" / "bench" / "images.py")]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "PATH": "/usr/bin:/bin"}
    shown = subprocess.run([*program, "--help"], env=environment, capture_output=True, text=True, check=True)
    assert ",".join(sorted(PARTS)) in shown.stdout
    wrong = subprocess.run([*program, "--part", "none"], env=environment, capture_output=True, check=False)
    assert wrong.returncode == 2
