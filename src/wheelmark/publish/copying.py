"""An image with all its evidence from one place to another: between registries, into a layout on disk, out of one."""

from __future__ import annotations

import dataclasses

from wheelmark.errors import InputError
from wheelmark.oci import types
from wheelmark.oci.reference import LayoutReference, Location, Reference
from wheelmark.publish.places import LayoutSource, LayoutTarget, RegistryPlace, Source, Target
from wheelmark.publish.publishing import Connection
from wheelmark.publish.transfer import Carried, Wanted, transfer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Copied:
    """What ``copy`` did."""

    source: str
    destination: str
    digest: str
    carried: Carried


def copy(source: Location, destination: Location, *, connection: Connection | None = None) -> Copied:
    """Carry an image or an index, what refers to it, and what refers to that; every digest is compared on the way.

    Done again it changes nothing; killed, it is finished by the next run. The image's digest stays what it is.

    Args:
        source: Where it is; ``oci:PATH`` alone: the only image of the layout.
        destination: Where it is to be. A tag names it there; without one it keeps its own. A digest there has to be its
            own.
        connection: How registries are spoken to.

    Raises:
        InputError: Malformed or over a limit; another digest than ``destination`` says (``registry-reference``).
        RegistryError, StateError: As of the places.
    """
    connection = connection or Connection()
    same = (
        isinstance(source, Reference)
        and isinstance(destination, Reference)
        and source.host == destination.host
        and source.repository != destination.repository
    )
    place: Source
    if isinstance(source, LayoutReference):
        place = LayoutSource(source.path)
    else:
        place = RegistryPlace(connection.registry(source.host), source.repository)
    found = place.resolve(source.asked)
    if destination.digest and destination.digest != found.digest:
        raise InputError(
            f"{source} is {found.digest}, and {destination} was to be it", reason="registry-reference"
        )
    own = source.tag or found.annotations.get(types.REFERENCE, "")
    tag = destination.tag or ("" if destination.digest else own)
    target: Target
    if isinstance(destination, LayoutReference):
        target = LayoutTarget(destination.path)
    else:
        target = RegistryPlace(
            connection.registry(destination.host),
            destination.repository,
            mount_from=source.repository if same and isinstance(source, Reference) else "",
        )
    carried = transfer(
        [Wanted(descriptor=found, name=own or found.digest[:19], tags=(tag,) if tag else ())],
        place,
        target,
        workers=connection.workers,
        cancel=connection.cancel,
        progress=connection.progress,
    )
    return Copied(source=str(source), destination=str(destination), digest=found.digest, carried=carried)
