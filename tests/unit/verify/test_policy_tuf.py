"""A root that TUF keeps fresh, as a policy names it: by how trust in it began, with an age."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

import tuf_state
from forging import Forge
from wheelmark import digests
from wheelmark.errors import ConfigError
from wheelmark.trust import state, updating
from wheelmark.verify.policy import load_policy

VOUCHED = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
POLICY = f"""
schema = 1
[[root]]
name = "fresh"
tuf = "ours"
sha256 = "{digests.sha256(tuf_state.FIRST)}"
max_root_age = 30
issuers = ["https://issuer.example"]
level = "a word"
[[signer]]
name = "release"
root = "fresh"
issuer = "https://issuer.example"
identity = "https://example.org/release"
[[require]]
kind = "wheel"
predicates = ["provenance"]
signers = ["release"]
"""


@pytest.fixture
def policy(tmp_path: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy, and the state that `wheelmark trust update` leaves behind."""
    home = tmp_path / "state"
    tuf_state.write(home, "ours", forge.root_bytes, vouched=VOUCHED)
    monkeypatch.setenv(state.VARIABLE, str(home))
    path = tmp_path / "policy.toml"
    path.write_text(POLICY, encoding="utf-8")
    path.chmod(0o644)
    return path


def test_the_root_comes_with_its_age(policy: Path, forge: Forge) -> None:
    (root,) = load_policy(policy).roots
    assert root.data == forge.root_bytes
    assert (root.name, root.level, root.issuers) == ("fresh", "a word", ("https://issuer.example",))
    assert root.vouched == VOUCHED
    assert root.max_age == dt.timedelta(days=30)
    policy.write_text(POLICY.replace("max_root_age = 30\n", ""), encoding="utf-8")
    assert load_policy(policy).roots[0].max_age is None


def test_trust_that_began_elsewhere(policy: Path) -> None:
    policy.write_text(POLICY.replace(digests.sha256(tuf_state.FIRST), "ab" * 32), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_policy(policy)
    assert caught.value.reason == "root-digest"


def test_no_update_yet(policy: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(ConfigError) as caught:
        load_policy(policy)
    assert caught.value.reason == "root-absent"
    assert "wheelmark trust update" in caught.value.fix


def test_strict_asks_who_could_have_written_it(policy: Path) -> None:
    assert load_policy(policy, strict=True).roots[0].vouched == VOUCHED
    path = updating.stored_update("ours").path
    path.chmod(0o622)
    with pytest.raises(ConfigError) as caught:
        load_policy(policy, strict=True)
    assert caught.value.reason == "policy-permissions"
