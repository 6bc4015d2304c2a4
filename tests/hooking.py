"""A machine with podman of its own and the hook: images made and signed in process, pulled, and started for real."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import imaging
from checkouts import Ran
from forging import Forge
from imaging import Draft, Entry, tar
from presence import need_program, not_run
from wheelmark.deploy.engine import Podman
from wheelmark.deploy.hookconfig import HookConfig
from wheelmark.deploy.hooksetup import Setup, install
from wheelmark.deploy.pull import Pulled, PullRequest, pull
from wheelmark.deploy.store import EvidenceStore
from wheelmark.oci.layout import Layout, LayoutWriter
from wheelmark.oci.reference import parse_location
from wheelmark.oci.types import Descriptor
from wheelmark.verify import AuditLog, load_policy

REFUSED = {126, 127}
"""Of podman run where a hook refused; 127 where the text says that a file is not there."""
GOOD = "example.org/demo:1"
OTHER = "example.org/other:1"
SAYS = "hello from the image\n"
PROGRAM = (
    '#include <unistd.h>\nint main() { return write(1, "hello from the image\\n", 21) == 21 ? 0 : 1; }\n'
)
ENGINE = """[containers]
default_ulimits = ["nofile=1024:20000", "nproc=4096:4096"]
netns = "none"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
POLICY = """schema = 1
development = true

[[root]]
name = "embedded"
source = "this-machine"
issuers = ["https://embedded.invalid/oidc"]
level = "a test's own"

[[signer]]
name = "release"
root = "embedded"
issuer = "https://embedded.invalid/oidc"
identity = "https://embedded.invalid/wheelmark/release"

[[require]]
kind = "image"
targets = ["cpu-x86_64", "cpu-aarch64"]
predicates = ["provenance"]
signers = ["release"]
"""


def compile_program(folder: Path) -> bytes:
    """A static program that says hello: all that an image needs to be started."""
    source = folder / "hello.cpp"
    source.write_text(PROGRAM, encoding="utf-8")
    command = [need_program("g++"), "-static", "-Os", "-s", "-o", str(folder / "hello"), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return (folder / "hello").read_bytes()


def draft(program: bytes, *, note: str = "", **changes: Any) -> Draft:
    """An image with the program in one layer and a note in another."""

    def enter(config: dict[str, Any]) -> None:
        config["config"] |= {"Entrypoint": ["/hello"], "User": "0"}

    files = [tar(Entry(name="hello", data=program, mode=0o755)), tar(Entry(name="note", data=note.encode()))]
    return Draft(layers=files, change_config=enter, **changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """podman with storage of its own, a policy, an evidence store, and the hook."""

    folder: Path
    home: Path
    """State directory of the embedded domain."""
    forge: Forge
    program: bytes
    driver: str

    @property
    def policy(self) -> Path:
        return self.folder / "policy.toml"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def log(self) -> Path:
        return self.folder / "hook.log"

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    @property
    def engine(self) -> tuple[str, ...]:
        places = ("--root", self.storage, "--runroot", self.folder / "run", "--tmpdir", self.folder / "tmp")
        return ("podman", *map(str, places), "--storage-driver", self.driver)

    def setup(self, **changes: Any) -> Setup:
        config = HookConfig(policy=self.policy, store=self.store, log=self.log)
        return Setup(
            hooks=self.folder / "hooks",
            config_path=self.folder / "hook.toml",
            config=dataclasses.replace(config, **changes),
        )

    def install(self, **changes: Any) -> None:
        """Install the hook, with another configuration where one is given."""
        install(self.setup(**changes))

    def layout(
        self, name: str, *, signed: bool = True, identity: str = "", note: str = "", **changes: Any
    ) -> Path:
        """A layout of one image, tagged v1."""

        def sign(statement: bytes) -> bytes:
            return self.forge.sign(statement, **({"identity": identity} if identity else {}))

        path = self.folder / "layouts" / name
        made = draft(self.program, note=note or name, **changes)
        if signed:
            imaging.layout(path, sign, made)
        else:
            writer = LayoutWriter(path)
            writer.finish([made.write(writer, tag="v1")])
        return path

    def pull(self, layout: Path, name: str, *, reference: str = ":v1", **changes: Any) -> Pulled:
        """Pull it from a layout."""
        return self.pull_from(f"oci:{layout}{reference}", name=name, **changes)

    def pull_from(self, location: str, **changes: Any) -> Pulled:
        """Pull it as ``wheelmark pull`` does."""
        request = PullRequest(location=parse_location(location), **changes)
        return pull(
            request,
            load_policy(self.policy, strict=True),
            now=dt.datetime.now(dt.UTC),
            store=EvidenceStore(self.store, write=True),
            engine=Podman(self.engine),
        )

    def podman(self, *arguments: object, variables: Mapping[str, str] | None = None) -> Ran:
        done = subprocess.run(
            [*self.engine, *map(str, arguments)],
            env={**os.environ, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

    def slip_in(self, layout: Path, name: str) -> str:
        """Have podman take an image by its own means; the image's id."""
        taken = self.podman("pull", "--quiet", f"oci:{layout}:v1")
        assert taken.code == 0, taken.err
        found = taken.out.strip()
        assert self.podman("tag", found, name).code == 0
        return found

    def run(self, image: str, *options: object) -> Ran:
        """``podman run`` with the hook."""
        return self.podman("--hooks-dir", self.folder / "hooks", "run", "--rm", *options, image)

    def starts(self, image: str, *options: object) -> bool:
        """Whether it starts; where it does not, the hook said no before anything of the image had run."""
        done = self.run(image, *options)
        if done.code == 0:
            assert done.out == SAYS
            return True
        assert done.code in REFUSED
        assert done.out == ""
        assert "wheelmark: refused" in done.err
        return False

    def reasons(self) -> set[str]:
        """Reason codes of the last start, from the log; none where it was allowed."""
        AuditLog(self.log).check()
        entries = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]
        last = entries[-1]["path"]
        return {
            entry["reason"] for entry in entries if entry["path"] == last and entry["verdict"] != "accepted"
        }

    def images(self) -> set[str]:
        """Digests that podman has."""
        listed = self.podman("images", "--format", "{{.Digest}}")
        assert listed.code == 0, listed.err
        return set(listed.out.split())

    def clear(self) -> None:
        """Remove containers and images, and what is mounted."""
        self.podman("rm", "--force", "--all", "--time", "0")
        self.podman("rmi", "--force", "--all")
        mounts = [
            line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        ]
        for place in sorted((item for item in mounts if item.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", place], check=True, capture_output=True, timeout=60)


def need_podman() -> None:
    """Not run where there is no podman, or this is not root."""
    for name in ("podman", "runc"):
        need_program(name)
    if os.geteuid() != 0:
        not_run("root's podman is asked, and this is not root")


def image_in(layout: Path) -> Descriptor:
    """The image of a layout that is tagged v1."""
    return Layout(layout).resolve("v1").descriptor


@contextlib.contextmanager
def opened(program: bytes, domain: tuple[Path, Forge], driver: str) -> Iterator[Host]:
    # A short path: sockets lie under it.
    # podman makes a repository's name of a path, and not of every one.
    folder = Path(tempfile.gettempdir()) / f"wmh{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        (folder / "containers.conf").write_text(ENGINE, encoding="utf-8")
        patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
        (folder / "policy.toml").write_text(POLICY, encoding="utf-8")
        (folder / "policy.toml").chmod(0o600)
        host = Host(folder=folder, home=domain[0], forge=domain[1], program=program, driver=driver)
        try:
            yield host
        finally:
            host.clear()
            shutil.rmtree(folder)
