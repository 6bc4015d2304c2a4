"""``wheelmark evidence``: results of other machines."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from wheelmark.cli.arguments import add_workspace_arguments, workspace_of

NAME = "evidence"
HELP = "take a result of another machine into the release, or sign one as a runner"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``add`` and ``sign``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="take evidence into the release that was built here")
    add.add_argument("evidence", type=Path, help="evidence record, as tests/gpu/run.py writes it")
    add.add_argument("--bundle", type=Path, help="the runner's own signature of it")
    add.add_argument(
        "--policy", type=Path, help="policy that names the runner; without it the level is capped"
    )
    add_workspace_arguments(add)
    sign = actions.add_parser("sign", help="sign evidence under this runner's own identity")
    sign.add_argument("evidence", type=Path)
    sign.add_argument("--wheel", type=Path, required=True, help="the wheel that was tested")
    sign.add_argument("--runner", default="local", help="the runner's name (embedded domain)")
    sign.add_argument("--domain", choices=("embedded", "public", "file"), default="embedded")
    sign.add_argument("--config", type=Path, metavar="FILE", help="ClientTrustConfig for --domain file")
    sign.add_argument("--output", type=Path, required=True, help="where the bundle is written")


def run(args: argparse.Namespace) -> int:
    """Add or sign."""
    return _add(args) if args.action == "add" else _sign(args)


def _add(args: argparse.Namespace) -> int:
    from wheelmark.pipeline.importing import add_evidence, read_evidence_file
    from wheelmark.verify import load_policy

    made = add_evidence(
        workspace_of(args),
        read_evidence_file(args.evidence),
        bundle=args.bundle.read_bytes() if args.bundle else None,
        policy=load_policy(args.policy) if args.policy else None,
    )
    if args.json:
        print(json.dumps({"evidence": made.evidence.as_json(), "why": made.why}, indent=2))
    else:
        evidence = made.evidence
        print(
            f"{evidence.target} {evidence.gate}: {evidence.verdict.value} at {evidence.level.value} ({made.why})"
        )
        print("next step: nox -s test sign")
    return 0


def _sign(args: argparse.Namespace) -> int:
    from wheelmark import digests
    from wheelmark.errors import InputError
    from wheelmark.pipeline.importing import read_evidence_file, sign_evidence
    from wheelmark.sign import Domain

    evidence = read_evidence_file(args.evidence)
    if digests.sha256_file(args.wheel) != evidence.subject:
        raise InputError(f"the evidence is not about {args.wheel}", reason="evidence-subject")
    bundle = sign_evidence(
        evidence, name=args.wheel.name, runner=args.runner, domain=Domain(args.domain), config=args.config
    )
    args.output.write_bytes(bundle)
    if args.json:
        print(json.dumps({"bundle": str(args.output), "sha256": digests.sha256(bundle)}, indent=2))
    else:
        print(f"signed: {args.output}")
    return 0
