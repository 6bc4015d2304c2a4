"""``wheelmark policy``: what a policy means, why it answered as it did, and whether it answers as it should."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wheelmark.verify import Report

NAME = "policy"
HELP = "say what a policy means, explain a verdict, run a policy's own examples, or print the schema"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each question."""
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")

    def step(name: str, text: str) -> argparse.ArgumentParser:
        # Without a default here, "--json" before the step's name would be overwritten.
        sub = steps.add_parser(name, help=text, description=text)
        sub.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document on stdout"
        )
        return sub

    check = step("check", "load a policy and say in words who may sign what, and what is asked")
    check.add_argument("policy", type=Path, metavar="FILE")
    check.add_argument(
        "--strict",
        action="store_true",
        help="as install and hooks: refuse one that others could have written",
    )
    explain = step("explain", "verify, and show every condition that was applied and what was found")
    explain.add_argument("path", type=Path, metavar="PATH", help="what is verified")
    explain.add_argument("--policy", type=Path, required=True, metavar="FILE")
    explain.add_argument("--channel", default="", metavar="C", help="the channel that it is wanted for")
    explain.add_argument(
        "--bundle", action="append", default=[], type=Path, metavar="B", help="a further bundle"
    )
    explain.add_argument("--reference", default="", metavar="R", help="the image in a layout directory")
    explain.add_argument("--target", default="", metavar="T", help="the target that an image has to be for")
    test = step("test", "run a policy's own examples; exit 1 where one is answered otherwise")
    test.add_argument("policy", type=Path, metavar="FILE")
    step("schema", "print the JSON Schema of a policy")


def run(args: argparse.Namespace) -> int:
    """Answer one question."""
    match args.step:
        case "check":
            return _check(args)
        case "explain":
            return _explain(args)
        case "test":
            return _test(args)
        case _:
            from wheelmark.verify.policy.schema import json_schema

            print(json.dumps(json_schema(), indent=2))
            return 0


def _check(args: argparse.Namespace) -> int:
    from wheelmark.verify import load_policy
    from wheelmark.verify.policy import words
    from wheelmark.verify.verdict import printable

    policy = load_policy(args.policy, strict=args.strict)
    if args.json:
        print(json.dumps(words.as_json(policy), indent=2))
    else:
        print("\n".join(printable(line) for line in words.as_table(policy).splitlines()))
    return 0


def _explain(args: argparse.Namespace) -> int:
    from wheelmark.errors import InputError
    from wheelmark.verify import load_policy, verify
    from wheelmark.verify.verdict import Report, refusal_of

    policy = load_policy(args.policy)
    try:
        report = verify(
            args.path,
            policy,
            now=dt.datetime.now(dt.UTC),
            bundles=args.bundle,
            reference=args.reference,
            target=args.target,
            channel=args.channel,
        )
    except InputError as error:
        verdict = refusal_of(str(args.path), error)
        report = Report(path=str(args.path), policy=policy.source, verdicts=(verdict,))
    if args.json:
        steps = [dataclasses.asdict(step) for step in report.steps]
        print(json.dumps({**report.as_json(), "steps": steps}, indent=2, sort_keys=True))
    else:
        print("\n".join([*_step_lines(report), report.as_table()]))
    return int(report.exit_code)


def _step_lines(report: Report) -> list[str]:
    """Each subject with the conditions that were applied to it, in order."""
    from wheelmark.verify.verdict import printable

    lines: list[str] = []
    subject = None
    for step in report.steps:
        if step.subject != subject:
            subject = step.subject
            lines.append(printable(f"{subject}:"))
        word = "holds" if step.holds else "FAILS"
        lines.append(printable(f"  {word}  {step.rule} {step.condition}: {step.text}"))
    failed = dict.fromkeys(f"{step.rule} {step.condition}" for step in report.steps if not step.holds)
    if failed:
        lines += ["", printable(f"decided by: {', '.join(failed)}")]
    return [*lines, ""] if lines else []


def _test(args: argparse.Namespace) -> int:
    from wheelmark.errors import Exit
    from wheelmark.verify import load_policy, verify
    from wheelmark.verify.policy.examples import run_examples
    from wheelmark.verify.policy.model import Example
    from wheelmark.verify.verdict import printable

    policy = load_policy(args.policy)

    def run_one(example: Example, now: dt.datetime) -> Report:
        return verify(example.path, policy, now=now, channel=example.channel)

    outcomes = run_examples(policy, run_one, now=dt.datetime.now(dt.UTC))
    failed = [outcome for outcome in outcomes if not outcome.holds]
    if args.json:
        rows = [outcome.as_json() for outcome in outcomes]
        print(json.dumps({"policy": policy.source, "passed": not failed, "examples": rows}, indent=2))
    else:
        for outcome in outcomes:
            word = "ok  " if outcome.holds else "FAIL"
            print(printable(f"{word}  {outcome.name}: expected {outcome.expected}, found {outcome.found}"))
        print(printable(f"{policy.source}: {len(outcomes) - len(failed)} of {len(outcomes)} examples hold"))
    return int(Exit.REJECTED if failed else Exit.OK)
