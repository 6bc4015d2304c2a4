"""Clones of this repository in which the real pipeline runs, through its own command line and its own sources.

Everything that a test spoils is spoiled in a clone. The clone's ``src`` is what runs there (``PYTHONPATH``), so that
nothing outside of it decides a result; locked environments come from one shared cache, by hash.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelmark import digests

REPOSITORY = Path(__file__).resolve().parents[1]
TARGETS = ("cpu-x86_64", "cuda-sm90", "rocm-gfx942")
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "second-build", ".git")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran:
    """One ended command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output, which has to be one JSON document and nothing else."""
        return json.loads(self.out)

    @property
    def reason(self) -> str:
        """Reason code of the error that ``--json`` printed."""
        return str(self.document["reason"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkout:
    """A clone of the repository, with its own release directory and signing state."""

    root: Path
    state: Path
    environments: Path
    """Cache of locked environments, shared."""
    cache: Path
    """Cache of compiled code."""
    targets: tuple[str, ...] = TARGETS

    @property
    def dist(self) -> Path:
        return self.root / "dist"

    @property
    def policy(self) -> Path:
        return self.root / "policies" / "embedded-dev.toml"

    def variables(self, changes: Mapping[str, str] | None = None) -> dict[str, str]:
        """Surroundings of a command that runs here."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WHEELMARK_")}
        return {
            **kept,
            "PYTHONPATH": str(self.root / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "WHEELMARK_STATE": str(self.state),
            **(changes or {}),
        }

    def command(self, stage: str, *arguments: str) -> list[str]:
        """``wheelmark`` as it is called for this clone."""
        places = ["--cache", str(self.cache), "--environments", str(self.environments)]
        named = [] if "--all" in arguments else ["--targets", ",".join(self.targets)]
        rest = [item for item in arguments if item != "--all"]
        return [sys.executable, "-m", "wheelmark", stage, "--json", *places, *named, *rest]

    def run(
        self, stage: str, *arguments: str, variables: Mapping[str, str] | None = None, timeout: float = 1500
    ) -> Ran:
        """Run a stage to its end; ``--all`` names no targets."""
        done = subprocess.run(
            self.command(stage, *arguments),
            cwd=self.root,
            env=self.variables(variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

    def start(self, stage: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a stage in a process group of its own."""
        return subprocess.Popen(
            self.command(stage, *arguments),
            cwd=self.root,
            env=self.variables(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def verify(self, *arguments: str, variables: Mapping[str, str] | None = None) -> Ran:
        """Verify the release directory under the development policy."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", "wheelmark", "verify", "--json", "dist"),
                *("--policy", str(self.policy), *arguments),
            ],
            cwd=self.root,
            env=self.variables(variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

    def made(self, *stages: str) -> dict[str, Ran]:
        """Run stages that have to succeed."""
        ran = {}
        for stage in stages:
            ran[stage] = self.run(stage)
            assert ran[stage].code == 0, f"{stage}: {ran[stage].err[-4000:]}"
        return ran

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text that stands exactly once in a file, and commit."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} holds {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new), encoding="utf-8")
        self.commit(f"edit {file}")

    def gates(self, *gates: str) -> None:
        """Let every target have only these gates."""
        path = self.root / "wheelmark.toml"
        lines = path.read_text(encoding="utf-8").splitlines()
        words = json.dumps(list(gates))
        path.write_text(
            "\n".join(f"gates = {words}" if line.startswith("gates = [") else line for line in lines) + "\n",
            encoding="utf-8",
        )
        self.commit("gates")

    def images(self, *targets: str) -> None:
        """Let only these targets have an image; without a name none has."""
        path = self.root / "wheelmark.toml"
        lines = path.read_text(encoding="utf-8").splitlines()
        source = (REPOSITORY / "wheelmark.toml").read_text(encoding="utf-8").splitlines()
        found = {line for line in source if line.startswith("image = ")}
        made = []
        for line in lines:
            if line.startswith("image = "):
                continue
            made.append(line)
            if line.startswith("target = ") and (target := line.partition('"')[2].rstrip('"')) in targets:
                made.append(next(item for item in found if item.endswith(f'/{target}.toml"')))
        path.write_text("\n".join(made) + "\n", encoding="utf-8")

    def commit(self, message: str) -> None:
        """Commit everything that git does not ignore."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)

    def git(self, *arguments: str) -> str:
        surroundings = {
            **os.environ,
            **{f"GIT_{who}_{what}": "tests@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }  # fmt: skip
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, env=surroundings, capture_output=True, text=True, check=True
        )
        return done.stdout

    def clone(
        self,
        folder: Path,
        *,
        name: str = "clone",
        dist: bool = True,
        targets: tuple[str, ...] = (),
    ) -> Checkout:
        """This clone again, elsewhere, under another commit.

        Args:
            folder: Where; the clone is made in a folder of it.
            name: Of that folder.
            dist: Take the release directory and the run state with it.
            targets: What is built there; the same if none is named.
        """
        made = dataclasses.replace(self, root=folder / name, targets=targets or self.targets)
        shutil.copytree(self.root, made.root, ignore=_NOT_COPIED, symlinks=True)
        if not dist:
            shutil.rmtree(made.dist, ignore_errors=True)
            shutil.rmtree(made.root / ".dist.state", ignore_errors=True)
        made.begin(f"clone {time.time_ns()}")
        return made

    def apart(self, folder: Path) -> Checkout:
        """The same, but environments that it makes go to ``folder``; those that there are, are used."""
        own = folder / "environments"
        (own / "envs").mkdir(parents=True)
        for path in (self.environments / "envs").iterdir():
            if path.is_dir():
                (own / "envs" / path.name).symlink_to(path)
        return dataclasses.replace(self, environments=own)

    def with_cache(self, folder: Path, *kept: str) -> Checkout:
        """The same, with a cache of compiled code of its own that begins with the named folders of this one."""
        own = folder / "cache"
        own.mkdir(parents=True)
        for name in kept:
            shutil.copytree(self.cache / name, own / name, ignore=shutil.ignore_patterns(".build-*"))
        return dataclasses.replace(self, cache=own)

    def begin(self, message: str) -> None:
        """Make it a git repository of its own."""
        self.git("init", "--quiet")
        self.commit(message)


def copy_repository(root: Path) -> None:
    """Copy the files that git tracks or would track, as they are in the working tree."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, done.stdout.split("\0")):
        source = REPOSITORY / name
        if source.is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, root / name)


def bytes_of(root: Path, *folders: str) -> dict[str, str]:
    """Path -> sha256 of every file of ``root`` (of the named folders in it)."""
    names = [
        f"{folder}/{name}" if folder else name
        for folder in folders or ("",)
        for name in digests.tree_files(root / folder)
    ]
    return {name: digests.sha256_file(root / name) for name in names}


def kill(process: subprocess.Popen[bytes], when: Callable[[], bool], *, within: float = 600) -> bool:
    """SIGKILL a process and all that it started as soon as ``when`` holds.

    Returns:
        Whether it was still running then.
    """
    end = time.monotonic() + within
    while process.poll() is None and not when() and time.monotonic() < end:
        time.sleep(0.005)
    running = process.poll() is None
    if running:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return running


def evidence_of(ran: Ran, target: str) -> Mapping[str, Mapping[str, Any]]:
    """Gate -> evidence of a target, from what ``wheelmark test --json`` printed."""
    found: Sequence[Mapping[str, Any]] = ran.document["evidence"]
    return {item["gate"]: item for item in found if item["target"] == target}
