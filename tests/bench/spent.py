"""Run a command and print, as JSON, what it and all that it left behind used: ``python spent.py COMMAND…``.

This process adopts what the command leaves (prctl(2), PR_SET_CHILD_SUBREAPER) and waits for it: so the monitor of a
container, the runtime that the monitor starts, and the hook that the runtime starts are counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

_SUBREAPER = 36


def main() -> int:
    """Run it."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    # Files, not pipes: what is left behind may hold them open.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.monotonic()
        done = subprocess.run(sys.argv[1:], stdout=out, stderr=err, check=False)
        seconds = time.monotonic() - begun
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    found = {"code": done.returncode, "seconds": seconds, "cpu": used.ru_utime + used.ru_stime}
    print(json.dumps({**found, "peak_kib": used.ru_maxrss, "out": texts[0], "err": texts[1]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
