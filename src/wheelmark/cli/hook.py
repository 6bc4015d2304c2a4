"""``wheelmark hook``: let containers start only from images that were verified; install, look at, take away, forget."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from wheelmark.cli import kept

if TYPE_CHECKING:
    from wheelmark.deploy.hookconfig import HookConfig
    from wheelmark.deploy.hooksetup import Setup

NAME = "hook"
HELP = "install the hook that starts containers only from verified images, look at it, or take it away"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str) -> argparse.ArgumentParser:
        # Without a default here, "--json" before the action's name would be overwritten.
        sub = actions.add_parser(name, help=text, description=text)
        sub.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document on stdout"
        )
        return sub

    install = action("install", "write the engine's file and the hook's configuration")
    _add_places(install)
    install.add_argument(
        "--policy", required=True, type=Path, metavar="FILE", help="the policy that decides at each start"
    )
    install.add_argument(
        "--log", type=Path, metavar="FILE", help="every decision, a line each (default: in the store)"
    )
    install.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="ID",
        help="a target whose images this machine takes (may be given more than once; default: any)",
    )
    install.add_argument("--channel", default="", metavar="NAME", help="images have to be promoted there")
    install.add_argument(
        "--storage",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="a storage root of the engine, where only named ones count (CRI-O needs it)",
    )
    install.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="DIGEST=WHY",
        help="an image that starts without being judged: the pause container (may be given more than once)",
    )
    install.add_argument(
        "--reset", action="store_true", help="do not keep what the configuration that is there says"
    )
    install.add_argument(
        "--replace", action="store_true", help="write over a file in the folder of hooks that is none of ours"
    )
    install.add_argument(
        "--dry-run", action="store_true", help="check everything, print every file, write nothing"
    )
    for name, text in (
        ("status", "say whether it is installed, and what keeps it from doing what it is for"),
        ("uninstall", "take it away from the engine; configuration, store and log stay"),
    ):
        _add_places(action(name, text))
    forget = action("forget", "remove an image's evidence: containers of it will not start any more")
    forget.add_argument(
        "digest",
        type=kept.digest_part,
        metavar="DIGEST",
        help="sha256:… of its manifest, or the first 12 digits or more",
    )
    images = action(
        "images", "list the images whose evidence is kept: digest, target, since when, from where"
    )
    for sub in (forget, images):
        kept.add_store_argument(sub)


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rootless", action="store_true", help="for this user's own podman; no boundary against this user"
    )
    parser.add_argument(
        "--hooks-dir",
        type=Path,
        metavar="DIR",
        help="the engine's folder of hooks (default: /usr/share/containers/oci/hooks.d; rootless: in ~/.config/containers)",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the hook's configuration (default: /etc/wheelmark/hook.toml; rootless: ~/.config/wheelmark/hook.toml)",
    )
    parser.add_argument(
        "--store", type=Path, metavar="DIR", help="evidence store (default: as of wheelmark pull)"
    )


def run(args: argparse.Namespace) -> int:
    """Carry out one action."""
    from wheelmark.deploy import hooksetup
    from wheelmark.errors import Exit

    if args.action in {"forget", "images"}:
        code, document, lines = (kept.forget if args.action == "forget" else kept.list_images)(args)
        _say(args, document, lines)
        return code
    setup = _setup(args)
    if args.action == "uninstall":
        gone = hooksetup.uninstall(setup)
        _say(
            args,
            {"removed": [str(path) for path in gone]},
            [f"removed {path}" for path in gone] or ["not installed"],
        )
        return int(Exit.OK)
    if args.action == "status":
        found = list(hooksetup.inspect(setup))
        lines = [f"{item.reason}: {item.text}" for item in found]
        _say(
            args,
            {
                "installed": not found,
                "findings": [{"reason": item.reason, "text": item.text} for item in found],
            },
            lines or [f"installed in {setup.hook_path}, configured by {setup.config_path}"],
        )
        return int(Exit.CONFIG if found else Exit.OK)
    if args.dry_run:
        hooksetup.check_parts(setup)
        hooksetup.check_place(setup, replace=args.replace)
        before = {path: hooksetup.standing(path, text) for path, text in setup.files().items()}
    else:
        before = hooksetup.install(setup, replace=args.replace)
    words = [
        f"{path}: {'unchanged' if how is hooksetup.Standing.SAME else 'would be written' if args.dry_run else 'written'}"
        for path, how in before.items()
    ]
    texts = [f"--- {path}\n{text.rstrip()}" for path, text in setup.files().items()] if args.dry_run else []
    value = {"dry_run": args.dry_run, "files": {str(path): text for path, text in setup.files().items()}}
    _say(args, value, [*texts, *words])
    return int(Exit.OK)


def _setup(args: argparse.Namespace) -> Setup:
    """What the arguments name; for an installation that stands, its own configuration goes before defaults."""
    import dataclasses

    from wheelmark.deploy import hooksetup
    from wheelmark.deploy.hookconfig import load_hook_config
    from wheelmark.errors import ConfigError, InputError
    from wheelmark.oci.types import read_digest

    make = hooksetup.rootless_setup if args.rootless else hooksetup.system_setup
    config = hooksetup.default_config(getattr(args, "policy", Path("policy.toml")), store=args.store)
    config_path = args.config.absolute() if args.config else make(config).config_path
    if args.action == "install":
        kept_config = None if args.reset else _kept(config_path)
        if kept_config is not None:
            config = dataclasses.replace(
                kept_config, policy=config.policy, store=config.store if args.store else kept_config.store
            )
        allow: dict[str, str] = {}
        for text in args.allow:
            digest, _, why = text.partition("=")
            if not why:
                raise InputError(
                    f"--allow {text!r} says no reason", fix="--allow sha256:…=WHY", reason="hook-config"
                )
            allow[read_digest(digest, "--allow")] = why
        config = dataclasses.replace(
            config,
            log=(args.log or config.log).absolute(),
            targets=tuple(args.target) or config.targets,
            channel=args.channel or config.channel,
            storage=tuple(path.absolute() for path in args.storage) or config.storage,
            allow=allow or config.allow,
        )
    setup = make(
        config,
        hooks=args.hooks_dir.absolute() if args.hooks_dir else None,
        config_path=config_path,
    )
    if args.action == "install":
        return setup
    try:
        return dataclasses.replace(setup, config=load_hook_config(setup.config_path))
    except ConfigError:
        return setup  # reported by status


def _kept(path: Path) -> HookConfig | None:
    """The configuration that an installation before this one left; what is there and is none is an error."""
    from wheelmark.deploy.hookconfig import load_hook_config

    return load_hook_config(path) if path.exists() else None


def _say(args: argparse.Namespace, value: object, lines: list[str]) -> None:
    print(json.dumps(value, indent=2) if args.json else "\n".join(lines), flush=True)
