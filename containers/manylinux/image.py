"""The image that stands in for manylinux_2_28 where no registry is reached: locked Debian packages, and pip.

cibuildwheel asks little of an image: bash, coreutils, tar, a compiler, ``/opt/python/cp311-cp311/bin/{python,pip}``, and for its own
programs ``/opt/python/cp39-cp39``. No maintainer script runs; what they would have done is done here. The image is a tool of CI:
it is never released, and what is built in it is compared only with what was built in it.

    python -m containers.manylinux.image          make it, print its digest
    python -m containers.manylinux.image --lock   write lockfiles/manylinux-amd64.json anew
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wheelmark import digests
from wheelmark.build.image.debian import unpack
from wheelmark.build.image.layers import make_layer
from wheelmark.build.image.paths import Patterns
from wheelmark.build.image.system import BUNDLE, bundle
from wheelmark.build.image.tree import SHARED, Tree
from wheelmark.build.image.wheels import lay_out
from wheelmark.config.recipe import Debian, ImageRecipe, load_recipe
from wheelmark.errors import ConfigError
from wheelmark.lock.debian import DebianLock, fetch_packages, fitting_lock, resolve_debian
from wheelmark.lock.plan import FOLDER
from wheelmark.oci import types
from wheelmark.oci.layout import LayoutWriter
from wheelmark.oci.types import Descriptor, ImageManifest, Platform

ROOT = Path(__file__).parents[2]
RECIPE = Path("containers/manylinux/image.toml")
ARCHITECTURE = "amd64"
LOCK = Path(FOLDER) / f"manylinux-{ARCHITECTURE}.json"
CREATED = "1980-01-01T00:00:00Z"
_INTERPRETER = "/usr/bin/python3.11"
_OWN = "opt/python/cp39-cp39"
"""Where cibuildwheel looks for a Python for its own programs (``OCIContainer.UTILITY_PYTHON``)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Image:
    """The finished image."""

    digest: str
    """``sha256:…`` of its manifest."""
    config: str
    """``sha256:…`` of its configuration: what engines call the image's id."""
    layout: Path


def read_recipe(root: Path = ROOT) -> tuple[ImageRecipe, Debian]:
    """The recipe, and the table of it that is locked.

    Raises:
        ConfigError: It cannot be read, or has no ``[debian]``.
    """
    recipe = load_recipe(root / RECIPE, root=root)
    if recipe.debian is None:
        raise ConfigError(f"{RECIPE} needs [debian]", reason="recipe-system")
    return recipe, recipe.debian


def read_lock(root: Path = ROOT) -> DebianLock:
    """The lock, if it fits the recipe.

    Raises:
        ConfigError: As ``read_recipe``.
        LockError: It is absent, malformed or stale.
    """
    return fitting_lock(root / LOCK, read_recipe(root)[1], ARCHITECTURE)


def write_lock(cache: Path, root: Path = ROOT) -> DebianLock:
    """Resolve anew, from the archive as it is now; a lock of the same packages stays as it is.

    Raises:
        LockError: As ``resolve_debian``.
    """
    made = resolve_debian(read_recipe(root)[1], ARCHITECTURE, cache=cache, progress=say)
    try:
        old = read_lock(root)
    except Exception:  # noqa: BLE001 - absent, damaged or of another recipe: written anew
        old = None
    if old is None or old.packages != made.packages:
        (root / LOCK).write_bytes(made.as_bytes())
    return made


