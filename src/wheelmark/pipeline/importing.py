"""Evidence from another machine: a GPU runner's result, taken into a release.

It counts at its level only if the runner signed it with its own identity and the operator's policy names that
runner; otherwise it is capped at ``static``. Either way it is marked as imported. Where it is stronger than what
this machine found for the same gate it takes that place; where it is weaker it stands beside it, as gate
``<gate>.imported``. Imports are kept beside the release directory, bound to the wheel's digest: another wheel,
and they are no longer about it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import shutil
from pathlib import Path

from packaging.utils import parse_wheel_filename

from wheelmark import digests, strictjson
from wheelmark.attest.predicates import TEST_RESULT, TestResult, read_test_result
from wheelmark.attest.statement import Statement, Subject
from wheelmark.errors import InputError, StateError, WheelmarkError
from wheelmark.evidence import Evidence, Level, Verdict
from wheelmark.pipeline.building import read_built
from wheelmark.pipeline.buildrecord import BuiltWheel
from wheelmark.pipeline.workspace import Workspace, holding
from wheelmark.release import ReleaseDirectory
from wheelmark.sign import Domain, open_signer
from wheelmark.targets import Target
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.evaluate import judge_signer
from wheelmark.verify.facts import Examiner
from wheelmark.verify.policy import Kind, Policy, Signer

SUFFIX = ".imported"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Imported:
    """One result of another machine."""

    evidence: Evidence
    """At the level at which it counts."""
    bundle: bytes | None
    """The runner's own bundle, where it confirms the evidence."""
    statement: bytes | None
    """What that bundle signs."""
    why: str
    """Why it counts at this level."""


