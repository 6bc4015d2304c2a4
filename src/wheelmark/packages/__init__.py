"""Packages from elsewhere: pins of a lock, this machine's sources, and the programs that install.

What the pipeline makes its locked environments with and what an operator installs with are one thing; it stands
below both.
"""

from __future__ import annotations

from wheelmark.packages.index import PackageSources, read_sources
from wheelmark.packages.pins import Pin, parse_pins, read_pins

__all__ = ["PackageSources", "Pin", "parse_pins", "read_pins", "read_sources"]
