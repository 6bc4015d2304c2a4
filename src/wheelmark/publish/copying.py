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
    if source.tag and source.digest and (named := place.resolve(source.tag)).digest != found.digest:
        raise InputError(
            f"the tag of {source} leads to {named.digest}",
            cause="the tag was moved, or the digest is another image's",
            fix="name one of the two",
            reason="registry-reference",
        )
    if destination.digest and destination.digest != found.digest:
        raise InputError(
            f"{source} is {found.digest}, and {destination} was to be it", reason="registry-reference"
        )
    own = source.tag or found.annotations.get(types.REFERENCE, "")
    tag = destination.tag or ("" if destination.digest else own)
    if types.is_fallback_tag(destination.tag):
        raise InputError(
            f"{destination.tag} is where registries list what refers to an image, and no tag for one",
            fix="name another tag",
            reason="registry-reference",
        )
    places = [item.path.resolve() for item in (source, destination) if isinstance(item, LayoutReference)]
    if len(places) == 2 and places[0] == places[1]:  # noqa: PLR2004 - both are layouts
        raise InputError(
            f"{destination} is the layout that {source} is in",
            fix="name another folder",
            reason="registry-reference",
        )
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