def read_evidence_file(path: Path) -> Evidence:
    """One evidence record, as a gate on another machine wrote it.

    Raises:
        InputError: It cannot be read, or is no evidence record.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", reason="unreadable") from error
    return Evidence.from_json(strictjson.loads(data, what=str(path)))


def sign_evidence(
    evidence: Evidence, *, name: str, runner: str, domain: Domain, config: Path | None = None
) -> bytes:
    """A runner's own signature: a test-result statement that holds this evidence alone.

    Args:
        evidence: What the runner found.
        name: File name of the wheel.
        runner: Name of the runner; in the embedded domain its identity ends in it.
        domain: The trust domain.
        config: For the ``file`` domain.

    Returns:
        The bundle.
    """
    statement = Statement(
        subjects=(Subject(name=name, sha256=evidence.subject),),
        predicate_type=TEST_RESULT,
        predicate=TestResult.of([evidence]).as_predicate(),
    )
    identity = f"https://embedded.invalid/wheelmark/runner/{runner}"
    with open_signer(domain, config=config, name=identity) as signer:
        return signer.sign(statement.as_bytes())


@holding
def add_evidence(
    workspace: Workspace, evidence: Evidence, *, bundle: bytes | None = None, policy: Policy | None = None
) -> Imported:
    """Take one result into the release that was built here; ``test`` and ``sign`` then use it.

    Raises:
        InputError: It is about no wheel of this release (``evidence-subject``), or for another target or an
            undeclared gate (``evidence-target``, ``evidence-gate``).
        RejectedError: The bundle is bad evidence.
    """
    built = read_built(workspace)
    wheel = next((item for item in built.wheels if item.sha256 == evidence.subject), None)
    if wheel is None:
        raise InputError(
            f"the evidence is about sha256 {evidence.subject}, which is no wheel of {workspace.directory.root}",
            cause="the runner tested another build",
            fix="give the runner the wheels of this release",
            reason="evidence-subject",
        )
    if evidence.target != wheel.target:
        raise InputError(
            f"the evidence is for {evidence.target}, the wheel for {wheel.target}", reason="evidence-target"
        )
    gates = workspace.declaration.row(Target.parse(wheel.target)).gates
    if evidence.gate not in gates:
        raise InputError(
            f"{wheel.target} declares no gate {evidence.gate!r}",
            fix=f"gates here are: {', '.join(gates)}",
            reason="evidence-gate",
        )
    made = _weigh(evidence, wheel, bundle, policy)
    folder = _folder(workspace.directory, wheel)
    shutil.rmtree(folder / evidence.gate, ignore_errors=True)
    (folder / evidence.gate).mkdir(parents=True)
    (folder / evidence.gate / "evidence.json").write_bytes(digests.canonical_json(made.evidence.as_json()))
    if made.bundle is not None and made.statement is not None:
        (folder / evidence.gate / "bundle.json").write_bytes(made.bundle)
        (folder / evidence.gate / "statement.json").write_bytes(made.statement)
    return made


def imports_of(directory: ReleaseDirectory, wheel: BuiltWheel) -> tuple[Imported, ...]:
    """What was imported for exactly this wheel."""
    folder = _folder(directory, wheel)
    found = []
    for place in sorted(folder.iterdir()) if folder.is_dir() else []:
        confirmed = (place / "bundle.json").is_file()
        found.append(
            Imported(
                evidence=read_evidence_file(place / "evidence.json"),
                bundle=(place / "bundle.json").read_bytes() if confirmed else None,
                statement=(place / "statement.json").read_bytes() if confirmed else None,
                why="",
            )
        )
    return tuple(found)


def merge(own: tuple[Evidence, ...], imports: tuple[Imported, ...]) -> tuple[Evidence, ...]:
    """This machine's evidence with imports put in: the stronger one has the gate's name."""
    merged = {item.gate: item for item in own}
    for item in imports:
        evidence = item.evidence
        mine = merged.get(evidence.gate)
        if mine is None or _stronger(evidence, mine):
            merged[evidence.gate] = evidence
        else:
            name = f"{evidence.gate}{SUFFIX}"
            merged[name] = dataclasses.replace(evidence, gate=name)
    return tuple(merged.values())


def _stronger(imported: Evidence, mine: Evidence) -> bool:
    """A failure always counts; otherwise an answer beats none, and a higher level a lower one."""
    if mine.verdict is Verdict.FAILED:
        return False
    if imported.verdict is Verdict.FAILED or mine.verdict is Verdict.UNCHECKED:
        return imported.verdict is not Verdict.UNCHECKED
    return imported.verdict is Verdict.PASSED and imported.level.rank > mine.level.rank


def _weigh(evidence: Evidence, wheel: BuiltWheel, bundle: bytes | None, policy: Policy | None) -> Imported:
    """The level at which the result counts, and why."""
    marked = dataclasses.replace(evidence, imported=True)
    capped = dataclasses.replace(
        marked, level=Level.STATIC if evidence.level.at_least(Level.STATIC) else evidence.level
    )
    if bundle is None or policy is None:
        why = "no bundle of a runner" if bundle is None else "no policy that names runners"
        return Imported(evidence=capped, bundle=None, statement=None, why=f"{why}: capped at static")
    name = Path(wheel.path).name
    facts = Examiner(policy.roots, policy.keys).examine(bundle)
    rule = policy.requirement(Kind.RELEASE, wheel.target)
    circumstances = Circumstances(now=dt.datetime.now(tz=dt.UTC))
    _, version, _, _ = parse_wheel_filename(name)
    answer = judge_signer(facts, policy, rule.runners, circumstances, version=str(version))
    if not isinstance(answer, Signer):
        return Imported(evidence=capped, bundle=None, statement=None, why=f"{answer[1]}: capped at static")
    statement = facts.statement
    about = statement is not None and any(
        subject.name == name and subject.sha256 == wheel.sha256 for subject in statement.subjects
    )
    try:
        said = read_test_result(statement.predicate).evidence if statement and about else ()
    except WheelmarkError as error:
        raise InputError(f"the runner's statement is malformed: {error.what}", reason=error.reason) from error
    if evidence not in said:
        raise StateError(
            f"the runner {answer.name!r} signed another result than this one",
            cause="evidence and bundle belong to different runs",
            fix="take both files from the same run",
            reason="evidence-bundle",
        )
    return Imported(
        evidence=marked, bundle=bundle, statement=facts.payload, why=f"signed by runner {answer.name!r}"
    )


def _folder(directory: ReleaseDirectory, wheel: BuiltWheel) -> Path:
    return directory.state / "imported" / wheel.sha256
