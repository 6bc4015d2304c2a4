"""Ask NVIDIA's driver library what cards there are: ``probe.py CUDA NVML``. A script; it imports nothing of ours.

It runs in a process of its own, because a driver library can hang or end the process that loads it. What it found
goes to stdout as one JSON object; whatever does not answer is a note in it.

Sources: CUDA driver API, ``cuDeviceGetAttribute`` (75 and 76 are the compute capability); NVML,
``nvmlSystemGetDriverVersion``.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

_MAJOR, _MINOR = 75, 76
_MOST_CARDS = 1024
_NAME, _VERSION = 256, 96


def probe(cuda: str, nvml: str) -> dict[str, Any]:
    """Cards, the CUDA version and the version of the driver; what is not known is empty."""
    found: dict[str, Any] = {"cards": [], "cuda": "", "driver": "", "notes": []}
    try:
        _cards(cuda, found)
    except (OSError, AttributeError) as error:
        found["notes"].append(f"NVIDIA: {error}")
    try:
        found["driver"] = _driver_version(nvml)
    except (OSError, AttributeError) as error:
        found["notes"].append(f"NVML: {error}")
    return found


def _cards(path: str, found: dict[str, Any]) -> None:
    library = ctypes.CDLL(path)
    version, count = ctypes.c_int(), ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0 and 1000 <= version.value < 1_000_000:  # noqa: PLR2004 - 1000 a major version
        found["cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    for name, code in (
        ("cuInit", library.cuInit(0)),
        ("cuDeviceGetCount", library.cuDeviceGetCount(ctypes.byref(count))),
    ):
        if code:
            found["notes"].append(f"NVIDIA: {name} answers {code}")
            return
    if not 0 <= count.value <= _MOST_CARDS:
        found["notes"].append(f"NVIDIA: cuDeviceGetCount says {count.value} cards")
        return
    for ordinal in range(count.value):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        codes = (
            library.cuDeviceGet(ctypes.byref(device), ordinal),
            library.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device),
            library.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device),
        )
        if any(codes) or not (1 <= major.value < 100 and 0 <= minor.value < 10):  # noqa: PLR2004 - a compute capability
            found["notes"].append(f"NVIDIA: card {ordinal} does not say what it is {codes}")
            continue
        found["cards"].append(
            {"arch": f"sm{major.value}{minor.value}", "name": _name(library, device), "ordinal": ordinal}
        )


def _name(library: ctypes.CDLL, device: ctypes.c_int) -> str:
    text = ctypes.create_string_buffer(_NAME)
    try:
        code = library.cuDeviceGetName(text, _NAME - 1, device)
    except AttributeError:
        return ""
    return "" if code else text.value.decode("utf-8", "replace")


def _driver_version(path: str) -> str:
    library = ctypes.CDLL(path)
    text = ctypes.create_string_buffer(_VERSION)
    if library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(text, _VERSION - 1):
        return ""
    return text.value.decode("ascii", "replace")


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(probe(*sys.argv[1:]))}\n")
