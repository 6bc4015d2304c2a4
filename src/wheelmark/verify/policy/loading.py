"""Loading a policy: the document, and every root and key that it names, each checked against its digest.

``strict`` is for what acts without anybody looking, ``wheelmark install`` and deploy hooks: it refuses a policy
that others could have written, or whose roots or keys they could (``permissions``).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from wheelmark import digests
from wheelmark.errors import ConfigError
from wheelmark.plainfiles import read_named
from wheelmark.trust import keys, roots, state
from wheelmark.trust.keys import ManagedKey
from wheelmark.trust.roots import Root
from wheelmark.verify.policy import permissions
from wheelmark.verify.policy.model import Document, Example, Policy, RootRule, Signer
from wheelmark.verify.policy.reader import MAX_BYTES, read_document

_MAX_KEY = 1 << 16


def load_policy(path: Path, *, strict: bool = False) -> Policy:
    """The policy in ``path``, with its roots and keys.

    Args:
        path: The file.
        strict: Refuse a policy, root or key that somebody else than root or this user could have written.

    Raises:
        ConfigError: The policy, or a root or key that it names, cannot be used.
    """
    if strict:
        data = permissions.read_owned(path, MAX_BYTES + 1)
    else:
        fix = "name a policy file that you may read"
        data = read_named(path, MAX_BYTES + 1, what="the policy: ", fix=fix, reason="policy-absent")
    return read_policy(data, source=str(path), folder=path.parent, strict=strict)


def read_policy(data: bytes, *, source: str, folder: Path, strict: bool = False) -> Policy:
    """A policy from its bytes.

    Args:
        data: TOML.
        source: How messages name it.
        folder: What relative paths of roots, keys and examples are relative to.
        strict: As ``load_policy``.

    Raises:
        ConfigError: The policy, or a root or key that it names, cannot be used.
    """
    document = read_document(data, source=source)
    loaded = tuple(_root(rule, folder, strict=strict) for rule in document.root)
    _check_different(loaded, source)
    signers, managed = _keys(document.signer, folder, strict=strict)
    return Policy(
        source=source,
        sha256=digests.sha256(data),
        roots=loaded,
        signers=signers,
        requirements=document.require,
        keys=managed,
        denials=document.deny,
        examples=_examples(document, folder),
        development=document.development,
    )


def _root(rule: RootRule, folder: Path, *, strict: bool) -> Root:
    if rule.tuf:
        root = _updated(rule, strict=strict)
    elif rule.path is not None:
        path = folder / rule.path
        if strict:
            permissions.check_ownership(path)
        # By its digest, whatever was put there since: these are the bytes that the policy means.
        root = roots.load_root(
            path,
            name=rule.name,
            sha256=rule.sha256,
            issuers=rule.issuers,
            level=rule.level,
            canonical=rule.canonical,
        )
    else:
        root = roots.this_machine(name=rule.name, issuers=rule.issuers, level=rule.level)
        if strict:
            permissions.check_ownership(state.embedded_root_path())
    return dataclasses.replace(root, second_opinion=rule.second_opinion)


def _updated(rule: RootRule, *, strict: bool) -> Root:
    from wheelmark.trust import updating  # noqa: PLC0415 - only a policy that names such a root pays for it

    found = updating.updated_root(rule.tuf, bootstrap_sha256=rule.sha256)
    if strict:
        permissions.check_ownership(found.path)
    root = roots.read_root(
        found.data, name=rule.name, issuers=rule.issuers, level=rule.level, canonical=rule.canonical
    )
    age = dt.timedelta(days=rule.max_root_age) if rule.max_root_age else None
    return dataclasses.replace(root, vouched=found.vouched, max_age=age)


def _check_different(loaded: Sequence[Root], source: str) -> None:
    """One root under two names would vouch for the issuers of both: whose word counts is then not said."""
    by_digest: dict[str, str] = {}
    for root in loaded:
        if root.sha256 in by_digest:
            raise ConfigError(
                f"policy {source}: roots {by_digest[root.sha256]!r} and {root.name!r} are the same file",
                fix="name a root once, with all issuers that it may vouch for",
                reason="policy-contradiction",
            )
        by_digest[root.sha256] = root.name


def _keys(
    signers: Sequence[Signer], folder: Path, *, strict: bool
) -> tuple[tuple[Signer, ...], tuple[ManagedKey, ...]]:
    """The signers, those of a key with its id, and the keys."""
    found: list[Signer] = []
    managed: dict[tuple[str, str], ManagedKey] = {}
    for signer in signers:
        if signer.key is None:
            found.append(signer)
            continue
        path = folder / signer.key
        if strict:
            permissions.check_ownership(path)
        key = _key(path, signer)
        if (signer.root, key.key_id) in managed:
            raise ConfigError(
                f"signer {signer.name!r}: another signer has the key in {path} too",
                cause="two files with one key, or one signer under two names",
                fix="name one signer in both places of [[require]]",
                reason="policy-contradiction",
            )
        managed[signer.root, key.key_id] = key
        found.append(dataclasses.replace(signer, key=path, key_id=key.key_id))
    return tuple(found), tuple(managed.values())


def _key(path: Path, signer: Signer) -> ManagedKey:
    fix = "paths are relative to the policy"
    data = read_named(
        path, _MAX_KEY, what=f"the key of signer {signer.name!r}: ", fix=fix, reason="key-absent"
    )
    if digests.sha256(data) != signer.sha256:
        raise ConfigError(
            f"signer {signer.name!r}: {path} has sha256 {digests.sha256(data)}, the policy names {signer.sha256}",
            cause="the file was replaced, or the policy is older than the key",
            fix="compare both digests with the key owner's, then correct the policy",
            reason="key-digest",
        )
    return keys.read_key(data, root=signer.root, what=f"the key {path} of signer {signer.name!r}")


def _examples(document: Document, folder: Path) -> tuple[Example, ...]:
    return tuple(dataclasses.replace(item, path=folder / item.path) for item in document.example)
