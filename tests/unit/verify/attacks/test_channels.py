"""Rows 31 and 33: what may go into a channel."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from asking import SHIPPED, Asked, Expect, ask, command
from forging import Forge
from releasing import draft, part
from rows import row
from wheelmark import digests
from wheelmark.attest.predicates import PROMOTION, Promotion
from wheelmark.attest.statement import Statement, Subject
from wheelmark.manifest import NAME
from wheelmark.sign import embedded
from wheelmark.verify import Memory, verify_release
from wheelmark.verify.policy import Policy

PROMOTER = embedded.runner_identity("promoter")
CHANNELS = f"""
[[signer]]
name = "promoter"
root = "embedded"
issuer = "{embedded.ISSUER}"
identity = "{PROMOTER}"
""" + "".join(
    f"""
[[require]]
kind = "release"
channel = "{channel}"
promoters = ["promoter"]
predicates = ["provenance"]
signers = ["release"]
"""
    for channel in ("prod", "staging")
)
TEXT = SHIPPED.read_text(encoding="utf-8") + CHANNELS


@pytest.fixture(scope="module")
def old(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draft().write(tmp_path_factory.mktemp("old") / "dist", forge.sign, root=forge.root_bytes)


@pytest.fixture(scope="module")
def new(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = draft(part(files={"demo_kernels/__init__.py": b"NEW = 1\n"}))
    return made.write(tmp_path_factory.mktemp("new") / "dist", forge.sign, root=forge.root_bytes)


Promote = Callable[..., Path]


@pytest.fixture
def promoted(forge: Forge, tmp_path: Path) -> Promote:
    """A copy of a release with a promotion put into it."""
    count = iter(range(100))

    def promote(
        release: Path,
        *,
        channel: str = "prod",
        sequence: int = 5,
        days: float = 7,
        by: str = PROMOTER,
        about: str = "",
    ) -> Path:
        dist = tmp_path / f"promoted-{next(count)}"
        shutil.copytree(release, dist)
        now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        said = Promotion(
            verifier_id="https://example.org/promoter",
            time=now - dt.timedelta(days=10),
            project="demo-kernels",
            channel=channel,
            policy_sha256="c" * 64,
            sequence=sequence,
            expires=now + dt.timedelta(days=days),
        )
        statement = Statement(
            subjects=(Subject(name=NAME, sha256=about or digests.sha256_file(dist / NAME)),),
            predicate_type=PROMOTION,
            predicate=said.as_predicate(),
        ).as_bytes()
        (dist / "statements/promotion.json").write_bytes(statement)
        (dist / "bundles/promotion.sigstore.json").write_bytes(forge.sign(statement, by))
        return dist

    return promote


@pytest.fixture
def asked(written: Callable[[str], Policy], now: dt.datetime, tmp_path: Path) -> Callable[..., Asked]:
    """Asks for a channel, with this machine's memory."""
    policy, memory = written(TEXT), Memory(tmp_path / "memory")
    return lambda dist, channel="prod": ask(
        lambda: verify_release(dist, policy, now=now, channel=channel, memory=memory)
    )


# Row 31.
@row(31, "promotion-rollback")
@pytest.mark.parametrize("sequence", [6, 100])
def test_an_older_release_after_a_newer(
    old: Path, new: Path, promoted: Promote, asked: Callable[..., Asked], expect: Expect, sequence: int
) -> None:
    expect.accepted(asked(promoted(old)))
    expect.accepted(asked(promoted(new, sequence=sequence)))
    expect(asked(promoted(old)), "promotion-rollback")
    expect(asked(promoted(old, sequence=sequence - 1)), "promotion-rollback")
    expect.accepted(asked(promoted(new, sequence=sequence)))


@row(31, "promotion-expired")
@pytest.mark.parametrize("days", [-0.001, -1, -9])
def test_a_promotion_that_is_over(
    old: Path, promoted: Promote, asked: Callable[..., Asked], expect: Expect, days: float
) -> None:
    expect(asked(promoted(old, days=days)), "promotion-expired")


# Row 33.
@row(33, "promotion-channel")
@pytest.mark.parametrize(("says", "wanted"), [("staging", "prod"), ("prod", "staging"), ("prod2", "prod")])
def test_a_promotion_for_another_channel(
    old: Path, promoted: Promote, asked: Callable[..., Asked], expect: Expect, says: str, wanted: str
) -> None:
    expect(asked(promoted(old, channel=says), wanted), "promotion-channel")


@row(33, "promotion-signer")
@pytest.mark.parametrize(
    "by",
    [
        embedded.RELEASE_IDENTITY,
        embedded.runner_identity("promoter2"),
        f"{PROMOTER}/",
        "https://embedded.invalid/x",
    ],
)
def test_a_promotion_by_somebody_else(
    old: Path, promoted: Promote, asked: Callable[..., Asked], expect: Expect, by: str
) -> None:
    expect(asked(promoted(old, by=by)), "promotion-signer", also=("signer-identity",))


@row(33, "promotion-missing")
def test_no_promotion(old: Path, asked: Callable[..., Asked], expect: Expect) -> None:
    expect(asked(old), "promotion-missing")


@row(33, "subject-digest", "promotion-missing")
def test_the_promotion_of_another_release(
    old: Path, new: Path, promoted: Promote, asked: Callable[..., Asked], expect: Expect
) -> None:
    dist = promoted(old, about=digests.sha256_file(new / NAME))
    expect(asked(dist), "subject-digest", also=("promotion-missing",))


@row(31, "promotion-expired")
@row(33, "promotion-channel", "promotion-missing")
@pytest.mark.parametrize("code", ["promotion-expired", "promotion-channel", "promotion-missing"])
def test_the_command_asks_for_the_channel(
    forge: Forge, old: Path, promoted: Promote, tmp_path: Path, expect: Expect, code: str
) -> None:
    policy = tmp_path / "channels.toml"
    policy.write_text(TEXT, encoding="utf-8")
    dist = {
        "promotion-expired": lambda: promoted(old, days=-1),
        "promotion-channel": lambda: promoted(old, channel="staging"),
    }.get(code, lambda: old)()
    arguments = ("--channel", "prod", "--memory", tmp_path / "memory")
    expect(command(forge, "verify", dist, "--policy", policy, *arguments), code)
