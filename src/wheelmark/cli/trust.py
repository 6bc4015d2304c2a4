"""``wheelmark trust``: the life of this machine's embedded trust domain, and roots from others."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from wheelmark.trust.domain import StoredRoot
    from wheelmark.trust.updating import UpdatedRoot

NAME = "trust"
HELP = "create, export, import, update, rotate, back up, restore or show trust roots of this machine"

_LARGEST = 1 << 20
"""Bytes of a first ``root.json``: Sigstore's has five thousand."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each step of a trust domain's life."""
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")

    def step(name: str, text: str) -> argparse.ArgumentParser:
        # Without a default here, "--json" before the step's name would be overwritten.
        sub = steps.add_parser(name, help=text, description=text)
        sub.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document on stdout"
        )
        return sub

    step("create", "make this machine's embedded domain")
    step("rotate", "new keys and logs; what was signed until now stays verifiable")
    step("show", "name the roots on this machine, with their digests")
    export = step("export", "write this machine's trusted root to a new file, for others")
    export.add_argument("target", type=Path, metavar="FILE")
    backup = step("backup", "write the whole domain, private keys included, to a new tar")
    backup.add_argument("target", type=Path, metavar="FILE")
    restore = step("restore", "put a backup in place where there is no domain")
    restore.add_argument("source", type=Path, metavar="FILE")
    imported = step("import", "copy somebody's trusted root into the state directory")
    imported.add_argument("source", type=Path, metavar="FILE")
    imported.add_argument("--name", required=True, help="how it is called here: lowercase letters, digits, -")
    update = step("update", "get the newest trusted root of a TUF repository (Sigstore's public one)")
    update.add_argument(
        "root", nargs="?", default="public", metavar="NAME", help="how it is called here (default: public)"
    )
    update.add_argument(
        "--url", metavar="URL", help="where the repository's metadata lie; kept for the next time"
    )
    update.add_argument(
        "--bootstrap",
        type=Path,
        metavar="FILE",
        help="the root.json to begin with; not needed for the public one, nor the next time",
    )


def run(args: argparse.Namespace) -> int:
    """Do one step, then print the root or roots that it is about."""
    from wheelmark.trust import domain

    notes: dict[str, str] = {}
    found: tuple[StoredRoot, ...]
    if args.step == "export":
        found = (domain.export_root(args.target),)
        notes["exported"] = str(args.target)
    elif args.step == "import":
        found = (domain.import_root(args.source, args.name),)
        notes["next"] = "name it in a policy by path and sha256, with the issuers that it may vouch for"
    elif args.step == "update":
        found, notes = _update(args.root, args.url, args.bootstrap)
    elif args.step == "show":
        found = _all_roots()
    else:
        notes = _change(_embedded(), args)
        found = (domain.embedded_root(),)
    _print(found, notes, as_json=args.json)
    return 0


def _change(embedded: ModuleType, args: argparse.Namespace) -> dict[str, str]:
    """The steps that need keys; what to tell of them."""
    if args.step == "create":
        embedded.create()
        return {"proves": "integrity, and origin on a machine that holds these keys; nothing more"}
    if args.step == "rotate":
        embedded.rotate()
        return {"next": "policies that name this root by digest need the new digest"}
    if args.step == "backup":
        embedded.backup(args.target)
        return {"backup": str(args.target), "secret": "whoever reads the backup can sign as this machine"}
    embedded.restore(args.source)
    return {"next": "wheelmark trust rotate, so that no log ever has two histories"}


def _update(
    name: str, url: str | None, bootstrap: Path | None
) -> tuple[tuple[StoredRoot, ...], dict[str, str]]:
    """Refresh one root through TUF; what to write into a policy."""
    from wheelmark.errors import ConfigError
    from wheelmark.plainfiles import read_named
    from wheelmark.trust import updating

    if bootstrap is not None:
        first = read_named(bootstrap, _LARGEST + 1, reason="root-bootstrap")
        if len(first) > _LARGEST:
            raise ConfigError(f"{bootstrap} is over {_LARGEST:,} bytes", reason="root-bootstrap")
    else:
        first = updating.first_root(name) or b""
    address = url or updating.stored_url(name)
    if name == updating.PUBLIC and not first:
        first = updating.public_root()
    if not first or not address:
        raise ConfigError(
            f"trust root {name!r} is new here: where it lies and what to begin with has to be said",
            fix=f"wheelmark trust update {name} --url URL --bootstrap root.json",
            reason="root-bootstrap",
        )
    found = updating.update_root(name, url=address, bootstrap=first)
    kept = updating.stored_update(name)
    return (found,), {
        "vouched": kept.vouched.isoformat(timespec="seconds"),
        "bootstrap": kept.bootstrap_sha256,
        "next": f'in a policy: [[root]] tuf = "{name}", sha256 = the bootstrap\'s',
    }


def _all_roots() -> tuple[StoredRoot, ...]:
    from wheelmark.errors import StateError
    from wheelmark.trust import domain, updating

    found = [*domain.imported_roots(), *map(_stored, updating.updated_roots())]
    with contextlib.suppress(StateError):
        found.insert(0, domain.embedded_root())
    return tuple(found)


def _stored(root: UpdatedRoot) -> StoredRoot:
    from wheelmark.trust import domain, roots

    read = roots.read_root(root.data, name=root.name, issuers=(), level="", canonical=False)
    windows = tuple(item.window for item in read.material.authorities)
    return domain.StoredRoot(name=root.name, path=root.path, sha256=root.sha256, windows=windows)


def _embedded() -> ModuleType:
    from wheelmark.errors import ToolError

    try:
        from wheelmark.sign import embedded
    except ModuleNotFoundError as error:
        raise ToolError(
            f"this step needs the package {error.name}",
            cause="wheelmark was installed to verify, without its build extra",
            fix="python3 -m pip install --require-hashes -r lockfiles/tools.txt",
            reason="tool-absent",
        ) from error
    return embedded


def _print(found: tuple[StoredRoot, ...], notes: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        rows: list[dict[str, Any]] = [
            {
                "name": root.name,
                "path": str(root.path),
                "sha256": root.sha256,
                "windows": [
                    {
                        "start": window.start.isoformat(),
                        "end": window.end.isoformat() if window.end else None,
                    }
                    for window in root.windows
                ],
            }
            for root in found
        ]
        print(json.dumps({"roots": rows, **notes}, indent=2))
        return
    if not found:
        print("no roots on this machine; the first signature, or wheelmark trust create, makes one")
    for root in found:
        print(f"{root.name}\n  path    {root.path}\n  sha256  {root.sha256}")
        for window in root.windows:
            print(f"  signed  {window}")
    for name, text in notes.items():
        print(f"{name}: {text}")
