"""Which source revision a release is made from. It goes into the provenance, never into an artifact."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from wheelmark.errors import StateError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Revision:
    """The state of the source tree."""

    commit: str
    """Git commit id; empty where the tree is not a git checkout."""
    changed: tuple[str, ...]
    """Paths with uncommitted changes."""

    @property
    def is_snapshot(self) -> bool:
        """Whether the commit does not say what was built."""
        return not self.commit or bool(self.changed)


def read_revision(root: Path, *, outputs: Sequence[Path] = ()) -> Revision:
    """Ask git about the tree at ``root``; without git or outside a checkout the commit is empty.

    Args:
        root: The folder of ``wheelmark.toml``.
        outputs: Folders that a run itself writes, absolute: what lies there is no change of the sources, even
            where git was not told to ignore it.
    """
    if shutil.which("git") is None:
        return Revision(commit="", changed=())
    head = _git(root, "rev-parse", "--verify", "HEAD")
    if head is None:
        return Revision(commit="", changed=())
    own = [
        f":(exclude,literal){path.relative_to(root).as_posix()}"
        for path in outputs
        if path != root and path.is_relative_to(root)
    ]
    status = _git(root, "status", "--porcelain", "--untracked-files=normal", "--", ".", *own) or ""
    return Revision(commit=head.strip(), changed=tuple(line[3:] for line in status.splitlines()))


def check_revision(revision: Revision, *, snapshot: bool, release: bool) -> None:
    """Refuse to build from a tree that no commit describes, unless a snapshot was asked for.

    Raises:
        StateError: Reasons ``uncommitted-changes``, ``no-revision``.
    """
    if snapshot and release:
        raise StateError("--snapshot and --release exclude each other", reason="snapshot-release")
    if snapshot:
        return
    if revision.changed:
        shown = ", ".join(revision.changed[:3]) + (" …" if len(revision.changed) > 3 else "")  # noqa: PLR2004
        raise StateError(
            f"the source tree has uncommitted changes: {shown}",
            cause="a release names a commit, and this commit is not what would be built",
            fix="commit the changes, or build a marked snapshot: nox -s build test sign -- --snapshot",
            reason="uncommitted-changes",
        )
    if release and not revision.commit:
        raise StateError(
            "the source tree is not a git checkout, so a release cannot name its revision",
            fix="build from a clone, with git installed",
            reason="no-revision",
        )


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None
