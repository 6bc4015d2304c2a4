"""A publish that is killed at any request leaves no tag on half an image, and the next run finishes it.

Killed is with SIGKILL, when the registry has got request N and before it has answered; N is drawn with a fixed seed from all
requests of a whole run. ``WHEELMARK_KILLED_PAGE`` names a file for the transcript that stands in the docs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forging import Forge
from forwarding import Forwarder, forwarded
from publishing import Images, docker_registry, make_images
from registry import Registry as Server
from registry import served
from wheelmark.oci.client import Registry
from wheelmark.oci.layout import Layout
from wheelmark.oci.reference import LayoutReference, parse_reference
from wheelmark.publish import copy

TAGS = ("1.0", "1.0-cpu-x86_64", "1.0-cpu-aarch64")
TIMES = 10


@contextlib.contextmanager
def upstream(kind: str, folder: Path) -> Iterator[str]:
    if kind == "docker-registry":
        with docker_registry(folder) as host:
            yield host
    else:
        with served(Server()) as registry:
            yield registry.host


def publish(host: str, images: Images, forwarder: Forwarder, kill_at: int) -> tuple[int, str]:
    """Run it; exit status and the last line that it printed."""
    arguments = ["publish", f"{host}/team/app", "--from", str(images.path), "--tag", "1.0"]
    began = threading.Event()
    process: list[subprocess.Popen[str]] = []

    def at_request(number: int) -> None:
        if number == kill_at:
            began.wait()
            process[0].send_signal(signal.SIGKILL)
            process[0].wait()

    forwarder.count, forwarder.at_request = 0, at_request
    process.append(
        subprocess.Popen(
            [sys.executable, "-m", "wheelmark", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    )
    began.set()
    output, _ = process[0].communicate(timeout=300)
    return process[0].returncode, output.strip().rpartition("\n")[2]


def is_whole(host: str, tag: str, folder: Path) -> bool:
    """Whether a tag is there; what it names is there whole, with every referrer, then."""
    reference = parse_reference(f"{host}/team/app:{tag}")
    if Registry(host).find(reference) is None:
        return False
    copied = copy(reference, LayoutReference(path=folder / tag))
    layout = Layout(folder / tag)
    assert layout.check_files()
    assert layout.referrers([copied.digest.removeprefix("sha256:")])
    return True


@pytest.mark.parametrize("kind", ["docker-registry", "referrers API"])
def test_killed_at_ten_places_and_run_again(kind: str, forge: Forge, tmp_path: Path) -> None:
    images = make_images(tmp_path / "images", forge)
    with upstream(kind, tmp_path / "whole") as host, forwarded(Forwarder(host)) as forwarder:
        assert publish(forwarder.host, images, forwarder, 0)[0] == 0
        requests = forwarder.count
        assert publish(forwarder.host, images, forwarder, 0)[1].endswith("whole; 0 bytes were sent")
    places = sorted(random.Random(2026).sample(range(1, requests + 1), TIMES))
    lines = [f"# {kind}: {requests} requests in a whole run"]
    seen: set[int] = set()
    for number in places:
        folder = tmp_path / str(number)
        with upstream(kind, folder / "registry") as host, forwarded(Forwarder(host)) as forwarder:
            code, _ = publish(forwarder.host, images, forwarder, number)
            assert code == -signal.SIGKILL
            there = [tag for tag in TAGS if is_whole(host, tag, folder / "killed")]
            seen.add(len(there))
            code, last = publish(forwarder.host, images, forwarder, 0)
            assert code == 0
            assert all(is_whole(host, tag, folder / "after") for tag in TAGS)
            index = Registry(host).resolve(parse_reference(f"{host}/team/app:1.0"))
            assert index.digest == images.index.digest
            sent = last.partition("; ")[2]
            lines.append(
                f"kill -9 at request {number:>3}: {len(there)} of 3 tags set{', and whole' if there else ''}; "
                f"run again: exit {code}, {sent} in {forwarder.count} requests"
            )
    assert 0 in seen  # most places are before the first tag
    if page := os.environ.get("WHEELMARK_KILLED_PAGE"):
        with Path(page).open("a", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
