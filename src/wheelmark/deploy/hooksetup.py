"""Where the hook is installed: the file that tells an engine to run it, and the hook's own configuration.

Source: podman's ``oci-hooks(5)`` (schema 1.0.0, directories, order), ``containers.conf(5)`` (``hooks_dir``, drop-ins).
``"always": true``: any other condition is one that a container could be made not to meet.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from wheelmark.deploy import hookconfig
from wheelmark.deploy.hookcode import check_code
from wheelmark.deploy.hookconfig import HookConfig, load_hook_config, read_hook_config
from wheelmark.deploy.hooklauncher import FILE as FILE_OF_LAUNCHER
from wheelmark.deploy.hooklauncher import SHELL, launcher
from wheelmark.deploy.store import EvidenceStore, default_store
from wheelmark.errors import ConfigError, StateError, WheelmarkError
from wheelmark.trust import state
from wheelmark.verify.policy import load_policy, permissions

MODULE = "wheelmark.deploy.hook"
SYSTEM_HOOKS = Path("/usr/share/containers/oci/hooks.d")
"""Read by root's podman and by CRI-O."""
FILE = "wheelmark.json"
_TIMEOUT = 30
"""Seconds after which the engine ends the hook, and refuses the start."""
_DROP_IN = "50-wheelmark-hooks.conf"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """Where everything goes."""

    hooks: Path
    """The engine's folder of hooks."""
    config_path: Path
    config: HookConfig
    rootless: bool = False
    engine_config: Path | None = None
    """A file that tells the engine of ``hooks``; ``None`` where it reads that folder by itself."""
    python: Path = dataclasses.field(default_factory=lambda: Path(sys.executable))

    @property
    def hook_path(self) -> Path:
        """The file that tells the engine to run the hook."""
        return self.hooks / FILE

    @property
    def launcher_path(self) -> Path:
        """What the engine runs, beside the hook's configuration."""
        return self.config_path.with_name(FILE_OF_LAUNCHER)

    def files(self) -> dict[Path, str]:
        """Every file that is written, in this order: what the hook needs is there before the hook is."""
        made = {
            self.config_path: self.config.as_toml(),
            self.launcher_path: self.launcher(),
            self.hook_path: self.hook_json(),
        }
        if self.engine_config is not None:
            folders = json.dumps([str(SYSTEM_HOOKS), str(self.hooks)])
            made[self.engine_config] = (
                f"# Written by wheelmark hook install.\n[engine]\nhooks_dir = {folders}\n"
            )
        return made

    def launcher(self) -> str:
        """The program: isolated from the environment and the working folder, which are the container's."""
        command = [str(self.python), "-I", "-m", MODULE, "--config", str(self.config_path)]
        return launcher([*command, *(["--rootless"] if self.rootless else [])])

    def hook_json(self) -> str:
        """The engine's file. The shell is named, so that the launcher need not lie where programs may be run."""
        value = {
            "version": "1.0.0",
            "hook": {
                "path": SHELL,
                # A launcher that is cut short has not said "exit 0" either.
                "args": [SHELL, "-c", '. "$0"; exit 1', str(self.launcher_path)],
                "env": ["PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", f"{state.VARIABLE}={state.state_path()}"],
                "timeout": _TIMEOUT,
            },
            "when": {"always": True},
            "stages": ["createRuntime"],
        }
        return json.dumps(value, indent=2) + "\n"


class Standing(enum.Enum):
    """How a file stands."""

    ABSENT = "absent"
    SAME = "as it should be"
    OTHER = "different"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that keeps the hook from doing what it is for."""

    reason: str
    text: str


def system_setup(config: HookConfig, *, hooks: Path | None = None, config_path: Path | None = None) -> Setup:
    """For root's engine."""
    return Setup(hooks=hooks or SYSTEM_HOOKS, config_path=config_path or hookconfig.SYSTEM, config=config)


