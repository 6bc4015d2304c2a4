"""The Debian lock of the image that cibuildwheel runs in: it fits its recipe, and is of the images' own archive."""

from pathlib import Path

from wheelmark.config.recipe import load_recipe
from wheelmark.lock.debian import fitting_lock, read_debian_lock

ROOT = Path(__file__).parents[3]
LOCKS = ROOT / "lockfiles"
REFRESH = "nox -s lock"


def test_the_lock_fits_the_recipe() -> None:
    debian = load_recipe(ROOT / "containers" / "manylinux" / "image.toml").debian
    assert debian is not None
    lock = fitting_lock(LOCKS / "manylinux-amd64.json", debian, "amd64")
    assert {"g++-12", "libc6-dev", "bash", "tar", "coreutils"} <= {item.name for item in lock.packages}


def test_what_it_shares_with_the_images_is_the_same_version() -> None:
    ours = {item.name: item.sha256 for item in read_debian_lock(LOCKS / "manylinux-amd64.json").packages}
    theirs = {item.name: item.sha256 for item in read_debian_lock(LOCKS / "debian-amd64.json").packages}
    shared = sorted(ours.keys() & theirs.keys())
    assert "libc6" in shared
    assert [name for name in shared if ours[name] != theirs[name]] == [], REFRESH
