"""Measure images: ``nox -s bench -- images``. ``--write`` puts the result into docs/benchmarks/images.md, part by part.

Ratios are of both sides interleaved in one run. Wall seconds of single runs stand beside the CPU seconds of the same run:
on a machine that does other things the second say more. Nothing is asserted here but digests.

=========  ================================================================================================
part       what is measured
=========  ================================================================================================
build      the CPU image with packages and wheels fetched before and no layer kept; then with one file of the
           payload changed, in turns with gzip of the same; sizes, also without torch
memory     the peak of a process that builds an image around one wheel of 100 MiB, and around one of 1 GiB
places     the digest of the real CPU image as several users, in several surroundings, by several Pythons
publish    pushes to Debian's docker-registry on loopback, and ``skopeo copy`` of the same image, in turns
hook       ``podman run`` with and without the hook, in turns; the hook alone
=========  ================================================================================================
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import imagehook
import imageplaces
from figures import placed, spread, surroundings
from run import ROOT, Measured, machine, measured

from publishing import docker_registry

PAGE = ROOT / "docs" / "benchmarks" / "images.md"
TARGET = "cpu-x86_64"
_COPIED = ("wheelmark.toml", "lockfiles", "kernels", "sbom", "policies", "containers", "tests/baselines")
_PROGRAMS = {"publish": ("skopeo", "docker-registry"), "hook": ("podman", "runc")}
_MB = 1_000_000


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


def layer_sizes(layout: Path, tag: str) -> list[int]:
    """Compressed bytes of an image's layers, bottom first."""
    index = json.loads((layout / "index.json").read_bytes())
    (digest,) = (
        item["digest"].removeprefix("sha256:")
        for item in index["manifests"]
        if item.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag
    )
    manifest = json.loads((layout / "blobs" / "sha256" / digest).read_bytes())
    return [int(layer["size"]) for layer in manifest["layers"]]


def build(work: Work, *, rounds: int) -> list[str]:
    """The image again from what was fetched, beside gzip of what is in it; then after a change of the payload; what it weighs."""
    plain = work.folder / "layers.tar"
    with plain.open("wb") as stream:
        for blob in sorted((work.cache / "images" / "blobs").iterdir()):
            with gzip.open(blob) as layer:
                shutil.copyfileobj(layer, stream, 1 << 20)
    whole, zipped = [], []
    for number in range(rounds):
        work.forget_image()
        whole.append(
            measured(f"image {number}", work.command("build"), cwd=work.project, env=work.environment)
        )
        zipped.append(
            measured("gzip -6", ["gzip", "-6", "-c", str(plain)], cwd=work.project, env=work.environment)
        )
    plain.unlink()
    source = next((work.project / "kernels" / "wheelmark_kernels").glob("reference.py"))
    again = []
    for number in range(rounds):
        source.write_text(f"{source.read_text(encoding='utf-8')}\n# {number}\n", encoding="utf-8")
        again.append(
            measured("payload changed", work.command("build"), cwd=work.project, env=work.environment)
        )
    ratios = [one.cpu / two.cpu for one, two in zip(whole, zipped, strict=True)]
    rows = [
        "| step | wall seconds: median (range) | CPU seconds: median (range) | peak MiB of a process | aim |",
        "| --- | --- | --- | --- | --- |",
        _step("CPU image, wheels and packages fetched before, no layer kept", whole, "60 s, 500 MB"),
        _step("`gzip -6` of its three layers, in turns with that", zipped, ""),
        f"| the one ÷ the other, pair by pair | | {spread(ratios)} | | |",
        _step("one file of the payload changed", again, "5 s"),
    ]
    layers = layer_sizes(work.dist / "images", TARGET)
    without = imageplaces.without_torch(work.folder / "without", work.dist, work.cache)
    small = layer_sizes(without, TARGET)
    return [
        *rows,
        "",
        "| compressed layers | MB | system | dependencies | payload | aim |",
        "| --- | --- | --- | --- | --- | --- |",
        _sizes(f"image of `{TARGET}`", layers, ""),
        _sizes("the same without torch", small, "60 MB"),
    ]


