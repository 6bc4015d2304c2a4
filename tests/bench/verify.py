"""Measure the verifier: ``nox -s bench -- verify``. Prints Markdown for docs/benchmarks/verifier.md.

Every figure is a ratio of two things measured in turn, pair after pair, on one machine in one run: median and range of
the pairs' ratios. Releases are forged in process (tests/releasing.py) around wheels of random bytes, stored as
Wheelmark stores them; nothing is a hole, and no two wheels are alike.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime as dt
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import releasing  # noqa: E402 - tests/ has to be on the path first
import wheelmaking  # noqa: E402
from forging import Forge, forging  # noqa: E402
from wheelmark.sign import embedded  # noqa: E402
from wheelmark.trust import state  # noqa: E402
from wheelmark.verify import FactsCache, load_policy, verify_release, verify_wheel  # noqa: E402
from wheelmark.verify.opinion import ReferenceClient  # noqa: E402
from wheelmark.verify.policy import Policy  # noqa: E402

POLICY = ROOT / "policies" / "embedded-dev.toml"
_LATER = dt.timedelta(seconds=5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison."""

    what: str
    against: str
    aim: str
    ours: Sequence[float]
    """Seconds."""
    theirs: Sequence[float]

    def text(self) -> str:
        """A Markdown row."""
        ratios = [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        times = f"{statistics.median(self.ours):.4g} s / {statistics.median(self.theirs):.4g} s"
        return f"| {self.what} | {self.against} | {statistics.median(ratios):.3g} | {spread} | {self.aim} | {times} |"


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def paired(
    what: str,
    ours: Callable[[], object],
    against: str,
    theirs: Callable[[], object],
    *,
    pairs: int,
    aim: str,
    scale: float = 1.0,
) -> Row:
    """Measure two things in turn, each first in every other pair; ``scale`` multiplies the second one's time."""
    mine: list[float] = []
    other: list[float] = []
    for number in range(pairs):
        if number % 2:
            other.append(scale * timed(theirs))
            mine.append(timed(ours))
        else:
            mine.append(timed(ours))
            other.append(scale * timed(theirs))
    row = Row(what=what, against=against, aim=aim, ours=mine, theirs=other)
    print(row.text(), file=sys.stderr, flush=True)
    return row


def wheel_of(size: int, number: int = 0) -> tuple[str, bytes]:
    """A wheel of about ``size`` bytes, stored, like no other."""
    name = releasing.file_name(f"cpu{number}")
    block = os.urandom(1 << 20)
    parts = max(1, size >> 23)
    files = {
        f"demo_kernels/part{part}.bin": (block * (-(-size // parts) // len(block) + 1))[: size // parts - 4]
        + os.urandom(4)
        for part in range(parts)
    }
    entries = wheelmaking.wheel_entries({"demo_kernels/__init__.py": b"", **files}, name)
    return name, wheelmaking.zip_bytes([dataclasses.replace(entry, deflate=False) for entry in entries])


def made_release(folder: Path, forge: Forge, *, wheels: int, size: int) -> Path:
    """A signed release of that many wheels."""
    parts = []
    for number in range(wheels):
        name, data = wheel_of(size, number)
        parts.append(dataclasses.replace(releasing.part(wheel=data), name=name))
        parts[-1].sbom = releasing.sbom_bytes(name, data)
    return releasing.draft(*parts).write(folder / "dist", forge.sign, root=forge.root_bytes)


def hashed(path: Path) -> str:
    """sha256 of a file, as fast as Python's own way is."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hashed_all(paths: Sequence[Path]) -> None:
    """sha256 of files on all CPUs."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        list(pool.map(hashed, paths))


def now() -> dt.datetime:
    """A clock that is not behind what was signed in this second."""
    return dt.datetime.now(dt.UTC) + _LATER


def releases(work: Path, forge: Forge, policy: Policy, args: argparse.Namespace) -> list[Row]:
    """The whole release against hashing alone, and against sigstore's command."""
    dist = made_release(work, forge, wheels=args.wheels, size=args.size)
    files = sorted(
        (path for path in dist.rglob("*") if path.is_file()), key=lambda p: p.stat().st_size, reverse=True
    )
    total = sum(path.stat().st_size for path in files)
    about = f"release of {args.wheels} wheels, {total / 1e9:.2f} GB"

    def verify(cache: FactsCache | None = None) -> None:
        report = verify_release(dist, policy, now=now(), cache=cache)
        if not report.accepted:
            raise SystemExit(report.as_table())

    hashing = f"sha256 of its bytes on {os.cpu_count()} CPUs"
    hashed_all(files)  # into the page cache
    rows = [
        paired(
            f"{about}, bytes never seen",
            verify,
            hashing,
            lambda: hashed_all(files),
            pairs=args.pairs,
            aim="1.25",
        )
    ]
    cache = FactsCache(work / "cache")
    verify(cache)
    rows.append(
        paired(
            f"{about}, looked into before (`--cache`)",
            lambda: verify(cache),
            hashing,
            lambda: hashed_all(files),
            pairs=args.pairs,
            aim="1.25",
        )
    )
    few = [path for path in files if path.suffix == ".whl"][: args.calls]
    trust = work / "trust.json"
    trust.write_bytes(trust_config(forge))

    def sigstore() -> None:
        for wheel in few:
            bundle = wheel.with_name(f"{wheel.name}.sigstore.json")
            run([sys.executable, "-m", "sigstore", "--trust-config", str(trust), "verify", "identity",
                 "--offline", "--bundle", str(bundle), "--cert-identity", embedded.RELEASE_IDENTITY,
                 "--cert-oidc-issuer", embedded.ISSUER, str(wheel)])  # fmt: skip

    against = f"{args.wheels} calls of `sigstore verify` ({len(few)} made, scaled)"
    rows.append(
        paired(
            f"{about}, bytes never seen",
            verify,
            against,
            sigstore,
            pairs=2,
            aim="0.1",
            scale=args.wheels / len(few),
        )
    )
    shutil.rmtree(dist)
    return rows


def trust_config(forge: Forge) -> bytes:
    """A client trust configuration for sigstore's command."""
    window = {"start": "2020-01-01T00:00:00Z"}

    def service(version: int) -> list[dict[str, object]]:
        return [{"url": "http://localhost", "majorApiVersion": version, "validFor": window, "operator": "x"}]

    value = {
        "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
        "trustedRoot": json.loads(forge.root_bytes),
        "signingConfig": {
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "caUrls": service(1),
            "oidcUrls": service(1),
            "rekorTlogUrls": service(2),
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaUrls": service(1),
            "tsaConfig": {"selector": "ANY"},
        },
    }
    return json.dumps(value).encode()


def lone_wheel(work: Path, forge: Forge, size: int, number: int) -> Path:
    """A wheel and its provenance beside it."""
    dist = made_release(work / f"lone{number}", forge, wheels=1, size=size)
    (wheel,) = (dist / "wheels").glob("*.whl")
    for path in (wheel, wheel.with_name(f"{wheel.name}.sigstore.json")):
        shutil.move(path, work / f"lone{number}" / path.name)
    shutil.rmtree(dist)
    return work / f"lone{number}" / wheel.name


def lone_wheels(work: Path, forge: Forge, policy: Policy, args: argparse.Namespace) -> list[Row]:
    """One wheel in process against sigstore-python's own verification of its bundle, and hashing."""
    rows = []
    for number, size in enumerate((1 << 20, 40 << 20)):
        wheel = lone_wheel(work, forge, size, number)
        bundle = wheel.with_name(f"{wheel.name}.sigstore.json").read_bytes()
        client = ReferenceClient(policy.roots[0])
        certificate = certificate_of(bundle)

        def theirs(wheel: Path = wheel, bundle: bytes = bundle, client: ReferenceClient = client) -> None:
            hashed(wheel)
            client.check(bundle, None, certificate)  # noqa: B023 - called before the next size

        def ours(wheel: Path = wheel, cache: FactsCache | None = None) -> None:
            report = verify_wheel(wheel, policy, now=now(), cache=cache)
            if not report.accepted:
                raise SystemExit(report.as_table())

        theirs()
        ours()
        against = "sigstore-python's verify_dsse and sha256 of the wheel"
        what = f"one wheel of {size >> 20} MiB in process"
        rows.append(paired(what, ours, against, theirs, pairs=args.many, aim="1.3"))
        cache = FactsCache(work / "cache")
        ours(cache=cache)
        again = f"{what}, looked into before (`cache`)"
        rows.append(
            paired(again, lambda: ours(cache=cache), against, theirs, pairs=args.many, aim="1.3")  # noqa: B023
        )
    return rows


def certificate_of(bundle: bytes):
    """The signing certificate of a bundle."""
    import base64  # noqa: PLC0415 - here alone

    from cryptography import x509  # noqa: PLC0415

    raw = json.loads(bundle)["verificationMaterial"]["certificate"]["rawBytes"]
    return x509.load_der_x509_certificate(base64.b64decode(raw))


def run(command: Sequence[str]) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")


def cold(work: Path, forge: Forge, args: argparse.Namespace) -> Row:
    """The command in a new process against importing sigstore's verifier."""
    wheel = lone_wheel(work, forge, 1 << 20, 2)
    time.sleep(2)  # signed in this second: the command's clock would be behind
    command = [sys.executable, "-m", "wheelmark", "verify", str(wheel), "--policy", str(POLICY)]
    return paired(
        "`wheelmark verify` of a wheel of 1 MiB, new process",
        lambda: run(command),
        '`python -c "import sigstore.verify"`',
        lambda: run([sys.executable, "-c", "import sigstore.verify"]),
        pairs=args.many,
        aim="1.15",
    )


PEAK = """
import datetime as dt, sys
from pathlib import Path
from wheelmark.verify import load_policy, verify_wheel
now = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)
assert verify_wheel(Path(sys.argv[1]), load_policy(Path(sys.argv[2])), now=now).accepted
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


def peaks(work: Path, forge: Forge, sizes: Sequence[int]) -> str:
    """Peak resident memory of a process that verifies one wheel, by the wheel's size."""
    found = []
    for number, size in enumerate(sizes):
        wheel = lone_wheel(work, forge, size, 10 + number)
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(wheel), str(POLICY)], capture_output=True, text=True, check=True
        )
        found.append(f"{size >> 20:,} MiB: {int(done.stdout) / 1024:.0f} MiB")
        shutil.rmtree(wheel.parent)
    return "peak memory of a process that verifies one wheel, by its size: " + "; ".join(found)


def machine() -> str:
    """Model, CPUs, system, Python and versions."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("sigstore", "cryptography")
    )
    return (
        f"{model or platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {versions}; "
        f"load average at the start {os.getloadavg()[0]:.1f}"
    )


def main() -> int:
    """Measure everything, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=int, default=50)
    parser.add_argument("--size", type=int, default=40 << 20, help="bytes of each wheel")
    parser.add_argument("--pairs", type=int, default=5, help="of the whole release")
    parser.add_argument("--many", type=int, default=15, help="pairs of small things")
    parser.add_argument("--calls", type=int, default=5, help="calls of sigstore's command that are made")
    parser.add_argument("--large", type=int, default=1 << 30, help="bytes of the wheel for the memory's peak")
    args = parser.parse_args()
    about = machine()
    work = Path(tempfile.mkdtemp(prefix="wheelmark-bench-"))
    work.chmod(0o700)
    try:
        with forging(work / "state") as forge:
            os.environ[state.VARIABLE] = str(forge.home)
            policy = load_policy(POLICY)
            rows = [*lone_wheels(work, forge, policy, args), cold(work, forge, args)]
            peak = peaks(work, forge, (10 << 20, args.large))
            rows += releases(work, forge, policy, args)
    finally:
        shutil.rmtree(work)
    print(f"Measured {dt.datetime.now(tz=dt.UTC):%Y-%m-%d} with `nox -s bench -- verify` on {about}.\n")
    print("| what | against | median ratio | range | aim | medians |\n| --- | --- | --- | --- | --- | --- |")
    print("\n".join(row.text() for row in rows))
    print(f"\n{peak}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
