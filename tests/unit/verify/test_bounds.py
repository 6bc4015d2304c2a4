"""Row 21: what is too large, too deep or too long costs little memory, by the kernel's own count of a process.

Time is not asserted; it is measured beside it (see docs/decisions/0010-verification-path.md).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from forging import Forge, Json, canonical, changed, found
from wheelmark import strictjson
from wheelmark.errors import Exit, InputError
from wheelmark.verify.bundle import LIMITS, read_bundle

MEMORY = 150 << 20
_SOME = 16 << 20
MEASURED = """
import sys
from pathlib import Path
from wheelmark.cli import main
code = main(sys.argv[1:])
# Of this program alone: the count that a parent gets (getrusage) holds what it had itself when it started us.
(peak,) = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(peak, file=sys.stderr)
sys.exit(code)
"""


def _hashes(count: int) -> bytes:
    return b'{"hashes":[' + b'"aa",' * (count - 1) + b'"aa"]}'


FAMILIES: dict[str, tuple[Callable[[], bytes], str]] = {
    "200 MB of zeros": (lambda: b"\0" * (200 << 20), "json-too-large"),
    "200 MB of brackets": (lambda: b"[" * (200 << 20), "json-too-large"),
    "200 MB of one string": (lambda: b'"' + b"x" * (200 << 20) + b'"', "json-too-large"),
    "2 million hashes": (lambda: _hashes(2_000_000), "json-too-long"),
    "hashes up to the limit of bytes": (lambda: _hashes((_SOME - 20) // 5), "json-too-long"),
    "objects up to the limit of bytes": (
        lambda: b"[" + b"{}," * ((_SOME - 20) // 3) + b"{}]",
        "json-too-long",
    ),
    "pairs up to the limit of bytes": (
        lambda: b'{"a":' * 15 + b"{" + b'"a":1,' * 2_500_000 + b'"a":1}' + b"}" * 15,
        "json-too-long",
    ),
    "10,000 levels": (lambda: b"[" * 10_000 + b"]" * 10_000, "json-too-deep"),
    "10,000 levels of objects": (lambda: b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "json-too-deep"),
    "8 million levels": (lambda: b"[" * (_SOME // 2) + b"]" * (_SOME // 2), "json-too-long"),
    "brackets up to the limit of bytes": (lambda: b"[" * _SOME, "json-too-long"),
    "a string that never ends": (lambda: b'"' + b"\\\\" * (_SOME // 2 - 1), "json-syntax"),
    "one string up to the limit of bytes": (lambda: b'"' + b"x" * (_SOME - 2) + b'"', "json-too-long"),
    "a number of 16 MB": (lambda: b"1" * _SOME, "json-number"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_by_the_command(name: str, forge: Forge, tmp_path: Path) -> None:
    make, reason = FAMILIES[name]
    bundle, root = tmp_path / "bundle", tmp_path / "root"
    bundle.write_bytes(make())
    root.write_bytes(forge.root_bytes)
    arguments = ["facts", str(bundle), "--root", str(root), "--json"]
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == Exit.INPUT
    assert f'"reason": "{reason}"' in ended.stdout
    assert int(ended.stderr.split()[-1]) * 1024 < MEMORY


@pytest.mark.parametrize("name", FAMILIES)
def test_in_process(name: str) -> None:
    make, reason = FAMILIES[name]
    with pytest.raises(InputError) as caught:
        read_bundle(make())
    assert caught.value.reason == reason


def test_a_bundle_with_as_many_hashes_as_a_tree_can_have_is_within_bounds(
    forge: Forge, statement: bytes
) -> None:
    bundle: Json = forge.dsse(statement)
    path = "verificationMaterial.tlogEntries.0.inclusionProof.hashes"
    root = found(bundle, "verificationMaterial.tlogEntries.0.inclusionProof.rootHash")
    assert len(read_bundle(canonical(changed(bundle, path, [root] * 64))).entry.proof.hashes) == 64
    with pytest.raises(InputError) as caught:
        read_bundle(canonical(changed(bundle, path, [root] * (LIMITS.items + 1))))
    assert caught.value.reason == "json-too-long"


def test_values_of_the_whole_document_are_counted() -> None:
    limits = strictjson.Limits(values=6)
    strictjson.loads(b'"' + b'\\"' * 22 + b'"', limits=limits)
    with pytest.raises(InputError) as caught:
        strictjson.loads(b'"' + b'\\"' * 23 + b'"', limits=limits)
    assert caught.value.reason == "json-too-long"
    strictjson.loads(b'[[1,2],[3,4],",,,,,,,,"]', limits=limits)
    with pytest.raises(InputError) as caught:
        strictjson.loads(b"[[1,2],[3,4],[5,6,7]]", limits=limits)
    assert caught.value.reason == "json-too-long"
