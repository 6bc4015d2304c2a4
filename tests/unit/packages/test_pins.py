from pathlib import Path

import pytest

from wheelmark.errors import LockError
from wheelmark.lock import Pin, parse_pins, read_pins
from wheelmark.packages.pins import header_field, render_pins

A, B = "a" * 64, "b" * 64


def test_a_lock_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    pins = (
        Pin(name="jinja2", version="3.1.6", hashes=(A, B)),
        Pin(name="torch", version="2.13.0+cpu", hashes=(A,), marker='platform_machine == "x86_64"'),
    )
    path = tmp_path / "x.txt"
    path.write_bytes(render_pins(reversed(pins), header=["about", "inputs: sha256:1"]))
    assert read_pins(path) == pins
    assert header_field(path, "inputs") == "sha256:1"
    assert header_field(path, "other") == ""


def test_comments_continuations_and_names_are_understood() -> None:
    text = f"# note\n\nMarkup_Safe==1.0 \\\n    --hash=sha256:{B} \\\n    --hash=sha256:{A}  # why\nx==1 --hash=sha256:{A}\n"
    assert parse_pins(text, name="x.txt") == (
        Pin(name="markup-safe", version="1.0", hashes=(A, B)),
        Pin(name="x", version="1", hashes=(A,)),
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("jinja2==3.1.6", "lock-unhashed"),
        ("jinja2==3.1.6 --hash=md5:" + "a" * 32, "lock-unhashed"),
        ("jinja2==3.1.6 --hash=sha256:" + "A" * 64, "lock-unhashed"),
        ("jinja2==3.1.6 --hash=sha256:abc", "lock-unhashed"),
        (f"jinja2>=3.1.6 --hash=sha256:{A}", "lock-syntax"),
        (f"jinja2==3.* --hash=sha256:{A}", "lock-syntax"),
        (f"jinja2 --hash=sha256:{A}", "lock-syntax"),
        (f"jinja2==3.1,==3.1 --hash=sha256:{A} --other", "lock-syntax"),
        (f"jinja2[i18n]==3.1.6 --hash=sha256:{A}", "lock-syntax"),
        (f"jinja2===3.1.6 --hash=sha256:{A}", "lock-syntax"),
        (f"jinja2 @ https://example.invalid/j.whl --hash=sha256:{A}", "lock-url"),
        (f"./j.whl --hash=sha256:{A}", "lock-url"),
        ("--index-url https://example.invalid/simple", "lock-url"),
        ("-e .", "lock-url"),
        (f"jinja2==3.1.6 --hash=sha256:{A}\nJinja2==3.1.5 --hash=sha256:{A}", "lock-twice"),
    ],
)
def test_what_is_no_closed_lock_is_refused(line: str, reason: str) -> None:
    with pytest.raises(LockError) as refusal:
        parse_pins(line + "\n", name="runtime-cpu.txt")
    assert refusal.value.reason == reason
    assert "runtime-cpu.txt" in refusal.value.what


def test_an_absent_lock_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(LockError) as refusal:
        read_pins(tmp_path / "build.txt")
    assert refusal.value.reason == "lock-absent"
    assert refusal.value.fix == "wheelmark lock"


def test_one_name_may_stand_for_each_host_once() -> None:
    lines = "".join(
        f'x=={n} ; platform_machine == "{m}" --hash=sha256:{A}\n' for n, m in ((1, "x86_64"), (2, "aarch64"))
    )
    first, second = parse_pins(lines, name="x.txt")
    assert first.applies({"platform_machine": "x86_64"})
    assert not second.applies({"platform_machine": "x86_64"})


def test_a_pin_without_label_takes_any_label_and_no_other_version() -> None:
    pin = Pin(name="torch", version="2.13.0", hashes=(A,))
    assert pin.matches("2.13.0")
    assert pin.matches("2.13.0+cpu")
    assert not pin.matches("2.13.1")
    assert not Pin(name="torch", version="2.13.0+cpu", hashes=(A,)).matches("2.13.0")
