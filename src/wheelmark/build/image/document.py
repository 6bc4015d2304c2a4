"""The documents of an image: configuration, manifest, and the index over several platforms. Canonical JSON, no clock in it.

Sources: OCI image specification 1.1 (``config.md``, ``manifest.md``, ``annotations.md``); the health check is Docker's
extension of the configuration, which Docker and containerd's nerdctl run. podman reads it from Docker's own format only: so
the command stands in a label as well, for ``podman run --health-cmd``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from wheelmark import digests
from wheelmark.build.wheel import wheel_version
from wheelmark.config import Declaration, HostArch, TargetRow
from wheelmark.config.recipe import ImageRecipe, ImageSettings
from wheelmark.oci import types
from wheelmark.oci.types import Platform

CREATED = "1980-01-01T00:00:00Z"
"""The time of every image and of every file in it: the digest depends on inputs alone."""
HEALTHCHECK_LABEL = "dev.wheelmark.healthcheck"
ARCHITECTURES: Mapping[HostArch, str] = {HostArch.X86_64: "amd64", HostArch.AARCH64: "arm64"}
"""Ours -> Go's, which is Debian's too."""
_INTERVAL, _TIMEOUT = 60_000_000_000, 30_000_000_000
"""Nanoseconds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BaseImage:
    """What of a base image goes on in ours."""

    reference: str
    """``registry/repository@sha256:…``."""
    diff_ids: tuple[str, ...]
    history: tuple[Mapping[str, Any], ...]
    env: tuple[str, ...]
    variant: str = ""


def platform_of(row: TargetRow, base: BaseImage | None = None) -> Platform:
    """What a target's image runs on."""
    return Platform(os="linux", architecture=ARCHITECTURES[row.host], variant=base.variant if base else "")


def labels(
    recipe: ImageRecipe, row: TargetRow, declaration: Declaration, *, why: str, base: BaseImage | None
) -> dict[str, str]:
    """The labels of an image; the recipe's own come last, and none of ours can be said otherwise there.

    Args:
        recipe: The image's recipe.
        row: The target's row.
        declaration: The project.
        why: Why it cannot be released; empty where it can.
        base: The base image, where there is one.
    """
    project, settings = declaration.project, recipe.image
    ours = {
        "org.opencontainers.image.title": project.name,
        "org.opencontainers.image.description": project.summary,
        "org.opencontainers.image.version": str(wheel_version(declaration, row)),
        "org.opencontainers.image.licenses": project.license,
        "org.opencontainers.image.vendor": project.supplier,
        "org.opencontainers.image.source": project.homepage,
        types.TARGET_LABEL: str(row.target),
        types.RELEASABLE_LABEL: "false" if why else "true",
    }
    if why:
        ours[types.REASON_LABEL] = why
    if settings.healthcheck:
        ours[HEALTHCHECK_LABEL] = digests.canonical_json(list(settings.healthcheck)).decode()
    if base is not None:
        name, _, digest = base.reference.partition("@")
        ours |= {"org.opencontainers.image.base.name": name, "org.opencontainers.image.base.digest": digest}
    return {**dict(_pairs(settings.labels)), **ours}


def noted(found: Mapping[str, str]) -> dict[str, str]:
    """What of the labels stands in the manifest too, where registries and clients show it."""
    return {
        name: text
        for name, text in found.items()
        if name.startswith("org.opencontainers.image.")
        or name in {types.TARGET_LABEL, types.RELEASABLE_LABEL, types.REASON_LABEL}
    }


def configuration(
    settings: ImageSettings,
    platform: Platform,
    *,
    labels: Mapping[str, str],
    layers: Sequence[tuple[str, str]],
    base: BaseImage | None,
) -> bytes:
    """The configuration's bytes.

    Args:
        settings: The recipe's ``[image]``.
        platform: What it runs on.
        labels: All of them.
        layers: Of each layer of ours what it holds, and its ``diff_id``.
        base: The base image, where there is one.
    """
    inside: dict[str, Any] = {
        "User": f"{settings.user}:{settings.user}",
        "WorkingDir": settings.working_dir,
        "Labels": dict(labels),
    }
    env = {**dict(_pairs(base.env if base else ())), **dict(_pairs(settings.env))}
    if env:
        inside["Env"] = [f"{name}={text}" for name, text in env.items()]
    if settings.entrypoint:
        inside["Entrypoint"] = list(settings.entrypoint)
    if settings.cmd:
        inside["Cmd"] = list(settings.cmd)
    if settings.healthcheck:
        inside["Healthcheck"] = {
            "Test": ["CMD", *settings.healthcheck],
            "Interval": _INTERVAL,
            "Timeout": _TIMEOUT,
        }
    value: dict[str, Any] = {
        "created": CREATED,
        "os": platform.os,
        "architecture": platform.architecture,
        "config": inside,
        "rootfs": {
            "type": "layers",
            "diff_ids": [*(base.diff_ids if base else ()), *(diff_id for _name, diff_id in layers)],
        },
        "history": [
            *(dict(item) for item in (base.history if base else ())),
            *({"created": CREATED, "created_by": f"wheelmark: {name}"} for name, _diff_id in layers),
        ],
    }
    if platform.variant:
        value["variant"] = platform.variant
    return digests.canonical_json(value)


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (text.partition("=") for text in texts)]
