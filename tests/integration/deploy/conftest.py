"""Small signed releases, and fresh virtual environments that real installers install them into."""

from __future__ import annotations

import shutil
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hooking
from checkouts import REPOSITORY
from deploying import Shop, demo
from forging import Forge, forging
from wheelmark.trust import state


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    home = tmp_path_factory.mktemp("home") / "state"
    policy = tmp_path_factory.mktemp("policies") / "mine.toml"
    shutil.copyfile(REPOSITORY / "policies" / "embedded-dev.toml", policy)
    policy.chmod(0o600)
    with forging(home) as forge, pytest.MonkeyPatch.context() as patch:
        patch.setenv(state.VARIABLE, str(home))
        yield Shop(home=home, policy=policy, forge=forge)


@pytest.fixture(scope="module")
def good(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of one wheel; nobody changes it."""
    return shop.release(tmp_path_factory.mktemp("good"), demo())


@pytest.fixture
def dist(good: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(good, tmp_path / "dist"))


@pytest.fixture
def new_python(tmp_path: Path) -> Callable[[], Path]:
    """Makes empty virtual environments; gives their interpreters."""
    count = iter(range(100))

    def make() -> Path:
        root = tmp_path / f"env{next(count)}"
        venv.EnvBuilder(symlinks=True, with_pip=False).create(root)
        return root / "bin" / "python"

    return make


@pytest.fixture
def python(new_python: Callable[[], Path]) -> Path:
    return new_python()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    hooking.need_podman()
    return hooking.compile_program(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Forge]]:
    home = tmp_path_factory.mktemp("home") / "state"
    with forging(home) as forge, pytest.MonkeyPatch.context() as patch:
        patch.setenv(state.VARIABLE, str(home))
        yield home, forge


@pytest.fixture
def host(program: bytes, domain: tuple[Path, Forge]) -> Iterator[hooking.Host]:
    """A machine with the hook, on which the image ``good`` was pulled."""
    with hooking.opened(program, domain, "vfs") as made:
        made.pull(made.layout("good"), hooking.GOOD)
        made.install()
        yield made


@pytest.fixture
def bare(program: bytes, domain: tuple[Path, Forge]) -> Iterator[hooking.Host]:
    """A machine without an image and without the hook."""
    with hooking.opened(program, domain, "vfs") as made:
        yield made
