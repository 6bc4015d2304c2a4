"""Container images from locked inputs: no daemon, no root, no script run; the same bytes on every machine."""

from __future__ import annotations

from wheelmark.build.image.contents import ImageContents, inspect
from wheelmark.build.image.fetch import fetch_wheels
from wheelmark.build.image.image import DEPENDENCIES, PAYLOAD, SYSTEM, BuiltImage, build_image
from wheelmark.build.image.layers import BuiltLayer
from wheelmark.build.image.places import build_index

__all__ = [
    "DEPENDENCIES",
    "PAYLOAD",
    "SYSTEM",
    "BuiltImage",
    "BuiltLayer",
    "ImageContents",
    "build_image",
    "build_index",
    "fetch_wheels",
    "inspect",
]
