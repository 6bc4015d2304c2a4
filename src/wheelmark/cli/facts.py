"""``wheelmark facts``: what a bundle proves under given roots, step by step. No judgement: that is ``verify``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wheelmark.attest.statement import Statement
    from wheelmark.trust.keys import ManagedKey
    from wheelmark.trust.roots import Root
    from wheelmark.verify.facts import Facts

NAME = "facts"
HELP = "print what bundles prove under a policy's roots, or one root: who signed, what, when; no judgement"
_PREFIX = "sha256:"
_LARGEST = 8 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Bundles, and under what to look at them."""
    parser.add_argument("bundles", type=Path, nargs="+", metavar="BUNDLE", help="Sigstore bundles")
    trust = parser.add_mutually_exclusive_group(required=True)
    trust.add_argument("--policy", type=Path, metavar="FILE", help="its roots and keys")
    trust.add_argument(
        "--root", type=Path, metavar="FILE", help="a trusted root, or a client trust configuration"
    )
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="PEM",
        help="with --root: a public key that counts",
    )
    parser.add_argument(
        "--artifact",
        default="",
        metavar="FILE|sha256:…",
        help="what a signature over a digest is to be about; of a statement's subjects, the ones to print",
    )


def run(args: argparse.Namespace) -> int:
    """Examine each bundle; exit 0 where all prove something, else the code of the worst refusal."""
    from wheelmark.errors import Exit, WheelmarkError
    from wheelmark.verify.facts import Examiner
    from wheelmark.verify.verdict import printable

    roots, keys = _trust(args)
    examiner, artifact = Examiner(roots, keys), _artifact(args.artifact)
    document: list[dict[str, Any]] = []
    codes: list[int] = []
    for path in args.bundles:
        try:
            facts = examiner.examine(_read(path), artifact=artifact)
        except WheelmarkError as error:
            codes.append(int(error.exit_code))
            document.append({"bundle": str(path), **error.as_json()})
            if not args.json:
                print(printable(f"{path}: refused ({error.reason}): {error.what}"), file=sys.stderr)
            continue
        told = steps(facts, roots, artifact=artifact)
        document.append({"bundle": str(path), "facts": facts.as_json(), "steps": dict(told)})
        if not args.json:
            print(printable(str(path)))
            for number, (first, *more) in told:
                print(f"  {number}. {printable(first)}")
                for line in more:
                    print(f"       {printable(line)}")
    if args.json:
        print(json.dumps(document, indent=2))
    return int(Exit.REJECTED) if int(Exit.REJECTED) in codes else max(codes, default=int(Exit.OK))


def steps(facts: Facts, roots: tuple[Root, ...], *, artifact: str = "") -> list[tuple[int, list[str]]]:
    """What each step of the plan in ``wheelmark.verify.facts`` established: its number, and lines of text.

    Args:
        facts: Of one bundle.
        roots: Those that it was examined under.
        artifact: A sha256; of a statement's subjects only those with it are named, the others are counted.
    """
    root = next(item for item in roots if item.name == facts.root)
    if facts.key_id:
        who = f"key {facts.key_id}"
    else:
        who = f"{facts.identity}, vouched for by {facts.issuer}; certificate {facts.certificate_sha256}"
    claims = [f".{arc} {text}" for arc, text in sorted(facts.claims.items(), key=_arc)]
    if facts.statement is None:
        over, about = "the artifact's sha256", [f"no statement: the artifact {facts.artifact_sha256}"]
    else:
        over = "the envelope's payload type and payload"
        about = [f"{facts.statement.predicate_type}, about:"]
        about += _subjects(facts.statement, artifact)
    times = ", ".join(time.isoformat() for time in facts.times)
    canonical = ", in the one form that Wheelmark writes" if root.canonical else ""
    opinion = "sigstore-python agrees; " if root.second_opinion and not facts.key_id else ""
    place = f"entry {facts.log_index} of {facts.log_origin}"
    return [
        (1, [f"within bounds; sha256 {facts.bundle_sha256}"]),
        (2, [f"a bundle, every member known{canonical}"]),
        (3, [f"under the root {root.name} ({root.level}): {who}", *claims]),
        (4, [f"signed by that key, over {over}"]),
        (5, [f"logged as {facts.entry_kind}, {place}; included, and the checkpoint is the log's"]),
        (6, [f"at {times}, within every window of trust"]),
        (7, about),
        (8, [f"{opinion}not authenticated: {', '.join(facts.unauthenticated) or 'nothing'}"]),
    ]


def _subjects(statement: Statement, artifact: str) -> list[str]:
    found = [item for item in statement.subjects if artifact in {"", item.sha256}]
    lines = [f"{item.sha256}  {item.name}" for item in found]
    others = len(statement.subjects) - len(found)
    if not found:
        lines.append(f"{others} other artifacts, and not {artifact}")
    elif others:
        lines.append(f"and {others} more")
    return lines


def _arc(claim: tuple[str, str]) -> int:
    return int(claim[0])


def _trust(args: argparse.Namespace) -> tuple[tuple[Root, ...], tuple[ManagedKey, ...]]:
    from wheelmark.errors import ConfigError
    from wheelmark.trust.keys import read_key
    from wheelmark.trust.roots import read_root
    from wheelmark.verify.policy import load_policy

    if args.policy is not None:
        if args.key:
            raise ConfigError(
                "--key goes with --root; a policy names its own keys",
                fix="add a [[signer]] with key and sha256 to the policy",
                reason="policy-contradiction",
            )
        policy = load_policy(args.policy)
        return policy.roots, policy.keys
    name = args.root.name
    root = read_root(
        _read_file(args.root, "root-absent"),
        name=name,
        issuers=(),
        level="named on the command line",
        canonical=False,
    )
    keys = [read_key(_read_file(path, "key-absent"), root=name, what=str(path)) for path in args.key]
    return (root,), tuple(keys)


def _artifact(text: str) -> str:
    """sha256 of a file, or the digest itself: with its prefix, and where no file has that name."""
    from wheelmark import digests
    from wheelmark.plainfiles import open_plain

    stated = text.removeprefix(_PREFIX)
    if not text or (text.startswith(_PREFIX) and digests.is_sha256(stated) and not Path(text).exists()):
        return stated
    with open_plain(Path(text), follow=True) as stream:
        return digests.sha256_stream(stream)


def _read(path: Path) -> bytes:
    from wheelmark.plainfiles import read_bounded
    from wheelmark.verify.bundle import LIMITS

    return read_bounded(path, LIMITS.size)


def _read_file(path: Path, reason: str) -> bytes:
    from wheelmark.plainfiles import read_named

    return read_named(path, _LARGEST, fix="name a file that you may read", reason=reason)
