"""A wheel with some of its members replaced, and everything else as it was: RECORD agrees, and nothing was built again."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import wheelmaking
from checkouts import Checkout
from wheelmark import digests
from wheelmark.gates.context import Context
from wheelmark.gates.repeat import SecondBuild
from wheelmark.pipeline import Progress, make_plan, open_workspace, read_built
from wheelmark.pipeline.gating import _contexts


def context_of(checkout: Checkout, target: str) -> Context:
    """What the gates of a built wheel are given."""
    workspace = open_workspace(
        project=checkout.root, cache=checkout.cache, environments=checkout.environments
    )
    built = read_built(workspace)
    plan = {str(planned.row.target): planned for planned in make_plan(workspace).targets}
    second = SecondBuild(
        declaration=workspace.declaration,
        targets=[wheel.target for wheel in built.wheels],
        work=workspace.directory.state / "second-build",
        environments=workspace.environments,
    )
    return _contexts(workspace, built, plan, second, Progress())[target]


def with_wheel(context: Context, wheel: Path) -> Context:
    """The same context about another wheel."""
    return dataclasses.replace(context, wheel=wheel, sha256=digests.sha256_file(wheel))


def rewheeled(wheel: Path, folder: Path, changes: Mapping[str, Callable[[bytes], bytes]]) -> Path:
    """A copy of ``wheel`` in ``folder`` with members changed: end of a member's path -> what is made of its bytes."""
    with zipfile.ZipFile(wheel) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    for suffix, change in changes.items():
        (path,) = (path for path in members if path.endswith(suffix))
        changed = change(members[path])
        assert changed != members[path]
        members[path] = changed
    (record,) = (path for path in members if path.endswith(".dist-info/RECORD"))
    lines = [wheelmaking.record_line(path, data) for path, data in members.items() if path != record]
    members[record] = ("".join(lines) + f"{record},,\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / wheel.name
    made.write_bytes(
        wheelmaking.zip_bytes([wheelmaking.Entry(name=path, data=data) for path, data in members.items()])
    )
    return made


def replacing(old: str, new: str) -> Callable[[bytes], bytes]:
    """Replace text that stands exactly once."""

    def change(data: bytes) -> bytes:
        assert data.count(old.encode()) == 1
        return data.replace(old.encode(), new.encode())

    return change
