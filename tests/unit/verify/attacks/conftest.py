"""A wheel with its signed provenance beside it, and what the verifier answers once either is spoiled."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from asking import Expect, Stand
from forging import Forge
from releasing import part
from wheelmark import digests
from wheelmark.trust import state
from wheelmark.verify.policy import Policy, read_policy


@pytest.fixture
def expect(request: pytest.FixtureRequest) -> Iterator[Expect]:
    made = Expect(request)
    yield made
    assert made.count, "nothing was asked"


@pytest.fixture
def stand(forge: Forge, tmp_path: Path, policy: Policy, now: dt.datetime, expect: Expect) -> Stand:
    made = Stand(forge=forge, folder=tmp_path, policy=policy, now=now, part=part())
    expect.accepted(made.ask(made.bundle()))
    return made


Written = Callable[[str], Policy]


@pytest.fixture
def written(forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Reads the text of a policy, on the machine of ``forge``."""
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    (tmp_path / "root.json").write_bytes(forge.root_bytes)
    digest = digests.sha256(forge.root_bytes)
    return lambda text: read_policy(
        text.replace("ROOT-SHA256", digest).encode(), source=str(tmp_path / "policy.toml"), folder=tmp_path
    )
