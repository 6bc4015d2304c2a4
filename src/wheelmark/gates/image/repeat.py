"""Repeat: the same image built twice, in other surroundings, must have the same digest; and the one that is committed.

The second build is the one that the wheels' repeat gate compares with (``wheelmark.gates.repeat``). ``containers/digests.toml``
holds expected digests: an entry says which inputs (locks, recipe, payload, and the code that builds images) it is for. Like
is compared with like: of other inputs it says nothing, and the evidence says that it was not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheelmark import digests, stricttoml
from wheelmark.errors import ConfigError, InputError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.gates.contract import machine
from wheelmark.gates.image.context import ImageContext
from wheelmark.gates.image.differences import differences
from wheelmark.plainfiles import read_bounded
from wheelmark.targets import known_ids

NAME = "image-repeat"
EXPECTED = Path("containers") / "digests.toml"
_SHOWN = 20
_MAX_BYTES = 1 << 18


def run(context: ImageContext) -> Evidence:
    """Build again and compare.

    Raises:
        ConfigError: ``containers/digests.toml`` is malformed.
        CommandError: The second build failed.
    """
    second = context.second()
    known = read_expected(context.declaration.root).get(str(context.row.target), {})
    like = known.get("inputs") == context.inputs
    details: dict[str, Any] = {
        "inputs": context.inputs,
        "second": second.sha256,
        "expected": known.get("digest", "") if like else "UNCHECKED: no digest is committed for these inputs",
    }
    if second.inputs != context.inputs:
        return context.evidence(
            NAME,
            Verdict.UNCHECKED,
            Level.NONE,
            "the second build had other inputs; its bytes say nothing about these; next: nox -s build test",
            reason="other-toolchain",
            details={**details, "second_inputs": second.inputs},
        )
    if second.sha256 != context.sha256:
        try:
            found = differences(context.layout, context.sha256, second.layout, second.sha256)
        except InputError as error:
            return context.refused(NAME, error)
        return context.evidence(
            NAME,
            Verdict.FAILED,
            Level.STATIC,
            f"a second build differs: {'; '.join(found[:3])}",
            reason="not-reproducible",
            details={**details, "differences": list(found[:_SHOWN])},
            environment=machine(),
        )
    if like and known["digest"] != f"sha256:{context.sha256}":
        return context.evidence(
            NAME,
            Verdict.FAILED,
            Level.STATIC,
            f"{EXPECTED.as_posix()} has {known['digest']} for these inputs; this is sha256:{context.sha256}",
            reason="other-digest",
            details=details,
            environment=machine(),
        )
    also = (
        ""
        if like
        else "; not compared with a committed digest, which there is none of for these inputs (next: wheelmark baseline)"
    )
    summary = f"second build elsewhere has the same digest{also or ', and it is the committed one'}"
    return context.evidence(
        NAME, Verdict.PASSED, Level.STATIC, summary, details=details, environment=machine()
    )


def read_expected(root: Path) -> Mapping[str, Mapping[str, str]]:
    """Target -> ``inputs`` and ``digest``, as they are committed; empty where the project has no such file.

    Raises:
        ConfigError: It is malformed (``expected-digests``).
    """
    path = root / EXPECTED
    if not path.exists() and not path.is_symlink():
        return {}
    try:
        value = stricttoml.loads(read_bounded(path, _MAX_BYTES), limit=_MAX_BYTES)
    except InputError as error:
        raise _malformed(error.what) from error
    schema = value.pop("schema", None)
    if schema != 1 or isinstance(schema, bool):
        raise _malformed("has not schema = 1")
    for target, entry in value.items():
        if not isinstance(entry, dict) or set(entry) != {"inputs", "digest"}:
            raise _malformed(f"[{target}] needs inputs and digest, and nothing else")
        inputs, digest = entry["inputs"], entry["digest"]
        if not isinstance(inputs, str) or not digests.is_sha256(inputs):
            raise _malformed(f"[{target}] has inputs that are no sha256")
        if not isinstance(digest, str) or not digests.is_sha256(digest.removeprefix("sha256:")):
            raise _malformed(f"[{target}] has a digest that is not sha256:…")
        if target not in known_ids():
            raise _malformed(f"[{target}] is no target")
    return value


def expected_bytes(found: Mapping[str, Mapping[str, str]]) -> bytes:
    """The file that ``read_expected`` reads."""
    lines = [
        "# Digests of images, by the inputs that decide them. Written by `wheelmark baseline`; the gate image-repeat",
        "# compares like with like, and says so where there is nothing like it.",
        "schema = 1",
    ]
    for target, entry in sorted(found.items()):
        lines += ["", f"[{target}]", f'inputs = "{entry["inputs"]}"', f'digest = "{entry["digest"]}"']
    return ("\n".join(lines) + "\n").encode()


def _malformed(why: str) -> ConfigError:
    return ConfigError(
        f"{EXPECTED.as_posix()} {why}",
        fix="write it anew after a build: wheelmark baseline",
        reason="expected-digests",
    )
