"""A disk that takes no more in the middle of a copy: a clear error, nothing half-written, and the next run finishes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from publishing import Images, command
from registry import Registry, served
from wheelmark.oci.layout import Layout


def test_a_layout_that_does_not_fit(images: Images, tmp_path: Path) -> None:
    """The kernel refuses each byte behind the first 4 MB of a file."""
    with served(Registry()) as server:
        assert command("publish", f"{server.host}/team/app:1", "--from", str(images.path)).returncode == 0
        out = tmp_path / "out"
        line = 'ulimit -f 4000; exec "$0" -m wheelmark copy "$1" "$2"'
        names = [f"{server.host}/team/app:1", f"oci:{out}"]
        done = subprocess.run(
            ["/bin/bash", "-c", line, sys.executable, *names],
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 14, done.stderr
        assert "cannot write" in done.stderr
        assert not (out / "index.json").exists()
        assert not list(out.glob(".writing-*"))
        assert command("copy", *names).returncode == 0
        assert Layout(out).check_files()
