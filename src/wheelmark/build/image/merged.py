"""Layers put over one another, as an engine does it: later entries win, whiteouts remove (OCI image specification, layer.md)."""

from __future__ import annotations

import dataclasses
import posixpath

from wheelmark.oci.layer import Kind, LayerEntry

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MOST_LINKS = 40
"""That are followed on the way to one file: Linux's own limit (path_resolution(7))."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """What stands at a path in the end."""

    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int
    link: str
    attributes: frozenset[str] = frozenset()

    @property
    def is_shared(self) -> bool:
        """A folder in which everyone may write and none may remove what is another's: ``/tmp``."""
        return self.kind is Kind.FOLDER and self.mode & 0o1002 == 0o1002  # noqa: PLR2004 - sticky, writable by others


_FOLDER = Place(kind=Kind.FOLDER, mode=0o755, uid=0, gid=0, size=0, link="")


class Merged:
    """The tree of an image, by path without the first ``/``."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}

    def begin(self) -> frozenset[str]:
        """The paths of the layers below the one that comes now: what its whiteouts may remove."""
        return frozenset(self.places)

    def replaces(self, entry: LayerEntry, below: frozenset[str]) -> bool:
        """Whether an entry removes something of a lower layer, or takes its place: anything but two folders."""
        if posixpath.basename(entry.path).startswith(_WHITEOUT):
            return True
        here = self.places.get(entry.path) if entry.path in below else None
        return here is not None and (here.kind, entry.kind) != (Kind.FOLDER, Kind.FOLDER)

    def add(self, entry: LayerEntry, below: frozenset[str]) -> None:
        """Put an entry of a layer over what is there.

        Args:
            entry: The entry.
            below: What ``begin`` said for its layer.
        """
        folder, name = posixpath.split(entry.path)
        if name == _OPAQUE:
            self._remove([path for path in below if path.startswith(f"{folder}/" if folder else "")])
            return
        if name.startswith(_WHITEOUT):
            gone = posixpath.join(folder, name.removeprefix(_WHITEOUT))
            self._remove([path for path in below if path == gone or path.startswith(f"{gone}/")])
            return
        if not entry.path:
            return
        while folder and folder not in self.places:  # engines make what an archive leaves out
            self.places[folder] = _FOLDER
            folder = posixpath.dirname(folder)
        if entry.kind is not Kind.FOLDER and entry.path in self.places:
            self._remove([path for path in below if path.startswith(f"{entry.path}/")])
        if entry.kind is Kind.HARD_LINK:
            found = self.places.get(posixpath.normpath(entry.link))
            if found is not None:
                self.places[entry.path] = found
            return
        self.places[entry.path] = Place(
            kind=entry.kind,
            mode=entry.mode,
            uid=entry.uid,
            gid=entry.gid,
            size=entry.size,
            link=entry.link,
            attributes=entry.attributes,
        )

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self.places.pop(path, None)

    def resolve(self, path: str) -> str | None:
        """The path after every link on the way was followed from the image's own root; ``None`` where nothing is there."""
        waiting = [part for part in reversed(path.split("/")) if part not in {"", "."}]
        here, links = "", 0
        while waiting:
            part = waiting.pop()
            if part == "..":
                here = posixpath.dirname(here)
                continue
            ahead = f"{here}/{part}" if here else part
            place = self.places.get(ahead)
            if place is None:
                return None
            if place.kind is Kind.SYMBOLIC_LINK:
                links += 1
                if links > _MOST_LINKS:
                    return None
                if place.link.startswith("/"):
                    here = ""
                waiting += [item for item in reversed(place.link.split("/")) if item not in {"", "."}]
            else:
                here = ahead
        return here
