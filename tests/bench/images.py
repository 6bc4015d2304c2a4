"""Measure images: ``nox -s bench -- images``. ``--write`` puts the result into docs/benchmarks/images.md.

Ratios are of both sides interleaved in one run. Wall seconds of single runs stand beside the CPU seconds of the same run:
on a machine that does other things the second say more. Nothing is asserted here but digests.

=========  ================================================================================================
part       what is measured
=========  ================================================================================================
build      the CPU image with packages and wheels fetched before and no layer kept; then with one file of the
           payload changed
memory     the peak of a process that builds an image around one wheel of 100 MiB, and around one of 1 GiB
places     the digest of the real CPU image as several users, in several surroundings, by several Pythons
publish    pushes to Debian's docker-registry on loopback, and ``skopeo copy`` of the same image, in turns
hook       ``podman run`` with and without the hook, in turns; the hook alone
=========  ================================================================================================
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import imagehook
import imageplaces
from run import ROOT, machine, measured

from publishing import docker_registry

PAGE = ROOT / "docs" / "benchmarks" / "images.md"
BEGIN, END = "<!-- measured: written by `nox -s bench -- images --write` -->", "<!-- end of measured -->"
TARGET = "cpu-x86_64"
_COPIED = ("wheelmark.toml", "lockfiles", "kernels", "sbom", "policies", "containers", "tests/baselines")
_MIB = 1 << 20


class Work:
    """A folder with a copy of the project and a cache of its own, around what was fetched before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.cache = folder / "cache"
        self.shared = Path(os.environ.get("WHEELMARK_CACHE", ROOT / ".wheelmark"))
        self.environment = {**os.environ, "WHEELMARK_STATE": str(folder / "state")}
        for name in _COPIED:
            source, place = ROOT / name, self.project / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, place)
        for name in ("wheels", "debian"):
            if (self.shared / name).is_dir():
                shutil.copytree(self.shared / name, self.cache / name)

    @property
    def dist(self) -> Path:
        """The release directory."""
        return self.project / "dist"

    def command(self, *arguments: str) -> list[str]:
        """``wheelmark`` on this copy."""
        places = ["--cache", str(self.cache), "--environments", str(self.shared), "--snapshot"]
        return [sys.executable, "-m", "wheelmark", *arguments, "--targets", TARGET, *places]

    def build(self) -> None:
        """Everything once: what is measured afterwards finds packages, wheels, kernels and native code."""
        measured("everything once", self.command("build"), cwd=self.project, env=self.environment)

    def forget_image(self) -> None:
        """As if no image had been built."""
        shutil.rmtree(self.cache / "images")
        shutil.rmtree(self.dist / "images")


def image_size(layout: Path, tag: str) -> int:
    """Compressed bytes of an image's layers."""
    index = json.loads((layout / "index.json").read_bytes())
    (digest,) = (
        item["digest"].removeprefix("sha256:")
        for item in index["manifests"]
        if item.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag
    )
    manifest = json.loads((layout / "blobs" / "sha256" / digest).read_bytes())
    return sum(int(layer["size"]) for layer in manifest["layers"])


def build(work: Work) -> list[str]:
    """The image again from what was fetched, and again after a change of the payload; what it weighs."""
    work.forget_image()
    whole = measured("image from a warm pool", work.command("build"), cwd=work.project, env=work.environment)
    source = next((work.project / "kernels" / "wheelmark_kernels").glob("reference.py"))
    source.write_text(source.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    again = measured(
        "one file of the payload changed", work.command("build"), cwd=work.project, env=work.environment
    )
    rows = [
        "| step | seconds | CPU seconds | peak MiB of a process | aim |",
        "| --- | --- | --- | --- | --- |",
        (
            f"| CPU image, wheels and packages fetched before, no layer kept | {whole.seconds:.1f} | {whole.cpu:.1f} | "
            f"{whole.peak_mib:.0f} | 60 s, 500 MiB |"
        ),
        (
            f"| the same with one file of the payload changed | {again.seconds:.1f} | {again.cpu:.1f} | "
            f"{again.peak_mib:.0f} | 5 s |"
        ),
    ]
    size = image_size(work.dist / "images", TARGET)
    return [*rows, "", f"Layers of the image of `{TARGET}`, compressed: {size / _MIB:.1f} MiB."]


def publish(work: Work, *, rounds: int) -> list[str]:
    """Pushes of one image, each to an empty registry of its own, in turns with skopeo; ours once more to a full one."""
    layout = work.dist / "images"
    push = [sys.executable, "-m", "wheelmark", "publish", "HOST/app", "--snapshot", "--json"]
    push += ["--from", str(layout), "--image", TARGET, "--tag", "1"]
    copy = [
        "skopeo",
        "copy",
        "--quiet",
        "--dest-tls-verify=false",
        f"oci:{layout}:{TARGET}",
        "docker://HOST/app:1",
    ]
    times: dict[str, list[float]] = {"publish": [], "skopeo": []}
    quiet = {**work.environment, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    sent = -1
    for number in range(rounds):
        for name, command in (("publish", push), ("skopeo", copy))[:: 1 if number % 2 else -1]:
            # A registry of its own each time: skopeo remembers what a host has, and would mount it.
            with docker_registry(work.folder / f"registry-{name}-{number}") as host:
                here = [item.replace("HOST", host) for item in command]
                times[name].append(measured(name, here, cwd=work.project, env=quiet).seconds)
                if name == "publish":
                    done = subprocess.run(here, cwd=work.project, env=quiet, capture_output=True, check=True)
                    sent = int(json.loads(done.stdout)["carried"]["bytes_sent"])
            shutil.rmtree(work.folder / f"registry-{name}-{number}")
    ours, theirs = times["publish"], times["skopeo"]
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    size = image_size(layout, TARGET)
    return [
        (
            f"{size / _MIB:.0f} MiB to an empty docker-registry on loopback, {rounds} times in turns with `skopeo copy`: "
            f"{ratio:.2f} times its wall time (medians {statistics.median(ours):.1f} s and {statistics.median(theirs):.1f} s). "
            f"Pushed once more: {sent:,} bytes were sent."
        )
    ]


def main() -> int:
    """Measure what was asked for; print it, or write the page."""
    parts: dict[str, Callable[[Work], list[str]]] = {
        "places": lambda work: imageplaces.places(work.folder / "places", work.dist, work.cache),
        "build": build,
        "memory": lambda work: imageplaces.memory(work.folder / "memory"),
        "publish": lambda work: publish(work, rounds=args.rounds),
        "hook": lambda work: imagehook.hook(work.folder / "hook", rounds=4 * args.rounds),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", action="append", choices=sorted(parts), help="only this; repeatable")
    parser.add_argument(
        "--rounds", type=int, default=5, help="pairs of pushes; four times as many starts (default: 5)"
    )
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.relative_to(ROOT)}")
    args = parser.parse_args()
    wanted: Sequence[str] = args.part or list(parts)
    folder = Path(tempfile.mkdtemp(prefix="wheelmark-bench-"))
    folder.chmod(0o755)
    try:
        work = Work(folder)
        if {"build", "places", "publish"} & set(wanted):
            work.build()
        lines = [
            (
                f"Measured {dt.datetime.now(tz=dt.UTC):%Y-%m-%d} with `nox -s bench -- images` on {machine()}; "
                f"load of the last minute before it {os.getloadavg()[0]:.1f}."
            )
        ]
        for name in wanted:
            lines += ["", f"**{name}**", "", *parts[name](work)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = "\n".join(lines)
    print(text)
    if args.write:
        page = PAGE.read_text(encoding="utf-8")
        head, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