def _step(what: str, found: Sequence[Measured], aim: str) -> str:
    return f"{_times(what, found)} {max(item.peak_mib for item in found):.0f} | {aim} |"


def _sizes(what: str, layers: Sequence[int], aim: str) -> str:
    figures = " | ".join(f"{size / _MB:.1f}" for size in (sum(layers), *layers))
    return f"| {what} | {figures} | {aim} |"


def publish(work: Work, *, rounds: int) -> list[str]:
    """Pushes of one image, each to an empty registry of its own, in turns with skopeo; ours once more to a full one."""
    layout = work.dist / "images"
    push = [sys.executable, "-m", "wheelmark", "publish", "HOST/app", "--snapshot", "--unsigned", "--json"]
    push += ["--from", str(layout), "--image", TARGET, "--tag", "1"]
    copy = [
        "skopeo",
        "copy",
        "--quiet",
        "--dest-tls-verify=false",
        f"oci:{layout}:{TARGET}",
        "docker://HOST/app:1",
    ]
    times: dict[str, list[Measured]] = {"publish": [], "skopeo": []}
    quiet = {**work.environment, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    sent = -1
    for number in range(rounds):
        for name, command in (("publish", push), ("skopeo", copy))[:: 1 if number % 2 else -1]:
            # A registry of its own each time: skopeo remembers what a host has, and would mount it.
            with docker_registry(work.folder / f"registry-{name}-{number}") as host:
                here = [item.replace("HOST", host) for item in command]
                times[name].append(measured(name, here, cwd=work.project, env=quiet))
                if name == "publish":
                    done = subprocess.run(here, cwd=work.project, env=quiet, capture_output=True, check=True)
                    sent = int(json.loads(done.stdout)["carried"]["bytes_sent"])
            shutil.rmtree(work.folder / f"registry-{name}-{number}")
    size = sum(layer_sizes(layout, TARGET))
    ours, theirs = times["publish"], times["skopeo"]
    pairs = list(zip(ours, theirs, strict=True))
    return [
        f"{size / _MB:.0f} MB to an empty docker-registry on loopback, {rounds} pairs, in turns:",
        "",
        "| what | wall seconds: median (range) | CPU seconds: median (range) |",
        "| --- | --- | --- |",
        _times("`wheelmark publish`", ours),
        _times("`skopeo copy`", theirs),
        (
            f"| the one ÷ the other, pair by pair | {spread([one.seconds / two.seconds for one, two in pairs])} "
            f"| {spread([one.cpu / two.cpu for one, two in pairs])} |"
        ),
        "",
        (
            f"Pushed once more: {sent:,} bytes were sent (aim: 0). This registry has no referrers API: `publish` waits two seconds "
            "there where there are referrers, and reads their tag again."
        ),
    ]


def _times(what: str, found: Sequence[Measured]) -> str:
    return f"| {what} | {spread([item.seconds for item in found])} | {spread([item.cpu for item in found])} |"


def main() -> int:
    """Measure what was asked for; print it, or write the page."""
    parts: dict[str, Callable[[Work], list[str]]] = {
        "places": lambda work: imageplaces.places(work.folder / "places", work.dist, work.cache),
        "build": lambda work: build(work, rounds=args.rounds),
        "memory": lambda work: imageplaces.memory(work.folder / "memory"),
        "publish": lambda work: publish(work, rounds=args.rounds),
        "hook": lambda work: imagehook.hook(work.folder / "hook", rounds=4 * args.rounds),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", action="append", choices=sorted(parts), help="only this; repeatable")
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="pairs of builds and pushes; four times as many starts (default: 5)",
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
        for name in wanted:
            again = f"nox -s bench -- images --part {name}"
            measured_where = surroundings(again, machine(), _PROGRAMS.get(name, ()))
            text = "\n".join([*parts[name](work), "", measured_where])
            print(f"\n## {name}\n\n{text}", flush=True)
            if args.write:
                PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), name, text), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
