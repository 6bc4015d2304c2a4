"""What a requirement asks beside signers and gates: builder, source, SBOMs, machines, deny list, clock; and the steps."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import Any

import pytest

import wheelmaking
from judging import AT, NOW, Bench, facts, provenance, sbom
from releasing import part
from wheelmark.attest.predicates import PROVENANCE, Provenance
from wheelmark.attest.resource import Resource
from wheelmark.attest.statement import Statement, Subject
from wheelmark.binaries.kernelmanifest import KernelManifest, read_kernel_manifest
from wheelmark.errors import ConfigError, Exit
from wheelmark.manifest import NAME, ReleaseManifest
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.conditions.provenance import differing_parameters
from wheelmark.verify.facts import Facts
from wheelmark.verify.policy import Denial, Requirement
from wheelmark.verify.verdict import exit_code

SOURCE = "https://github.com/example/kernels"


def made_from(bench: Bench, *uris: str, builder: str = "https://b.example/1", **members: Any) -> list[Facts]:
    predicate = Provenance(
        external_parameters={},
        resolved_dependencies=tuple(Resource(uri=uri) for uri in uris),
        builder_id=builder,
    )
    subjects = (Subject(name=bench.made.name, sha256=bench.made.sha256), *members.get("subjects", ()))
    statement = Statement(subjects=subjects, predicate_type=PROVENANCE, predicate=predicate.as_predicate())
    return [facts(statement), *bench.good()[1:]]


@pytest.mark.parametrize(
    "builder", ["https://b.example/2", "https://b.example/1/", "https://B.example/1", "b"]
)
def test_a_builder_that_the_policy_does_not_name_is_refused(bench: Bench, builder: str) -> None:
    asking = bench.asking(builders=("https://b.example/1", "https://b.example/3"))
    assert asking.refuses(made_from(bench, builder=builder)) == {"builder"}
    asking.accepts(made_from(bench))


@pytest.mark.parametrize(
    ("uris", "good"),
    [
        ((f"git+{SOURCE}",), True),
        ((f"git+{SOURCE}@refs/tags/v1",), True),
        (("pkg:pypi/torch@2", f"git+{SOURCE}@refs/heads/a@b"), True),
        ((), False),
        ((SOURCE,), False),
        ((f"git+{SOURCE}.git",), False),
        ((f"git+{SOURCE}2@refs/tags/v1",), False),
        ((f"git+https://user@github.com/example/kernels",), False),  # noqa: F541 - one list of equals
        ((f"git+{SOURCE.replace('https', 'http')}",), False),
        ((f"git+https://evil.example/@{SOURCE}",), False),
        ((f"git+{SOURCE.upper()}",), False),
    ],
)
def test_the_source_is_among_the_resolved_dependencies(
    bench: Bench, uris: tuple[str, ...], good: bool
) -> None:
    asking = bench.asking(sources=(SOURCE,))
    if good:
        asking.accepts(made_from(bench, *uris))
    else:
        assert asking.refuses(made_from(bench, *uris)) == {"source"}


def release(**changes: Any) -> ReleaseManifest:
    made = ReleaseManifest(
        project="demo", version="1.0", targets=("b", "a"), not_built=(), snapshot=False, entries=(), levels={}
    )
    return dataclasses.replace(made, **changes)


def test_the_provenance_says_of_the_release_what_the_release_says() -> None:
    parameters = {"project": "demo", "version": "1.0", "targets": ["a", "b"], "snapshot": False}
    same = Provenance(external_parameters=parameters, resolved_dependencies=(), builder_id="b")
    assert not list(differing_parameters(same, release()))
    changes: list[dict[str, Any]] = [
        {"project": "x"},
        {"version": "2"},
        {"targets": ("a",)},
        {"snapshot": True},
    ]
    for change in changes:
        (text,) = differing_parameters(same, release(**change))
        assert text.startswith(next(iter(change)))
    for name in parameters:
        fewer = {key: value for key, value in parameters.items() if key != name}
        (text,) = differing_parameters(dataclasses.replace(same, external_parameters=fewer), release())
        assert text.startswith(name)
    foreign = dataclasses.replace(same, external_parameters={}, build_type="https://other.example/v1")
    assert not list(differing_parameters(foreign, release()))


# Row 32: two documents for one wheel.
def test_each_document_and_each_signed_sbom_is_compared(bench: Bench) -> None:
    second = json.loads(bench.made.sbom)
    second["serialNumber"] = "urn:uuid:00000000-0000-4000-8000-000000000001"
    data = json.dumps(second).encode()
    both = (bench.made.sbom, data)
    signed = [*bench.good(), facts(sbom(bench.made, data))]
    bench.accepts(signed, documents=both)
    bench.accepts(signed, documents=(data, bench.made.sbom))
    assert bench.refuses(signed) == {"sbom-document"}
    assert bench.refuses(documents=both) == {"sbom-document"}
    assert bench.refuses(documents=()) == {"sbom-document"}
    other = part(files={"demo_kernels/other.py": b"x"}).sbom
    assert bench.refuses(
        [*bench.good(), facts(sbom(bench.made, other))], documents=(bench.made.sbom, other)
    ) == {"sbom-subject"}


# The machines that it is for.
@pytest.fixture(scope="module")
def kernels() -> KernelManifest:
    files = wheelmaking.gpu_files("sm90")
    return read_kernel_manifest(files[f"{wheelmaking.FOLDER}/manifest.json"])


def needing(kernels: KernelManifest, *drivers: str) -> KernelManifest:
    kernel = kernels.kernels[0]
    first = kernel.variants[0]
    variants = tuple(
        dataclasses.replace(
            first,
            name=f"v{i}",
            object=dataclasses.replace(first.object, file=f"{i}.cubin"),
            min_driver=driver,
        )
        for i, driver in enumerate(drivers)
    )
    return dataclasses.replace(kernels, kernels=(dataclasses.replace(kernel, variants=variants),))


@pytest.mark.parametrize(
    ("there", "needed", "good"),
    [
        ("570.26", ("570.26",), True),
        ("570.100", ("570.26", "525.60.13"), True),
        ("570.26.1", ("570.26",), True),
        ("570.26", ("570.26.1",), False),
        ("570.3", ("570.26",), False),
        ("570.26", ("525.60.13", "580.65"), False),
        ("newest", ("525.60.13",), False),
    ],
)
def test_kernels_that_need_a_newer_driver_are_refused(
    bench: Bench, kernels: KernelManifest, there: str, needed: tuple[str, ...], good: bool
) -> None:
    asking = bench.asking(driver=there).of(kernels=needing(kernels, *needed))
    if good:
        asking.accepts()
    else:
        assert asking.refuses() == {"driver-too-new"}


def test_what_is_not_known_of_drivers_is_told(bench: Bench, kernels: KernelManifest) -> None:
    verdict = bench.asking(driver="570.26").of(kernels=needing(kernels, "")).accepts()
    assert any("oldest driver" in note for note in verdict.notes)
    assert bench.asking(driver="570.26").accepts().notes == bench.accepts().notes


@pytest.mark.parametrize(
    ("declared", "there", "good"),
    [
        (("torch>=2.10,<2.14", "numpy"), ("2.10.0", "2.13.0"), True),
        (("torch>=2.10,<2.14",), ("2.13.0+cpu",), True),
        (("torch>=2.10,<2.14",), ("2.13.0.dev20260101",), True),
        (("torch",), ("2.13.0",), True),
        (("Torch>=2.10",), ("2.13.0",), True),
        (("torch>=2.10,<2.14",), ("2.14.0",), False),
        (("torch>=2.10,<2.14",), ("2.12.0", "2.9.1"), False),
        (("torch>=2.10", "torch<2.13; python_version < '3.12'"), ("2.13.0",), False),
        (("torch>=2.10; extra == 'gpu'",), ("2.13.0",), False),
        (("torchvision>=2",), ("2.13.0",), False),
        ((), ("2.13.0",), False),
        (("torch>=2.10", "not a requirement!"), ("2.13.0",), False),
        (("torch>=2.10",), ("newest",), False),
    ],
)
def test_each_torch_there_lies_in_the_declared_range(
    bench: Bench, declared: tuple[str, ...], there: tuple[str, ...], good: bool
) -> None:
    asking = bench.asking(torch=there).of(requires=declared)
    if good:
        asking.accepts()
    else:
        assert asking.refuses() == {"torch-range"}


# Row 42.
def test_denied_bytes_are_refused_whoever_signed_them(bench: Bench) -> None:
    file, inside = next(iter(bench.wheel.files.items()))
    release_digest = "7" * 64
    linked = made_from(bench, subjects=(Subject(name=NAME, sha256=release_digest),))
    for digest, name in ((bench.wheel.sha256, "the artifact"), (inside, file), (release_digest, NAME)):
        denying = bench.under(
            denials=(Denial(sha256="0" * 64, why="other"), Denial(sha256=digest, why="a leak"))
        )
        judged = denying.judge(linked)
        assert {verdict.reason for verdict in judged.verdicts} == {"denied"}  # type: ignore[union-attr]
        (step,) = [step for step in judged.steps if not step.holds]
        assert (step.rule, step.condition) == ("deny[1]", "deny")
        assert name in step.text
        assert step.text.endswith("a leak")
    bench.under(denials=(Denial(sha256="0" * 64, why="other"),)).accepts(linked)
    beside = bench.under(denials=(Denial(sha256=release_digest, why="x"),))
    assert beside.refuses(release_sha256=release_digest) == {"denied"}
    held = beside.of(linked_from=(release_digest,))
    assert held.refuses() == {"denied"}


# Row 39.
def test_a_clock_behind_what_this_machine_saw_is_refused(bench: Bench) -> None:
    seen = Circumstances(now=NOW, last_seen=NOW + dt.timedelta(microseconds=1))
    assert bench.refuses(at=seen) == {"clock-behind"}
    bench.accepts(at=Circumstances(now=NOW, last_seen=NOW))
    minute = dt.timedelta(minutes=1)
    bench.accepts(at=Circumstances(now=NOW, last_seen=NOW + minute, tolerance=minute))


def test_a_clock_without_a_zone_is_no_clock() -> None:
    with pytest.raises(ConfigError) as caught:
        Circumstances(now=NOW.replace(tzinfo=None))
    assert caught.value.reason == "clock-zone"


def test_a_root_that_is_too_old_ends_as_configuration(bench: Bench) -> None:
    roots = tuple(dataclasses.replace(root, max_age=dt.timedelta(days=1)) for root in bench.policy.roots)
    verdicts = bench.under(roots=roots).judge().verdicts
    assert exit_code(verdicts[0]) is Exit.CONFIG


# An artifact without a name of its own: an image.
def test_a_nameless_artifact_is_found_by_its_digest_alone(bench: Bench) -> None:
    nameless = bench.of(name="")
    wanted = nameless.asking(predicates=bench.rule.predicates[:1], gates=(), levels={}, unchecked=())
    elsewhere = facts(provenance(bench.made, name="registry.example/other/name"))
    wanted.accepts([elsewhere], documents=None, evidence_files=None, levels=None)
    of_index = facts(provenance(bench.made, name="index", sha256="5" * 64))
    assert wanted.refuses([of_index]) == {"predicate-missing"}
    wanted.of(linked_from=("5" * 64,)).accepts([of_index])


def test_a_rule_that_asks_for_nothing_accepts_nothing(bench: Bench) -> None:
    nothing = bench.asking(predicates=(), gates=(), levels={}, unchecked=())
    assert nothing.refuses([]) == {"no-bundle"}


# What `wheelmark policy explain` shows.
def test_each_condition_is_a_step_with_the_rule_that_it_is_of(bench: Bench, kernels: KernelManifest) -> None:
    asking = bench.asking(
        builders=("https://b.example/1",), sources=(SOURCE,), driver="570.26", torch=("2.13.0",)
    )
    asking = asking.of(requires=("torch",), kernels=needing(kernels, "525.60.13"))
    asking = asking.under(requirements=(bench.rule, asking.rule), denials=(Denial(sha256="0" * 64, why="w"),))
    judged = asking.judge(made_from(bench, f"git+{SOURCE}"))
    assert all(step.holds and step.text and step.subject == bench.wheel.path for step in judged.steps)
    found = {(step.rule, step.condition) for step in judged.steps}
    of_rule = {
        *("predicates", "builders", "sources", "sbom", "driver", "torch"),
        *(f"gates.{gate}" for gate in bench.rule.gates if not gate.startswith("image-")),
    }
    assert {condition for rule, condition in found if rule == "require[1]"} == of_rule
    assert found >= {
        ("always", "bytes"),
        ("always", "clock"),
        ("deny", "deny"),
        ("signer 'release'", "signers"),
    }


def test_a_refusal_names_the_bytes_and_leaves_a_step(bench: Bench) -> None:
    judged = bench.asking(builders=("https://other.example",)).judge()
    (verdict,) = judged.verdicts
    assert verdict.sha256 == bench.wheel.sha256
    (step,) = [step for step in judged.steps if not step.holds]
    assert step.condition == "builders"
    assert step.rule == "require"  # a rule that the policy does not hold has no place in it


def test_the_rule_of_a_policy_is_named_by_its_place(bench: Bench) -> None:
    place = bench.policy.requirements.index(bench.rule)
    assert {step.rule for step in bench.judge().steps} >= {f"require[{place}]"}
    assert isinstance(bench.rule, Requirement)
    assert AT.channel == ""
