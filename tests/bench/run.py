"""Measure the pipeline itself: ``nox -s bench``. Prints a Markdown table for docs/benchmarks/pipeline.md.

Cold means empty kernel and native caches and no release directory; locked environments are made before, since
their time is the package index's. Times are wall seconds of one run on an otherwise idle machine; peaks are the
largest resident set of any process that the step started.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
_COPIED = ("wheelmark.toml", "lockfiles", "kernels", "sbom", "policies")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One step."""

    step: str
    seconds: float
    cpu: float
    peak_mib: float

    def row(self) -> str:
        """A Markdown row."""
        busy = self.cpu / self.seconds if self.seconds else 0.0
        return f"| {self.step} | {self.seconds:.2f} | {busy:.2f} | {self.peak_mib:.0f} |"


def measured(step: str, command: Sequence[str], *, cwd: Path, env: dict[str, str]) -> Measured:
    """Run one command in a process of its own that reports what its children used.

    Raises:
        SystemExit: The command failed; its output is shown.
    """
    program = (
        "import json, resource, subprocess, sys, time\n"
        "begun = time.monotonic()\n"
        "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)\n"
        "took = time.monotonic() - begun\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "sys.stderr.buffer.write(code.stderr if code.returncode else b'')\n"
        "print(json.dumps([code.returncode, took, used.ru_utime + used.ru_stime, used.ru_maxrss]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    code, took, cpu, peak = json.loads(done.stdout)
    if code:
        raise SystemExit(f"{step}: {' '.join(command)} ended with {code}\n{done.stderr}")
    print(f"{step}: {took:.2f} s", file=sys.stderr, flush=True)
    return Measured(step=step, seconds=took, cpu=cpu, peak_mib=peak / 1024)


def best(step: str, command: Sequence[str], *, cwd: Path, env: dict[str, str], runs: int) -> Measured:
    """The fastest of several runs: start-up times, where any disturbance only adds."""
    return min(
        (measured(step, command, cwd=cwd, env=env) for _ in range(runs)), key=lambda item: item.seconds
    )


VERIFY = """
import datetime, json, pathlib, time
times = []
for _ in range(4):
    begun = time.monotonic()
    from wheelmark.verify import load_policy, verify_release
    policy = load_policy(pathlib.Path("policies/embedded-dev.toml"))
    report = verify_release(pathlib.Path("dist"), policy, now=datetime.datetime.now(datetime.UTC))
    assert report.accepted, report.reasons()
    times.append(time.monotonic() - begun)
print(json.dumps(times))
"""


def verified_in_process(*, cwd: Path, env: dict[str, str]) -> str:
    """The whole release verified four times in one process: the first pays for every import."""
    done = subprocess.run(
        [sys.executable, "-c", VERIFY], cwd=cwd, env=env, capture_output=True, text=True, check=True
    )
    first, *later = json.loads(done.stdout)
    return (
        f"verify_release in one process: {first:.2f} s the first time, imports included; "
        f"{min(later):.2f} to {max(later):.2f} s after that"
    )


def main() -> int:
    """Measure everything, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="work here and keep it")
    args = parser.parse_args()
    work = args.keep or Path(tempfile.mkdtemp(prefix="wheelmark-bench-"))
    project = work / "project"
    project.mkdir(parents=True)
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, project / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, project / name)
    env = {**os.environ, "WHEELMARK_STATE": str(work / "state")}
    shared = Path(os.environ.get("WHEELMARK_CACHE", ROOT / ".wheelmark"))
    wheelmark = [sys.executable, "-m", "wheelmark"]
    place = ["--environments", str(shared), "--snapshot"]
    subprocess.run(
        [*wheelmark, "environment", "lockfiles/build.txt", "--cache", str(shared)],
        cwd=project,
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    rows = [measured("build, cold, all targets", [*wheelmark, "build", *place], cwd=project, env=env)]
    rows.append(measured("test, cold", [*wheelmark, "test", *place], cwd=project, env=env))
    rows.append(measured("sign", [*wheelmark, "sign", *place], cwd=project, env=env))
    rows.append(measured("build, nothing changed", [*wheelmark, "build", *place], cwd=project, env=env))
    rows.append(measured("test, nothing changed", [*wheelmark, "test", *place], cwd=project, env=env))
    rows.append(measured("sign, nothing changed", [*wheelmark, "sign", *place], cwd=project, env=env))
    verify = [*wheelmark, "verify", "dist", "--policy", "policies/embedded-dev.toml"]
    rows.append(best("verify the whole release, cold process", verify, cwd=project, env=env, runs=3))
    in_process = verified_in_process(cwd=project, env=env)
    rows.append(best("wheelmark --help", [*wheelmark, "--help"], cwd=project, env=env, runs=5))
    rows.append(
        best("import wheelmark", [sys.executable, "-c", "import wheelmark"], cwd=project, env=env, runs=5)
    )
    rows.append(best("python -c pass", [sys.executable, "-c", "pass"], cwd=project, env=env, runs=5))
    kernel = next((project / "kernels").rglob("triton_kernels/*forward*.py"))
    text = kernel.read_text(encoding="utf-8")
    kernel.write_text(text.replace("tl.float32)", "tl.float32) + 0.0", 1), encoding="utf-8")
    rows.append(measured("build, one kernel edited", [*wheelmark, "build", *place], cwd=project, env=env))
    print(f"Measured {dt.datetime.now(tz=dt.UTC):%Y-%m-%d} with `nox -s bench` on {machine()}.\n")
    print("| step | seconds | CPUs busy | peak MiB of a process |\n| --- | --- | --- | --- |")
    print("\n".join(item.row() for item in rows))
    print(f"\n{in_process}")
    print(f"peak of this program: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    if not args.keep:
        shutil.rmtree(work)
    return 0


def machine() -> str:
    """Model, CPUs, system and Python."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.machine()}, {os.cpu_count()} CPUs, {platform.system()}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
