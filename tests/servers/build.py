"""The real servers of a private instance, built from Debian's sources: ``python tests/servers/build.py FOLDER``.

Debian packages Fulcio, rekor-tiles and timestamp-authority as Go libraries with their commands' sources, and all but a
few of what they need. They are unpacked from an apt state of their own (``tests/clients.py``) beside Debian's Go, and
built offline. Rekor and the timestamp authority are their own commands, unchanged. Fulcio's command needs clouds' key
services, which Debian has not: a small command of ours starts its server package with its file authority instead
(``go/fulcio``), and five small libraries that Debian has not either are stood in for (``go/stand-ins``: logging
adapters that say nothing, a request id's name, a check for e-mail addresses, a claim's path).

Needs about 3 GB and some minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from clients import Apt, UnavailableError, apt_state

HERE = Path(__file__).parent
LIBRARIES = {
    "fulcio": "golang-github-sigstore-fulcio-dev",
    "rekor-server": "golang-github-sigstore-rekor-tiles-dev",
    "timestamp-server": "golang-github-sigstore-timestamp-authority-dev",
}
COMMANDS = {
    "fulcio": "wheelmark.invalid/fulcio",
    "rekor-server": "github.com/sigstore/rekor-tiles/cmd/rekor-server/posix",
    "timestamp-server": "github.com/sigstore/timestamp-authority/v2/cmd/timestamp-server",
}


def build(target: Path) -> dict[str, str]:
    """Put the programs into ``target``; their versions."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        apt = apt_state(place / "apt")
        versions = {name: apt.candidate(package) for name, package in LIBRARIES.items()}
        root = _unpack(apt, place)
        (toolchain,) = (root / "usr" / "lib").glob("go-*")
        ours = place / "ours" / "src"
        shutil.copytree(HERE / "go" / "stand-ins", ours)
        shutil.copytree(HERE / "go" / "fulcio", ours / "wheelmark.invalid" / "fulcio")
        environment = {
            **os.environ,
            "GOROOT": str(toolchain),
            "GOCACHE": str(place / "cache"),
            "GO111MODULE": "off",
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "-trimpath",
            "CGO_ENABLED": "0",
        }
        target.mkdir(parents=True, exist_ok=True)
        theirs = str(root / "usr" / "share" / "gocode")
        for name, package in COMMANDS.items():
            # Only Fulcio gets stand-ins; what the others need is all Debian's.
            paths = [str(ours.parent), theirs] if name == "fulcio" else [theirs]
            environment["GOPATH"] = os.pathsep.join(paths)
            command = [str(toolchain / "bin" / "go"), "build", "-o", str(target / name), package]
            subprocess.run(command, cwd=ours, env=environment, check=True)
    (target / "versions.json").write_text(json.dumps(versions, indent=2))
    return versions


def _unpack(apt: Apt, place: Path) -> Path:
    """Debian's Go and the libraries with all that they need, unpacked."""
    wanted = ["golang-go", *LIBRARIES.values()]
    planned = apt.run(["apt-get", "install", "-s", "-q", "--no-install-recommends", *wanted])
    names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    debs, root = place / "debs", place / "root"
    debs.mkdir()
    apt.run(["apt-get", "download", "-q", *(name for name in names if name.startswith("golang-"))], cwd=debs)
    for path in sorted(debs.iterdir()):
        apt.run(["dpkg-deb", "-x", str(path), str(root)])
    return root


if __name__ == "__main__":
    try:
        for built, version in build(Path(sys.argv[1])).items():
            sys.stdout.write(f"{built}  Debian {version}\n")
    except UnavailableError as error:
        sys.exit(f"servers: {error}")
