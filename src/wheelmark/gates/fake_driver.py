"""The recording driver: a stand-in for ``libcuda`` and ``libamdhip64``, compiled once from ``fakedriver/``.

It lets the launch contract of the installed wheel's own library be checked where no card is: every driver
call is written down, and each failure that a driver can answer with can be ordered. It proves how a kernel
*would* be launched, never that it runs: evidence made with it is ``emulated``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from wheelmark import digests
from wheelmark.errors import CommandError, ToolError

SOURCE = Path(__file__).parent / "fakedriver" / "fake_driver.c"


def find_c_compiler() -> tuple[str, ...]:
    """How C is compiled here: ``CC``, ``cc`` or ``gcc``, else g++ told that this is C; empty where none is there."""
    plain = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if plain:
        return (plain,)
    gpp = shutil.which("g++")
    return (gpp, "-x", "c") if gpp else ()


def build_fake_driver(cache: Path) -> Path:
    """The shared object, from the cache if its source is the same.

    Raises:
        ToolError: There is no C compiler.
        CommandError: It does not compile.
    """
    compiler = find_c_compiler()
    if not compiler:
        raise ToolError(
            "no C compiler, so the launch contract cannot be checked",
            fix="apt-get install g++ (or dnf install gcc-c++)",
            reason="no-compiler",
        )
    sources = b"".join(path.read_bytes() for path in sorted(SOURCE.parent.glob("*.[ch]")))
    library = cache / "fake-driver" / f"{digests.sha256(sources)[:32]}.so"
    if library.is_file():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        built = Path(folder, "fake_driver.so")
        command = [*compiler, "-O1", "-fPIC", "-shared", "-pthread", "-o", str(built), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CommandError(command, done.returncode, done.stdout + done.stderr)
        built.replace(library)
    return library
