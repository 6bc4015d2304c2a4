"""``nox -s wheels``: the payload's wheels by cibuildwheel in a container, through the same gates, compared with the pipeline's.

1. Image: the stand-in of ``image.py`` (``--image local``), or the one that the locked cibuildwheel pins (``--image pinned``).
2. Wheelhouse: what the lock files name is fetched here, by hash; the containers have no network.
3. Build: ``cibuildwheel kernels`` in a copy of the sources, without caches and hidden files.
4. Build again: the sources elsewhere, with other times and modes, another locale, time zone and hash seed.
5. Gates: those that ``wheelmark gate`` runs, as evidence that names the route.
6. Compare: with the wheel of ``dist/``, where there is one.

Results are in ``--output`` (default: ``.wheelmark/cibuildwheel``), a folder for each target: the wheel, ``again/`` with the second one,
``evidence/`` and ``comparison.json``.
"""

from __future__ import annotations

import argparse
import configparser
import dataclasses
import importlib.metadata
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from containers.manylinux.image import ROOT, make_image, say

from wheelmark import digests
from wheelmark.binaries.wheel import read_wheel
from wheelmark.build.image.fetch import fetch_wheels
from wheelmark.config import Declaration, HostArch, TargetRow
from wheelmark.errors import BuildError, CommandError, ConfigError, Exit, ToolError, WheelmarkError
from wheelmark.evidence import Evidence, Verdict
from wheelmark.gates.comparison import Comparison, compare_wheels
from wheelmark.gates.image.podman import preferred_runtime
from wheelmark.pipeline import Progress, open_workspace
from wheelmark.pipeline.elsewhere import gate_wheel
from wheelmark.pipeline.progress import table
from wheelmark.pipeline.workspace import Workspace
from wheelmark.targets import Target

