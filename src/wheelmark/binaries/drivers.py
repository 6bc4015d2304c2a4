"""PTX version and toolkit -> CUDA version -> first Linux driver that knows it.

Sources: the PTX ISA manual's release table (PTX version to CUDA version) and the CUDA toolkit release notes
(first driver of each CUDA version). A row marked inferred was derived from its neighbours, and says so wherever it
is shown.

The floor given here is the *conservative* one: the first driver of the CUDA version whose assembler wrote the
object. NVIDIA's minor-version compatibility lets plain cubins of 12.x load from driver 525 and of 13.x from 580;
that is stated beside the floor (``compatible_from``) and never put in its place, since it does not hold for
what an older driver has not heard of (a new arch, or the ELF ABI of CUDA 13).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from wheelmark.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class CudaRelease:
    """One CUDA version: its PTX version and its first Linux driver."""

    cuda: str
    ptx: str
    driver: str
    inferred: bool = False
    """Whether the PTX version's CUDA version was derived, not read."""


RELEASES: tuple[CudaRelease, ...] = (
    CudaRelease(cuda="12.0", ptx="8.0", driver="525.60.13"),
    CudaRelease(cuda="12.4", ptx="8.4", driver="550.54.14"),
    CudaRelease(cuda="12.5", ptx="8.5", driver="555.42.02"),
    CudaRelease(cuda="12.8", ptx="8.7", driver="570.26"),
    CudaRelease(cuda="12.9", ptx="8.8", driver="575.51.03"),
    CudaRelease(cuda="13.0", ptx="9.0", driver="580.65.06"),
    CudaRelease(cuda="13.1", ptx="9.1", driver="590.44.01"),
    CudaRelease(cuda="13.2", ptx="9.2", driver="595.45.04", inferred=True),
    CudaRelease(cuda="13.3", ptx="9.3", driver="610.43.02", inferred=True),
    CudaRelease(cuda="13.4", ptx="9.4", driver="616", inferred=True),
)
_BY_PTX: Mapping[str, CudaRelease] = {release.ptx: release for release in RELEASES}
_BY_CUDA: Mapping[str, CudaRelease] = {release.cuda: release for release in RELEASES}
_MINOR_COMPATIBLE: Mapping[str, str] = {"12": "525.60.13", "13": "580.65.06"}
"""CUDA major version -> first driver of it (minor-version compatibility)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverFloor:
    """The first Linux driver that is known to load an object."""

    driver: str
    """``570.26``; empty where no driver version is known (ROCm)."""
    basis: str
    """What it was computed from, with the word ``inferred`` where it is."""
    inferred: bool
    compatible_from: str = ""
    """First driver of the same CUDA major version; empty for ROCm."""


NO_FLOOR = DriverFloor(
    driver="", basis="ROCm: an hsaco records no toolkit, and no driver floor is known", inferred=False
)


def cuda_of_ptx(ptx: str) -> CudaRelease:
    """The CUDA release that brought a PTX version.

    Raises:
        InputError: The table has no such version (reason ``driver-unknown``).
    """
    if ptx not in _BY_PTX:
        raise InputError(
            f"PTX version {ptx[:40]!r} is not in the driver table",
            cause="the assembler is newer than this version of Wheelmark",
            fix="add the release to wheelmark/binaries/drivers.py, with its source",
            reason="driver-unknown",
        )
    return _BY_PTX[ptx]


def driver_floor(*, toolkit: str, ptx: str = "") -> DriverFloor:
    """The driver floor of a cubin.

    Args:
        toolkit: CUDA version of the assembler, as the cubin's bytes say (``12.8``).
        ptx: PTX version of the text it was assembled from, where it is known (``8.7``).

    Returns:
        The floor of the newer of the two.

    Raises:
        InputError: The table has no such version (reason ``driver-unknown``).
    """
    if toolkit not in _BY_CUDA:
        raise InputError(
            f"CUDA toolkit {toolkit[:40]!r} is not in the driver table",
            cause="the assembler is newer than this version of Wheelmark",
            fix="add the release to wheelmark/binaries/drivers.py, with its source",
            reason="driver-unknown",
        )
    releases = [_BY_CUDA[toolkit]] + ([cuda_of_ptx(ptx)] if ptx else [])
    newest = max(releases, key=RELEASES.index)
    from_ptx = f" and PTX {ptx}" if ptx else ""
    inferred = any(release.inferred for release in releases)
    return DriverFloor(
        driver=newest.driver,
        basis=f"first Linux driver of CUDA {newest.cuda}, from assembler {toolkit}{from_ptx}"
        + (" (inferred)" if inferred else ""),
        inferred=inferred,
        compatible_from=_MINOR_COMPATIBLE[newest.cuda.partition(".")[0]],
    )
