"""One embedded domain for all tests of the verifier; bundles are made in process, without any socket."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from forging import Forge, forging
from judging import Bench, wheel_facts
from releasing import Part, part
from wheelmark.attest.statement import Statement, Subject
from wheelmark.trust import state
from wheelmark.verify.artifact import WheelFacts
from wheelmark.verify.facts import Examiner
from wheelmark.verify.policy import Kind, Policy, Requirement, load_policy


@pytest.fixture(scope="session")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with forging(tmp_path_factory.mktemp("domain") / "state") as made:
        yield made


@pytest.fixture(scope="session")
def other_forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    """Another instance, with keys of its own under the same names."""
    with forging(tmp_path_factory.mktemp("other") / "state") as made:
        yield made


@pytest.fixture(scope="session")
def examiner(forge: Forge) -> Examiner:
    return Examiner([forge.root()])


@pytest.fixture(scope="session")
def lenient(forge: Forge) -> Examiner:
    """Under the same root, for bundles that need not be canonical."""
    return Examiner([forge.root(canonical=False)])


@pytest.fixture(scope="session")
def statement() -> bytes:
    return Statement(
        subjects=(Subject(name="demo.bin", sha256="ab" * 32),),
        predicate_type="https://example.org/claim/v1",
        predicate={"says": "so"},
    ).as_bytes()


@pytest.fixture
def now() -> dt.datetime:
    # A second later than anything that a test signs: timestamps have whole seconds.
    return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)


REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def policy(forge: Forge) -> Policy:
    """The shipped policy for development, on the machine of ``forge``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(state.VARIABLE, str(forge.home))
        return load_policy(REPOSITORY / "policies" / "embedded-dev.toml")


@pytest.fixture(scope="session")
def made() -> Part:
    """A good CPU wheel with its SBOM and evidence."""
    return part()


@pytest.fixture(scope="session")
def wheel(made: Part) -> WheelFacts:
    """What the bytes of ``made`` say."""
    return wheel_facts(made)


@pytest.fixture(scope="session")
def rule(policy: Policy) -> Requirement:
    """What the shipped policy asks of ``made`` in a release."""
    return policy.requirement(Kind.RELEASE, "cpu-x86_64")


@pytest.fixture(scope="session")
def bench(made: Part, wheel: WheelFacts, rule: Requirement, policy: Policy) -> Bench:
    """All of it, to be changed in one thing."""
    return Bench(made, wheel, rule, policy)