SOURCES = ("wheelmark.toml", "pyproject.toml", "README.md", "LICENSE", "src", "kernels", "lockfiles", "sbom")
"""What a build reads, relative to the repository."""
LOCKS = ("nox.txt", "tools.txt", "build.txt")
_PYTHON = "3.11"
_GLIBC = 28
_HOUSE = "/wheelhouse"
_LATER = 86_400 * 400
_ENGINE = "podman"
_LIMITS = (("nofile", resource.RLIMIT_NOFILE, 16_384), ("nproc", resource.RLIMIT_NPROC, 4096))
"""Limits in the container, where the caller's own are not lower: enough for a build."""
_SURROUNDINGS = {"TZ": "Pacific/Kiritimati", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "4242"}
"""Of the second build."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Route:
    """How the wheels are built: what evidence says of it."""

    image: str
    """As engines name it."""
    image_digest: str
    wheelhouse: Path
    engine: str
    cibuildwheel: str

    def as_json(self) -> dict[str, str]:
        """For evidence."""
        return {
            "route": f"cibuildwheel {self.cibuildwheel}",
            "image": self.image_digest,
            "engine": self.engine,
        }


def pinned_image() -> str:
    """The image that the installed cibuildwheel pins for ``manylinux_2_28`` on x86-64, with its digest."""
    config = configparser.ConfigParser()
    config.read_string(
        files("cibuildwheel").joinpath("resources/pinned_docker_images.cfg").read_text("utf-8")
    )
    return config["x86_64"]["manylinux_2_28"].partition("#")[0].strip()


def prepare(image: str, cache: Path) -> Route:
    """Steps 1 and 2.

    Args:
        image: ``local`` or ``pinned``.
        cache: The pipeline's cache.

    Raises:
        ToolError: There is no podman.
        LockError: A package or wheel cannot be had.
    """
    if shutil.which(_ENGINE) is None:
        raise ToolError(
            f"{_ENGINE} is not installed; cibuildwheel builds in containers",
            fix=f"apt-get install {_ENGINE}",
            reason="no-engine",
        )
    os.environ.update(engine_settings(cache))
    version = run([_ENGINE, "--version"]).strip()
    if image == "pinned":
        name = pinned_image()
        digest = name.partition("@")[2]
    else:
        made = make_image(cache=cache, pip=_pip(cache), progress=say)
        # By its id: a name would be looked up in registries, and could be moved.
        name, digest = made.config.removeprefix("sha256:"), made.digest
        if subprocess.run([_ENGINE, "image", "exists", name], check=False).returncode:
            # By a relative path: podman makes a repository's name of it, and some paths would be none.
            run([_ENGINE, "pull", "--quiet", f"oci:{made.layout.name}:manylinux"], cwd=made.layout.parent)
        kept = run([_ENGINE, "image", "inspect", "--format", "{{.Digest}}", name]).strip()
        if kept != digest:
            raise BuildError(
                f"{_ENGINE} keeps the image as {kept[:100]}, and not as {digest}",
                cause="it converted the image",
                reason="cibuildwheel-image",
            )
    return Route(
        image=name,
        image_digest=digest,
        wheelhouse=_wheelhouse(cache),
        engine=version,
        cibuildwheel=importlib.metadata.version("cibuildwheel"),
    )


def _pip(cache: Path) -> Path:
    wheels = fetch_wheels(
        ROOT / "lockfiles" / "cibuildwheel.txt",
        pool=cache / "wheels",
        python_version=_PYTHON,
        host=HostArch.X86_64,
        newest_glibc=_GLIBC,
        progress=say,
    )
    return next(path for path in wheels if path.name.startswith("pip-"))


def _wheelhouse(cache: Path) -> Path:
    """A folder with links to every wheel that the build environment is made of."""
    found = {
        path.name: path
        for lock in LOCKS
        for path in fetch_wheels(
            ROOT / "lockfiles" / lock,
            pool=cache / "wheels",
            python_version=_PYTHON,
            host=HostArch.X86_64,
            newest_glibc=_GLIBC,
            progress=say,
        )
    }
    key = digests.sha256("".join(f"{path.parent.name}\n" for path in found.values()).encode())
    house = cache / "wheelhouse" / key[:16]
    shutil.rmtree(house, ignore_errors=True)
    house.mkdir(parents=True)
    for name, path in found.items():
        try:
            os.link(path, house / name)
        except OSError:
            shutil.copyfile(path, house / name)
    return house


def copy_sources(place: Path, root: Path = ROOT) -> Path:
    """The sources that a build reads, without caches, hidden files and what is compiled."""
    ignore = shutil.ignore_patterns("__pycache__", "*.py[co]", "*.so", ".*")
    place.mkdir(parents=True)
    for name in SOURCES:
        path = root / name
        if path.is_dir():
            shutil.copytree(path, place / name, ignore=ignore)
        else:
            shutil.copyfile(path, place / name)
    return place


def build(route: Route, row: TargetRow, snapshot: Path, *, second: bool = False) -> tuple[str, bytes]:
    """Steps 3 and 4: one run of cibuildwheel; the wheel's name and bytes.

    Args:
        route: As ``prepare`` found it.
        row: The target.
        snapshot: The sources, as both builds see them.
        second: Build them elsewhere, in other surroundings.

    Raises:
        CommandError: cibuildwheel ended with a failure.
        BuildError: It made no wheel, or several (``cibuildwheel-output``).
    """
    with tempfile.TemporaryDirectory(prefix="wheelmark-cibuildwheel-") as folder:
        work = Path(folder).resolve()
        project = work / "project"
        sources = copy_sources(project / "elsewhere" / "again" if second else project, snapshot)
        if second:
            _age(sources)
        package = (sources / "kernels").relative_to(project)
        output = work / "output"
        run(
            # podman hands the personality down: kernels are compiled without address space randomization, and the
            # container keeps the engine's own seccomp profile, which forbids to ask for it inside.
            [
                "setarch",
                "--addr-no-randomize",
                sys.executable,
                "-m",
                "cibuildwheel",
                str(package),
                "--platform",
                "linux",
            ],
            cwd=project,
            environment=_environment(route, row, output, work, second=second),
            show=True,
        )
        made = sorted(output.glob("*"))
        if len(made) != 1 or made[0].suffix != ".whl":
            raise BuildError(
                f"{row.target}: cibuildwheel left {[path.name for path in made]}",
                reason="cibuildwheel-output",
            )
        return made[0].name, made[0].read_bytes()


def _age(sources: Path) -> None:
    """Other modes and times than a checkout has."""
    later = time.time() - _LATER
    for name in digests.tree_files(sources):
        (sources / name).chmod(0o600)
        os.utime(sources / name, (later, later))


def _environment(route: Route, row: TargetRow, output: Path, work: Path, *, second: bool) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CIBW_", "PIP_", "UV_")) and name != "SOURCE_DATE_EPOCH"
    }
    inside = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": _HOUSE,
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": _HOUSE,
        "UV_OFFLINE": "1",
        **(_SURROUNDINGS if second else {}),
    }
    create = ["--network=none", f"--volume={route.wheelhouse}:{_HOUSE}:ro"]
    return {
        **kept,
        "TMPDIR": str(work),
        "CIBW_CACHE_PATH": str(work / "cache"),
        "CIBW_OUTPUT_DIR": str(output),
        "CIBW_MANYLINUX_X86_64_IMAGE": route.image,
        "CIBW_CONFIG_SETTINGS": f"target={row.target}",
        "CIBW_CONTAINER_ENGINE": f"{_ENGINE}; disable_host_mount: True; create_args: {' '.join(create)}",
        "CIBW_ENVIRONMENT": " ".join(f"{name}={value}" for name, value in inside.items()),
        "CIBW_BUILD_VERBOSITY": "1",
        # No configuration of the user's, for pip, uv or engines' prompts.
        "PIP_CONFIG_FILE": os.devnull,
    }


def engine_settings(cache: Path) -> dict[str, str]:
    """Environment variables for podman, unless the caller has a configuration of his own (``CONTAINERS_CONF``).

    By default podman asks for higher limits than a process in a container may have, and for a journal and a systemd that are
    not there; and it takes another runtime than the gate that runs images (``preferred_runtime``).
    """
    if os.environ.get("CONTAINERS_CONF"):
        return {}
    limits = [
        f'"{name}={most}:{most}"'
        for name, number, enough in _LIMITS
        for hard in [resource.getrlimit(number)[1]]
        for most in [enough if hard == resource.RLIM_INFINITY else min(hard, enough)]
    ]
    path = cache / "containers.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    name = preferred_runtime()
    runtime = f'runtime = "{name}"\n' if name else ""
    path.write_text(
        f'[containers]\ndefault_ulimits = [{", ".join(limits)}]\nlog_driver = "k8s-file"\n'
        f'[engine]\n{runtime}cgroup_manager = "cgroupfs"\nevents_logger = "file"\n',
        encoding="utf-8",
    )
    return {"CONTAINERS_CONF": str(path)}


def run(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    show: bool = False,
) -> str:
    """Run a program; its output, shown to people as it comes where ``show``.

    Raises:
        CommandError: It ended with a failure.
    """
    lines = []
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(environment) if environment is not None else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            lines.append(line)
            if show:
                sys.stderr.write(line)
    if process.returncode:
        raise CommandError(command, process.returncode, "".join(lines))
    return "".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One target's wheel, and what was found out about it."""

    target: str
    wheel: Path
    evidence: tuple[Evidence, ...]
    comparison: Comparison | None
    """With the pipeline's wheel; ``None`` where there is none of the target."""