def rootless_setup(
    config: HookConfig, *, hooks: Path | None = None, config_path: Path | None = None
) -> Setup:
    """For this user's own engine, which reads no folder of hooks by itself: ``containers.conf`` has to name it."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Setup(
        hooks=hooks or home / "containers" / "oci" / "hooks.d",
        config_path=config_path or home / "wheelmark" / "hook.toml",
        config=config,
        rootless=True,
        engine_config=home / "containers" / "containers.conf.d" / _DROP_IN,
    )


def default_config(policy: Path, *, store: Path | None = None, log: Path | None = None) -> HookConfig:
    """The configuration that an installation begins with; paths made absolute."""
    place = (store or default_store()).absolute()
    return HookConfig(policy=policy.absolute(), store=place, log=(log or place / "hook.log").absolute())


def install(setup: Setup, *, replace: bool = False) -> dict[Path, Standing]:
    """Write what is not as it should be; nothing where something stands in the way.

    Args:
        setup: What is to be there.
        replace: Whether a file that is none of wheelmark's is written over.

    Returns:
        How each file stood before.

    Raises:
        ConfigError: Policy, interpreter or program could be written by others, or cannot be used.
        StateError: A file cannot be written, or is somebody else's (``hook-write``).
    """
    check_parts(setup)
    check_place(setup, replace=replace)
    EvidenceStore(setup.config.store, write=True).make()
    before = {path: standing(path, text) for path, text in setup.files().items()}
    for path, text in setup.files().items():
        if before[path] is not Standing.SAME:
            _write(path, text)
    for path in (setup.config_path, setup.launcher_path, setup.hook_path):
        permissions.check_ownership(path)
    return before


def check_place(setup: Setup, *, replace: bool = False) -> None:
    """Refuse to write over a file of the engine's that is none of wheelmark's.

    Raises:
        StateError: ``hook-write``.
    """
    if replace or not os.path.lexists(setup.hook_path) or is_ours(setup.hook_path):
        return
    raise StateError(
        f"{setup.hook_path} is none of wheelmark's",
        fix="look at it; --replace writes over it, --hooks-dir names another folder",
        reason="hook-write",
    )


def is_ours(path: Path) -> bool:
    """Whether a file for the engine is one that an installation wrote, of this form or of the first."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        arguments = value["hook"]["args"]
        return MODULE in arguments or any(Path(item).name == FILE_OF_LAUNCHER for item in arguments)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def check_parts(setup: Setup) -> None:
    """Refuse an installation whose parts somebody else could write, or that would refuse everything.

    Raises:
        ConfigError: As ``load_policy`` and ``check_ownership``; ``hook-config`` where this is not the user whose engine it is for.
    """
    if setup.rootless is (os.geteuid() == 0):
        raise ConfigError(
            "root's engine and a user's own are two: "
            + ("this is root" if setup.rootless else "this is not root"),
            fix="run it without --rootless as root, or with --rootless as the user whose engine it is",
            reason="hook-config",
        )
    read_hook_config(setup.config.as_toml().encode(), source="that would be written")
    for path in setup.config.storage:
        if not path.is_dir():
            raise ConfigError(
                f"there is no storage root {path}",
                fix="podman info --format '{{.Store.GraphRoot}}' says where it is",
                reason="hook-config",
            )
    load_policy(setup.config.policy, strict=True)
    check_code(setup.python)


def standing(path: Path, text: str) -> Standing:
    """How a file stands against what it should say."""
    try:
        return Standing.SAME if path.read_text(encoding="utf-8") == text else Standing.OTHER
    except FileNotFoundError:
        return Standing.ABSENT
    except (OSError, UnicodeDecodeError):
        return Standing.OTHER


def uninstall(setup: Setup) -> tuple[Path, ...]:
    """Take the hook away from the engine; configuration, store and log stay.

    Returns:
        What was removed.

    Raises:
        StateError: The engine's file is somebody else's, or cannot be removed (``hook-write``).
    """
    removed: list[Path] = []
    for path in (setup.engine_config, setup.hook_path, setup.launcher_path):
        if path is None or not os.path.lexists(path):
            continue
        try:
            if path == setup.hook_path and not is_ours(path):
                raise StateError(f"{path} is none of wheelmark's", fix="look at it", reason="hook-write")
            path.unlink()
        except (OSError, UnicodeDecodeError) as error:
            raise StateError(f"cannot remove {path}: {error}", reason="hook-write") from error
        removed.append(path)
    return tuple(removed)


def inspect(setup: Setup) -> Iterator[Finding]:
    """Everything that is wrong with an installation as it stands, from the engine's file to the store."""
    try:
        said = json.loads(permissions.read_owned(setup.hook_path, 1 << 20))
        config = load_hook_config(setup.config_path)
    except ConfigError as error:
        yield Finding(reason=error.reason, text=error.what)
        return
    except ValueError as error:
        yield Finding(reason="hook-config", text=f"{setup.hook_path} is no JSON: {error}")
        return
    if said != json.loads(setup.hook_json()):
        yield Finding(
            reason="hook-config",
            text=f"{setup.hook_path} says something else than this version installs: wheelmark hook install",
        )
    if standing(setup.launcher_path, setup.launcher()) is not Standing.SAME:
        yield Finding(
            reason="hook-config",
            text=f"{setup.launcher_path} is absent or not as this version installs it: wheelmark hook install",
        )
    if setup.engine_config is not None:
        wanted = setup.files()[setup.engine_config]
        if standing(setup.engine_config, wanted) is not Standing.SAME:
            yield Finding(reason="hook-config", text=f"{setup.engine_config} does not name {setup.hooks}")
    for part in (
        lambda: check_parts(dataclasses.replace(setup, config=config)),
        lambda: EvidenceStore(config.store),
        lambda: permissions.check_ownership(setup.launcher_path),
    ):
        try:
            part()
        except WheelmarkError as error:
            yield Finding(reason=error.reason, text=error.what)


def _write(path: Path, text: str) -> None:
    try:
        for folder in reversed(path.parents):
            folder.mkdir(mode=0o755, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".wheelmark-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                os.fchmod(stream.fileno(), 0o644)
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StateError(
            f"cannot write {path}: {error.strerror}",
            fix="run it as root, or name folders of your own with --hooks-dir and --config",
            reason="hook-write",
        ) from error