def make_image(
    *, cache: Path, pip: Path, root: Path = ROOT, progress: Callable[[str], None] = lambda _line: None
) -> Image:
    """Make the image, or find it; the same inputs give the same digest.

    Args:
        cache: The pipeline's cache: packages, layers and the layout are kept in it.
        pip: The wheel of pip that is laid out.
        root: The repository.
        progress: Called with lines for people.

    Raises:
        LockError: The lock does not fit, or a package cannot be had.
        BuildError: As the layer's writers.
    """
    recipe, debian = read_recipe(root)
    lock = read_lock(root)
    packages = fetch_packages(lock, pool=cache / "debian" / "pool", progress=progress)
    drop = Patterns(debian.drop)

    def fill(tree: Tree) -> Mapping[str, Any]:
        unpacked = unpack(lock, packages, drop=drop, tree=tree)
        lay_out([pip], recipe.python, tree)
        _system(tree, recipe, unpacked.certificates)
        return {"scripts": [dataclasses.asdict(script) for script in unpacked.scripts]}

    inputs = {
        "packages": [[item.name, item.version, item.sha256] for item in lock.packages],
        "drop": list(debian.drop),
        "pip": digests.sha256_file(pip),
        "program": digests.sha256_file(Path(__file__)),
    }
    layer = make_layer("manylinux", inputs, fill, cache=cache, progress=progress)
    layout = cache / "manylinux" / layer.key[:16]
    writer = LayoutWriter(layout)
    blob = Descriptor(
        media_type=types.LAYER_GZIP, sha256=layer.digest.removeprefix("sha256:"), size=layer.size
    )
    writer.add_file(layer.path, blob)
    config = writer.add(digests.canonical_json(_configuration(layer.diff_id)), types.CONFIG)
    manifest = writer.add(
        ImageManifest(config=config, layers=(blob,)).as_bytes(),
        types.MANIFEST,
        annotations={types.REFERENCE: "manylinux"},
        platform=Platform(os="linux", architecture=ARCHITECTURE),
    )
    writer.finish([manifest])
    return Image(digest=manifest.digest, config=config.digest, layout=layout)


def _system(tree: Tree, recipe: ImageRecipe, certificates: Mapping[str, bytes]) -> None:
    """What maintainer scripts would have done, and Python where a manylinux image has it."""
    tree.file(BUNDLE, bundle(certificates), origin="ca-certificates")
    tree.link("usr/lib/ssl/cert.pem", f"/{BUNDLE}", origin="openssl")
    tree.file("etc/passwd", b"root:x:0:0:root:/root:/bin/bash\n", origin="base-passwd")
    tree.file("etc/group", b"root:x:0:\n", origin="base-passwd")
    tree.link("usr/bin/which", "which.debianutils", origin="debianutils")
    tree.folder("tmp", mode=SHARED, origin="base-files")
    home, _, _ = recipe.python.executable.removeprefix("/").rpartition("/bin/")
    for name in ("python", "python3", "python3.11"):
        tree.link(f"{home}/bin/{name}", _INTERPRETER, origin="manylinux")
    folder = _INTERPRETER.rpartition("/")[0]
    text = f"home = {folder}\ninclude-system-site-packages = false\nversion = {recipe.python.version}\n"
    tree.file(f"{home}/pyvenv.cfg", text.encode(), origin="manylinux")
    tree.link(_OWN, home.rpartition("/")[2], origin="manylinux")


def _configuration(diff_id: str) -> dict[str, Any]:
    return {
        "created": CREATED,
        "os": "linux",
        "architecture": ARCHITECTURE,
        "config": {
            "Cmd": ["/bin/bash"],
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", f"SSL_CERT_FILE=/{BUNDLE}"],
            "Labels": {"dev.wheelmark.releasable": "false"},
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": CREATED, "created_by": "wheelmark: manylinux stand-in"}],
    }


def say(line: str) -> None:
    """Tell a person."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="the image that stands in for manylinux_2_28")
    parser.add_argument("--lock", action="store_true", help="write its Debian lock anew")
    parser.add_argument("--cache", type=Path, default=ROOT / ".wheelmark")
    parser.add_argument("--pip", type=Path, help="a wheel of pip")
    args = parser.parse_args()
    if args.lock:
        print(f"{LOCK.name}: {len(write_lock(args.cache).packages)} packages")
    else:
        print(make_image(cache=args.cache, pip=args.pip, progress=say).digest)


if __name__ == "__main__":
    main()