def make(
    route: Route, row: TargetRow, workspace: Workspace, *, output: Path, again: bool, against: Path
) -> Result:
    """Steps 3 to 6 for one target.

    Args:
        route: As ``prepare`` found it.
        row: The target.
        workspace: The project and its caches.
        output: Folder of the target's results; emptied first.
        again: Whether it is built a second time, and ``repeat`` run.
        against: The pipeline's wheels.

    Raises:
        WheelmarkError: As ``build`` and ``gate_wheel``.
    """
    shutil.rmtree(output, ignore_errors=True)
    second = None
    with tempfile.TemporaryDirectory(prefix="wheelmark-sources-") as folder:
        # Somebody may go on working: both builds are of the same sources.
        snapshot = copy_sources(Path(folder) / "snapshot")
        name, data = build(route, row, snapshot)
        output.mkdir(parents=True)
        (output / name).write_bytes(data)
        if again:
            second = output / "again" / name
            second.parent.mkdir()
            second.write_bytes(build(route, row, snapshot, second=True)[1])
    evidence = gate_wheel(
        workspace, output / name, row, route=route.as_json(), second=second, progress=Progress()
    )
    for item in evidence:
        path = output / "evidence" / f"{item.gate}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(item.as_json(), indent=2, sort_keys=True) + "\n", encoding="utf-8")
    comparison = None
    if (against / name).is_file():
        comparison = compare_wheels(read_wheel(against / name), read_wheel(output / name))
        text = json.dumps(comparison.as_json(), indent=2, sort_keys=True) + "\n"
        (output / "comparison.json").write_text(text, encoding="utf-8")
    return Result(target=str(row.target), wheel=output / name, evidence=evidence, comparison=comparison)


