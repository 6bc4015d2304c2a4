"""Verification: bounded parsing, then cryptographic facts, then a pure policy, then a verdict.

``verify`` and the functions for each kind are what the command line and deploy hooks call; ``load_policy`` reads
the operator's word. Nothing here reads ``wheelmark.toml``, the network, or a trust root that the policy does
not name. The modules of each kind are imported when something of that kind is verified.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from wheelmark.errors import ConfigError, InputError
from wheelmark.verify.artifact import Asked
from wheelmark.verify.auditlog import AuditLog
from wheelmark.verify.circumstances import Circumstances, Now, machine_clock, time_of
from wheelmark.verify.factscache import FactsCache
from wheelmark.verify.memory import Memory
from wheelmark.verify.policy import Kind, Policy, load_policy
from wheelmark.verify.verdict import Accepted, Missing, Rejected, Report, Unchecked, Verdict
from wheelmark.verify.wheel import verify_one_wheel

__all__ = [
    "Accepted",
    "AuditLog",
    "FactsCache",
    "Memory",
    "Missing",
    "Now",
    "Policy",
    "Rejected",
    "Report",
    "Unchecked",
    "Verdict",
    "kind_of",
    "load_policy",
    "machine_clock",
    "verify",
    "verify_image",
    "verify_kernel_pack",
    "verify_release",
    "verify_wheel",
]


def verify(
    path: Path,
    policy: Policy,
    *,
    now: Now,
    bundles: Sequence[Path] = (),
    reference: str = "",
    target: str = "",
    channel: str = "",
    memory: Memory | None = None,
    audit_log: AuditLog | None = None,
    cache: FactsCache | None = None,
) -> Report:
    """Verify whatever lies at a path: a release directory, a wheel, an image layout or a kernel pack.

    Args:
        path: The file or directory.
        policy: Whom to trust and what to ask for.
        now: The verifier's clock, with a zone, or ``machine_clock``.
        bundles: Further bundles; not for a release.
        reference: Digest or tag of the image in a layout, or both (``TAG@DIGEST``); empty for the only one.
        target: Target that an image has to be for; empty for any.
        channel: The channel that it is wanted for; empty for none.
        memory: What this machine has seen; an accepted report is remembered.
        audit_log: Where the report is written down, before anything is accepted.
        cache: Facts of bundles and artifacts from earlier runs.

    Raises:
        InputError: It is none of these, cannot be read, or is no kind that bundles, reference or target are for.
        ConfigError: The policy has no requirement for it; or memory or audit log cannot be used.
    """
    kind = kind_of(path)
    _check_asked(path, kind, bundles=bundles, reference=reference, target=target)
    match kind:
        case Kind.RELEASE:
            return verify_release(
                path, policy, now=now, channel=channel, memory=memory, audit_log=audit_log, cache=cache
            )
        case Kind.WHEEL:
            return verify_wheel(
                path,
                policy,
                now=now,
                bundles=bundles,
                channel=channel,
                memory=memory,
                audit_log=audit_log,
                cache=cache,
            )
        case Kind.KERNEL_PACK:
            return verify_kernel_pack(
                path,
                policy,
                now=now,
                bundles=bundles,
                channel=channel,
                memory=memory,
                audit_log=audit_log,
                cache=cache,
            )
    return verify_image(
        path,
        policy,
        now=now,
        bundles=bundles,
        reference=reference,
        target=target,
        channel=channel,
        memory=memory,
        audit_log=audit_log,
        cache=cache,
    )


def kind_of(path: Path) -> Kind:
    """What lies at a path, by the one file that makes it so.

    Raises:
        InputError: None of the kinds (``not-a-release``).
    """
    if path.suffix == ".whl" and not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for names that are too long
        return Kind.WHEEL
    from wheelmark import manifest  # noqa: PLC0415 - as the docstring says: what is not verified is not imported
    from wheelmark.binaries import kernelmanifest  # noqa: PLC0415
    from wheelmark.oci import layout  # noqa: PLC0415

    for name, kind in (
        (manifest.NAME, Kind.RELEASE),
        (layout.MARK, Kind.IMAGE),
        (kernelmanifest.NAME, Kind.KERNEL_PACK),
    ):
        if os.path.isfile(path / name):  # noqa: PTH113 - as above
            return kind
    if not os.path.lexists(path):
        raise _nothing_at(path)
    raise InputError(
        f"{path} is no release directory (no {manifest.NAME}: not signed yet?), no wheel, no image layout and no "
        "kernel pack",
        fix="name one of these; `nox -s sign` makes a release of dist/",
        reason="not-a-release",
    )


def _nothing_at(path: Path) -> InputError:
    """The refusal of a path where nothing is; names of images are read, so that it says where those go."""
    from wheelmark.oci.reference import LayoutReference, parse_location  # noqa: PLC0415 - as above

    cause = ""
    fix = "name a release directory, a wheel, an image layout or a kernel pack"
    with contextlib.suppress(InputError):
        image = parse_location(str(path))
        if isinstance(image, LayoutReference):
            asked = "@".join(filter(None, (image.tag, image.digest)))
            cause = "a layout is named by its path alone here"
            fix = f"wheelmark verify {image.path}" + (f" --reference {asked}" if asked else "")
        else:
            cause = "verify reads what lies on this machine, and asks no registry"
            fix += (
                f"; for an image in a registry: `wheelmark pull {image} --engine none`, which verifies it; or "
                f"`wheelmark copy {image} oci:DIR`, then verify DIR"
            )
    return InputError(f"there is nothing at {path}", cause=cause, fix=fix, reason="not-a-release")


def verify_release(
    dist: Path,
    policy: Policy,
    *,
    now: Now,
    channel: str = "",
    memory: Memory | None = None,
    audit_log: AuditLog | None = None,
    cache: FactsCache | None = None,
) -> Report:
    """Verify a release directory; see ``wheelmark.verify.release`` for the order of what is checked.

    Raises:
        InputError: ``dist`` is no release directory.
        ConfigError: The policy has no requirement for a target of the release, or lies in the release
            (``policy-inside``).
    """
    from wheelmark.verify.release import verify_release_directory  # noqa: PLC0415

    _check_outside(dist, policy)
    ask = functools.partial(verify_release_directory, dist, policy, cache=cache)
    return _answer(ask, policy, now=now, channel=channel, memory=memory, audit_log=audit_log)


def verify_wheel(
    path: Path,
    policy: Policy,
    *,
    now: Now,
    bundles: Sequence[Path] = (),
    channel: str = "",
    memory: Memory | None = None,
    audit_log: AuditLog | None = None,
    cache: FactsCache | None = None,
) -> Report:
    """Verify one wheel with the bundles that lie beside it, are given, or are in its release.

    Raises:
        InputError: The wheel cannot be read.
        ConfigError: The policy has no requirement for such a wheel.
    """
    ask = functools.partial(verify_one_wheel, path, policy, bundles=bundles, cache=cache)
    return _answer(ask, policy, now=now, channel=channel, memory=memory, audit_log=audit_log)


def verify_image(
    path: Path,
    policy: Policy,
    *,
    now: Now,
    bundles: Sequence[Path] = (),
    reference: str = "",
    target: str = "",
    asked: Asked | None = None,
    channel: str = "",
    memory: Memory | None = None,
    audit_log: AuditLog | None = None,
    cache: FactsCache | None = None,
) -> Report:
    """Verify an image in an OCI layout directory; see ``wheelmark.verify.image`` for what is checked.

    Raises:
        InputError: This is no layout, or holds no such image.
        ConfigError: The policy has no requirement for such an image, or lies in the layout (``policy-inside``).
    """
    from wheelmark.verify.image import verify_one_image  # noqa: PLC0415

    _check_outside(path, policy)
    ask = functools.partial(
        verify_one_image,
        path,
        policy,
        bundles=bundles,
        reference=reference,
        target=target,
        asked=asked,
        cache=cache,
    )
    return _answer(ask, policy, now=now, channel=channel, memory=memory, audit_log=audit_log)


def verify_kernel_pack(
    path: Path,
    policy: Policy,
    *,
    now: Now,
    bundles: Sequence[Path] = (),
    channel: str = "",
    memory: Memory | None = None,
    audit_log: AuditLog | None = None,
    cache: FactsCache | None = None,
) -> Report:
    """Verify a directory of compiled kernels with their manifest.

    Raises:
        InputError: The manifest cannot be read.
        ConfigError: The policy has no requirement for such kernels, or lies among them (``policy-inside``).
    """
    from wheelmark.verify.kernelpack import verify_one_kernel_pack  # noqa: PLC0415

    _check_outside(path, policy)
    ask = functools.partial(verify_one_kernel_pack, path, policy, bundles=bundles, cache=cache)
    return _answer(ask, policy, now=now, channel=channel, memory=memory, audit_log=audit_log)


def _answer(
    ask: Callable[..., Report],
    policy: Policy,
    *,
    now: Now,
    channel: str,
    memory: Memory | None,
    audit_log: AuditLog | None,
) -> Report:
    """Ask under the circumstances of now; what is found is written down first, then remembered, then given."""
    seen = memory.circumstances(now, channel) if memory else Circumstances(now=time_of(now), channel=channel)
    report = dataclasses.replace(ask(circumstances=seen), policy_sha256=policy.sha256)
    if audit_log is not None:
        audit_log.append(report, now=seen.now)
    if memory is not None:
        memory.remember(report, now=seen.now)
    return report


def _check_asked(path: Path, kind: Kind, *, bundles: Sequence[Path], reference: str, target: str) -> None:
    """What is asked for and would not be looked at is refused: nobody believes that it was."""
    in_vain = {
        "a further bundle": bundles and kind is Kind.RELEASE,
        "a reference": reference and kind is not Kind.IMAGE,
        "a target": target and kind is not Kind.IMAGE,
    }
    for what, is_in_vain in in_vain.items():
        if is_in_vain:
            raise InputError(
                f"{what} was given, and {path} is a {kind.value}, where it would not be looked at",
                fix="leave it out, or verify each kind by a command of its own",
                reason="input",
            )


def _check_outside(folder: Path, policy: Policy) -> None:
    """A release does not grade itself: its own files never are the policy."""
    inside = os.path.join(os.path.realpath(folder), "")  # noqa: PTH118 - Path drops the separator at the end
    if os.path.realpath(policy.source).startswith(inside):
        raise ConfigError(
            f"the policy {policy.source} lies in {folder}, which it is to judge",
            cause="whoever made the release wrote it, or could have",
            fix="name a policy of your own, from elsewhere",
            reason="policy-inside",
        )
