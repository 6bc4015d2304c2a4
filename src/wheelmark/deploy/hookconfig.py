"""The hook's configuration: a small TOML file of the operator's, read strictly, that nothing about a container can change.

schema = 1
policy = "/etc/wheelmark/policy.toml"
store = "/var/lib/wheelmark/images"
log = "/var/lib/wheelmark/images/hook.log"
targets = ["cuda-sm90"]            # optional: what this machine takes
channel = "prod"                   # optional
storage = ["/var/lib/containers/storage"]   # optional: the only storage roots that count

[[allow]]                          # images that are not judged
digest = "sha256:…"
why = "the pause container of this machine's pods"
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheelmark.errors import ConfigError, InputError
from wheelmark.oci.types import read_digest
from wheelmark.targets import known_ids
from wheelmark.verify.policy import permissions

SYSTEM = Path("/etc/wheelmark/hook.toml")
SCHEMA_VERSION = 1
_MAX_BYTES = 1 << 18
_KEYS = ("schema", "policy", "store", "log", "targets", "channel", "storage", "allow")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HookConfig:
    """What the hook goes by."""

    policy: Path
    store: Path
    log: Path
    """Every decision, a line each (``AuditLog``)."""
    targets: tuple[str, ...] = ()
    """Targets whose images this machine takes; empty: any that the policy has a requirement for."""
    channel: str = ""
    storage: tuple[Path, ...] = ()
    """The only storage roots that count; empty: the one that the container's bundle lies in."""
    allow: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """sha256 of manifests that are started without being judged -> why."""

    def as_toml(self) -> str:
        """The file."""
        lines = [
            "# Read by the hook that wheelmark installed; see docs/deploying-images.md.",
            f"schema = {SCHEMA_VERSION}",
            f"policy = {_quoted(self.policy)}",
            f"store = {_quoted(self.store)}",
            f"log = {_quoted(self.log)}",
        ]
        if self.targets:
            lines.append(f"targets = {json.dumps(list(self.targets))}")
        if self.channel:
            lines.append(f"channel = {_quoted(self.channel)}")
        if self.storage:
            lines.append(f"storage = [{', '.join(_quoted(item) for item in self.storage)}]")
        for sha256, why in sorted(self.allow.items()):
            lines += ["", "[[allow]]", f'digest = "sha256:{sha256}"', f"why = {_quoted(why)}"]
        return "\n".join(lines) + "\n"


def load_hook_config(path: Path) -> HookConfig:
    """The configuration in a file that nobody else could have written.

    Raises:
        ConfigError: It cannot be read or understood (``hook-config``), or others could write it (``policy-permissions``).
    """
    try:
        data = permissions.read_owned(path, _MAX_BYTES + 1)
    except ConfigError as error:
        if error.reason != "policy-absent":
            raise
        raise ConfigError(error.what, fix="wheelmark hook install writes it", reason="hook-config") from error
    return read_hook_config(data, source=str(path))


def read_hook_config(data: bytes, *, source: str) -> HookConfig:
    """The configuration from its bytes.

    Args:
        data: TOML.
        source: How messages name it.

    Raises:
        ConfigError: ``hook-config``.
    """
    if len(data) > _MAX_BYTES:
        raise _refuse(source, f"is over {_MAX_BYTES:,} bytes")
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _refuse(source, f"is not TOML: {str(error)[:200]}") from error
    for key in document:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            raise _refuse(
                source, f"has an unknown key {key!r:.80}", f"did you mean {near[0]!r}?" if near else ""
            )
    if type(document.get("schema")) is not int or document["schema"] != SCHEMA_VERSION:
        raise _refuse(source, f"has schema {document.get('schema')!r:.80}; this hook reads {SCHEMA_VERSION}")
    targets = _texts(document, "targets", source)
    unknown = [item for item in targets if item not in known_ids()]
    if unknown:
        raise _refuse(source, f"names a target {unknown[0]!r:.80} that is not known")
    return HookConfig(
        policy=_path(document.get("policy"), "policy", source),
        store=_path(document.get("store"), "store", source),
        log=_path(document.get("log"), "log", source),
        targets=targets,
        channel=_text(document.get("channel", ""), "channel", source),
        storage=tuple(_path(item, "storage", source) for item in _texts(document, "storage", source)),
        allow=_allowed(document, source),
    )


def _allowed(document: Mapping[str, Any], source: str) -> dict[str, str]:
    tables = document.get("allow", [])
    if not isinstance(tables, list) or not all(isinstance(item, dict) for item in tables):
        raise _refuse(source, "[[allow]] is not an array of tables")
    found: dict[str, str] = {}
    for table in tables:
        if set(table) != {"digest", "why"} or not _text(table["why"], "why", source):
            raise _refuse(source, "[[allow]] has to say digest and why, and nothing else")
        try:
            found[read_digest(table["digest"])] = table["why"]
        except InputError as error:
            raise _refuse(source, f"[[allow]]: {error.what}") from error
    return found


def _path(value: Any, name: str, source: str) -> Path:
    text = _text(value, name, source)
    if not text.startswith("/") or ".." in Path(text).parts:
        raise _refuse(source, f"{name} is no absolute path")
    return Path(text)


def _text(value: Any, name: str, source: str) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise _refuse(source, f"{name} is absent or no text")
    return value


def _texts(document: Mapping[str, Any], name: str, source: str) -> tuple[str, ...]:
    value = document.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise _refuse(source, f"{name} is no array of texts")
    return tuple(value)


def _quoted(value: Path | str) -> str:
    return json.dumps(str(value), ensure_ascii=False)  # TOML's basic strings have JSON's escapes


def _refuse(source: str, text: str, fix: str = "") -> ConfigError:
    return ConfigError(
        f"the hook's configuration {source} {text}",
        fix=fix or "see docs/deploying-images.md",
        reason="hook-config",
    )
