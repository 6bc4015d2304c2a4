"""What the maintainer scripts of Debian packages would have done, done here, in the open, and listed.

Of the packages that an image of Python needs, scripts make: the bundle of certificates (ca-certificates), the links to it
(openssl), users and groups (base-passwd, which is not even needed), the name service switch (base-files,
libc-bin), the link ``python3`` (python3-minimal). Left out on purpose: byte code (python3.11-minimal: it depends on
times and on the interpreter that compiles), ``ld.so.cache`` (libc-bin: the loader finds its own folders without it),
``ca-certificates``' links by subject hash (needs openssl's program; OpenSSL reads the bundle), menus and triggers.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping

from wheelmark.build.image.tree import PRIVATE, SHARED, Tree
from wheelmark.config.recipe import ImageRecipe
from wheelmark.errors import BuildError
from wheelmark.oci.layer import Kind

BUNDLE = "etc/ssl/certs/ca-certificates.crt"
_NOLOGIN = "/usr/sbin/nologin"
_NOBODY = 65534
_NSSWITCH = b"""passwd:    files
group:     files
shadow:    files
hosts:     files dns
networks:  files
protocols: files
services:  files
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that was done explicitly."""

    does: str
    instead_of: str
    """Whose script would have done it."""


def home(recipe: ImageRecipe) -> str:
    """The user's home, absolute: where the image begins, unless that is the root."""
    return recipe.image.working_dir if recipe.image.working_dir != "/" else "/nonexistent"


def prepare(tree: Tree, recipe: ImageRecipe, certificates: Mapping[str, bytes]) -> tuple[Step, ...]:
    """Add to the unpacked packages what makes a system of them.

    Args:
        tree: The operating system's layer.
        recipe: The image's recipe.
        certificates: Of ca-certificates, by path.

    Returns:
        What was done.

    Raises:
        BuildError: The packages hold no interpreter where the recipe says (``image-python``), or hold what is
            made here (``image-conflict``).
    """
    return (
        *_certificates(tree, certificates),
        *_users(tree, recipe),
        *_interpreter(tree, recipe),
        *_folders(tree, recipe),
    )


def bundle(certificates: Mapping[str, bytes]) -> bytes:
    """All certificates, in the order of their paths, each with one line feed at its end: as update-ca-certificates writes them."""
    return b"".join(certificates[path].rstrip() + b"\n" for path in sorted(certificates, key=str.encode))


def _certificates(tree: Tree, certificates: Mapping[str, bytes]) -> tuple[Step, ...]:
    if not certificates:
        return ()
    tree.file(BUNDLE, bundle(certificates), origin="certificates")
    tree.link("usr/lib/ssl/cert.pem", f"/{BUNDLE}", origin="certificates")
    if tree.get("usr/lib/ssl/certs") is None:
        tree.link("usr/lib/ssl/certs", "/etc/ssl/certs", origin="certificates")
    return (
        Step(
            does=f"/{BUNDLE}: {len(certificates)} certificates, in the order of their names",
            instead_of="ca-certificates",
        ),
        Step(does="/usr/lib/ssl/cert.pem and /usr/lib/ssl/certs lead there", instead_of="openssl"),
    )


def _users(tree: Tree, recipe: ImageRecipe) -> tuple[Step, ...]:
    user = recipe.image.user
    place = home(recipe)
    passwd = (
        f"root:x:0:0:root:/root:{_NOLOGIN}\n"
        f"nobody:x:{_NOBODY}:{_NOBODY}:nobody:/nonexistent:{_NOLOGIN}\n"
        f"nonroot:x:{user}:{user}:nonroot:{place}:{_NOLOGIN}\n"
    )
    group = f"root:x:0:\ntty:x:5:\nstaff:x:50:\nnogroup:x:{_NOBODY}:\nnonroot:x:{user}:\n"
    tree.file("etc/passwd", passwd.encode(), origin="users")
    tree.file("etc/group", group.encode(), origin="users")
    tree.file("etc/nsswitch.conf", _NSSWITCH, origin="users")
    return (
        Step(
            does=f"/etc/passwd and /etc/group: root, nobody and nonroot ({user}), none of them with a shell or a password",
            instead_of="base-passwd",
        ),
        Step(does="/etc/nsswitch.conf: files, and dns for hosts", instead_of="libc-bin"),
    )


def _interpreter(tree: Tree, recipe: ImageRecipe) -> tuple[Step, ...]:
    path = recipe.python.executable.removeprefix("/")
    found = tree.get(path)
    if found is None or found.kind is not Kind.FILE or not found.mode & 0o111:
        raise BuildError(
            f"the packages hold no program {recipe.python.executable}",
            cause="python.executable of the recipe, or debian.packages, or debian.drop",
            reason="image-python",
        )
    folder, name = posixpath.split(path)
    if name == "python3" or f"{folder}/python3" in tree:
        return ()
    tree.link(f"{folder}/python3", name, origin="interpreter")
    return (Step(does=f"/{folder}/python3 leads to {name}", instead_of="python3-minimal"),)


def _folders(tree: Tree, recipe: ImageRecipe) -> tuple[Step, ...]:
    tree.folder("tmp", mode=SHARED, origin="folders")
    tree.folder(recipe.python.site.removeprefix("/"), origin="folders")
    done = [Step(does=f"{recipe.python.site}, where wheels are laid out", instead_of="python3.11-minimal")]
    if recipe.image.working_dir != "/":
        path = recipe.image.working_dir.removeprefix("/")
        tree.folder(path, mode=PRIVATE, owner=recipe.image.user, origin="folders")
        done.append(Step(does=f"{recipe.image.working_dir}, which the user owns", instead_of="adduser"))
    return tuple(done)
