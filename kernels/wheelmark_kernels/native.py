"""Finds and loads the compiled operators that lie beside this package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from wheelmark_kernels import installed

TORCH_AT_LEAST: Final = (2, 10)
"""The LibTorch stable ABI that the library was compiled for (``[native] torch_target`` in wheelmark.toml)."""
TORCH_BELOW: Final = (2, 15)
"""First PyTorch that no release of this package has been declared for (``torch`` of the targets in wheelmark.toml)."""
LIBRARY: Final = Path(__file__).with_name("_native.so")


def check_torch(version: str) -> None:
    """Refuse a PyTorch outside the range that this package is made for.

    Args:
        version: ``torch.__version__``, such as ``2.13.0+cpu``.

    Raises:
        ImportError: The version lies outside the range, or is not a version.
    """
    parts = version.split(".")
    wanted = f">={_dotted(TORCH_AT_LEAST)},<{_dotted(TORCH_BELOW)}"
    try:
        found = (int(parts[0]), int(parts[1]))
    except (IndexError, ValueError):
        raise ImportError(
            f"wheelmark_kernels needs torch {wanted}, and cannot tell what torch {version!r} is"
        ) from None
    if not TORCH_AT_LEAST <= found < TORCH_BELOW:
        raise ImportError(
            f"wheelmark_kernels needs torch {wanted}, and torch {version} is installed: "
            f'run  python -m pip install "torch{wanted}"'
        )


def load(library: Path = LIBRARY) -> None:
    """Load the operators into this process, once; they are then under ``torch.ops.wheelmark``.

    Args:
        library: The shared object.

    Raises:
        ImportError: PyTorch is out of range, the library is missing, is not the one that was installed, or does not load.
    """
    check_torch(torch.__version__)
    if not library.is_file():
        raise ImportError(
            f"wheelmark_kernels has no compiled library ({library.name} is not beside the package): this is a source tree or "
            "a damaged installation; install a built wheel",
            path=str(library),
        )
    try:
        installed.check(library)
    except installed.FileChanged as error:
        raise ImportError(
            f"wheelmark_kernels does not load {library.name}: {error}; run  wheelmark audit-installed  and install the wheel again",
            path=str(library),
        ) from error
    try:
        torch.ops.load_library(library)
    except OSError as error:
        raise ImportError(
            f"wheelmark_kernels cannot load {library.name} here: {error}; install the wheel that is made for this "
            "machine's architecture and C library",
            path=str(library),
        ) from error


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