def rows(declaration: Declaration, named: str) -> tuple[TargetRow, ...]:
    """The rows that this route builds: all for x86-64, or those named.

    Raises:
        ConfigError: A row for another CPU was named: the build lock holds torch's headers for x86-64 only, and the manylinux
            image has no cross compiler.
    """
    found = tuple(
        declaration.row(Target.parse(text.strip())) for text in named.split(",") if text.strip()
    ) or tuple(row for row in declaration.targets if row.host is HostArch.X86_64)
    for row in found:
        if row.host is not HostArch.X86_64:
            raise ConfigError(
                f"{row.target} is for {row.host.value}; this route builds for x86_64",
                cause="the manylinux image has no cross compiler",
                fix=f"nox -s build -- --targets {row.target}",
                reason="cibuildwheel-target",
            )
    return found


def summary(results: Sequence[Result]) -> str:
    """Tables for people: gates by target, and what differs from the pipeline's wheels."""
    gates = tuple(dict.fromkeys(item.gate for result in results for item in result.evidence))
    lines = []
    for result in results:
        words = {
            item.gate: item.level.value if item.verdict is Verdict.PASSED else item.verdict.value
            for item in result.evidence
        }
        if result.comparison is None:
            compared = "no such wheel"
        elif result.comparison.identical:
            compared = "identical"
        else:
            compared = f"{len(result.comparison.differences)} facts differ"
        lines.append((result.target, *(words.get(gate, "-") for gate in gates), compared))
    text = table(("target", *gates, "the pipeline's"), lines)
    for result in results:
        if result.comparison is not None and result.comparison.differences:
            facts = [
                (item.where, item.what, item.first, item.second) for item in result.comparison.differences
            ]
            text += f"\n\n{result.target}\n{table(('where', 'what', 'pipeline', 'cibuildwheel'), facts)}"
    return text


def main() -> int:
    """The command line; exit code 10 if a gate FAILED."""
    parser = argparse.ArgumentParser(description="wheels by cibuildwheel, gated and compared")
    parser.add_argument("--targets", default="", metavar="IDS", help="default: every target for x86-64")
    parser.add_argument("--image", choices=("local", "pinned"), default="local")
    parser.add_argument("--output", type=Path, default=ROOT / ".wheelmark" / "cibuildwheel")
    parser.add_argument(
        "--against", type=Path, default=ROOT / "dist" / "wheels", help="the pipeline's wheels"
    )
    parser.add_argument("--once", action="store_true", help="do not build again: the repeat gate is not run")
    args = parser.parse_args()
    workspace = open_workspace(project=ROOT)
    try:
        asked = rows(workspace.declaration, args.targets)
        route = prepare(args.image, workspace.cache)
        say(f"image: {route.image_digest}; {route.engine}; cibuildwheel {route.cibuildwheel}")
        results = [
            make(
                route,
                row,
                workspace,
                output=args.output / str(row.target),
                again=not args.once,
                against=args.against,
            )
            for row in asked
        ]
    except WheelmarkError as error:
        print(f"wheels: {error}", file=sys.stderr)
        return int(error.exit_code)
    print(summary(results))
    failed = any(item.verdict is Verdict.FAILED for result in results for item in result.evidence)
    return int(Exit.GATE if failed else Exit.OK)


if __name__ == "__main__":
    sys.exit(main())
