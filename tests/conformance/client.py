"""The client protocol of Sigstore's conformance suite, on Wheelmark's own verifier and signer.

Protocol: sigstore-conformance, ``docs/cli_protocol.md``. Exit code 0 is an accepted bundle, or a written one. A refusal is
one line on stderr, ``refused CODE: why``, and exit code 1. Without ``--trusted-root`` the public production instance is
trusted (``--staging``: the public staging instance), by the roots that the sigstore package carries.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from wheelmark import digests
from wheelmark.errors import InputError, RejectedError, WheelmarkError
from wheelmark.trust.keys import read_key
from wheelmark.trust.roots import read_root
from wheelmark.verify.circumstances import Circumstances
from wheelmark.verify.facts import Examiner
from wheelmark.verify.policy.model import Policy, Signer
from wheelmark.verify.signers import judge_signer

ROOT, NAME = "root", "the one asked for"
PRODUCTION, STAGING = "tuf-repo-cdn.sigstore.dev", "tuf-repo-cdn.sigstage.dev"
DIGEST = "sha256:"


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="client")
    commands = whole.add_subparsers(dest="command", required=True)
    sign = commands.add_parser("sign-bundle")
    sign.add_argument("--staging", action="store_true")
    sign.add_argument("--in-toto", action="store_true")
    sign.add_argument("--identity-token", required=True)
    sign.add_argument("--bundle", type=Path, required=True)
    sign.add_argument("--trusted-root", type=Path)
    sign.add_argument("--signing-config", type=Path)
    sign.add_argument("file", type=Path)
    sign.set_defaults(run=sign_bundle)
    verify = commands.add_parser("verify-bundle")
    verify.add_argument("--staging", action="store_true")
    verify.add_argument("--bundle", type=Path, required=True)
    verify.add_argument("--certificate-identity")
    verify.add_argument("--certificate-oidc-issuer")
    verify.add_argument("--key", type=Path)
    verify.add_argument("--trusted-root", type=Path)
    verify.add_argument("artifact", metavar="FILE_OR_DIGEST")
    verify.set_defaults(run=verify_bundle)
    return whole


def shipped(name: str, *, staging: bool) -> bytes:
    """A file of the public instance, as the sigstore package carries it."""
    folder = f"https%3A%2F%2F{STAGING if staging else PRODUCTION}"
    return (resources.files("sigstore") / "_store" / folder / name).read_bytes()


def artifact_digest(text: str) -> str:
    """sha256 of a file, or the digest itself: with the prefix, of the right length, and no path on disk."""
    stated = text.removeprefix(DIGEST)
    if text.startswith(DIGEST) and digests.is_sha256(stated) and not Path(text).exists():
        return stated
    return digests.sha256_file(Path(text))


def policy_of(args: argparse.Namespace) -> Policy:
    """One root and one signer."""
    by_key = args.key is not None
    if by_key == (args.certificate_identity is not None and args.certificate_oidc_issuer is not None):
        raise InputError(
            "either --key, or --certificate-identity and --certificate-oidc-issuer", reason="usage"
        )
    data = args.trusted_root.read_bytes() if args.trusted_root else None
    root = read_root(
        data or shipped("trusted_root.json", staging=args.staging),
        name=ROOT,
        issuers=() if by_key else (args.certificate_oidc_issuer,),
        level="named on the command line",
        canonical=False,
    )
    keys = [read_key(args.key.read_bytes(), root=ROOT, what=str(args.key))] if by_key else []
    signer = Signer(
        name=NAME,
        root=ROOT,
        issuer=args.certificate_oidc_issuer or "",
        identity=args.certificate_identity or "",
        key=args.key,
        key_id=keys[0].key_id if keys else "",
    )
    return Policy(
        source="the command line",
        sha256="",
        roots=(root,),
        signers=(signer,),
        requirements=(),
        keys=tuple(keys),
    )


def verify_bundle(args: argparse.Namespace) -> None:
    policy, artifact = policy_of(args), artifact_digest(args.artifact)
    facts = Examiner(policy.roots, policy.keys).examine(args.bundle.read_bytes(), artifact=artifact)
    judged = judge_signer(facts, policy, [NAME], Circumstances(now=dt.datetime.now(dt.UTC)))
    if isinstance(judged, tuple):
        raise RejectedError(judged[1], reason=judged[0])
    subjects = facts.statement.subjects if facts.statement is not None else ()
    if facts.statement is not None and artifact not in {subject.sha256 for subject in subjects}:
        raise RejectedError(f"the statement is not about {artifact}", reason="subject-digest")


def sign_bundle(args: argparse.Namespace) -> None:
    from wheelmark.sign import Domain  # noqa: PLC0415 - signing needs what verifying does not
    from wheelmark.sign.signer import Signer as BundleSigner  # noqa: PLC0415

    def part(path: Path | None, name: str) -> object:
        return json.loads(path.read_bytes() if path else shipped(name, staging=args.staging))

    config = {
        "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
        "trustedRoot": part(args.trusted_root, "trusted_root.json"),
        "signingConfig": part(args.signing_config, "signing_config.v0.2.json"),
    }
    signer = BundleSigner(
        domain=Domain.FILE, config=json.dumps(config).encode(), token=lambda: args.identity_token
    )
    data = args.file.read_bytes()
    args.bundle.write_bytes(signer.sign(data) if args.in_toto else signer.sign_artifact(data))


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        args.run(args)
    except WheelmarkError as error:
        print(f"refused {error.reason}: {error.what}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"refused unreadable: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
