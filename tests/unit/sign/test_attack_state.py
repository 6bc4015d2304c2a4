"""The state of the signer on a hostile machine: wide umask, full or read-only disk, other users at the loopback port."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from wheelmark.errors import StateError, WheelmarkError
from wheelmark.sign import embedded
from wheelmark.sign.embedded.oidc import TokenIssuer


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_nobody_else_can_reach_any_of_it(tmp_path: Path, open_umask: None) -> None:
    home = tmp_path / "made" / "on" / "the" / "way"
    embedded.create(home)
    made = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert len(made) > 10
    assert not [path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077]


def refused(action: Callable[[], Any]) -> str:
    with pytest.raises(StateError) as caught:
        action()
    assert "disk" in caught.value.cause
    return caught.value.reason


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow beyond 100 bytes. For a few calls only: the limit holds for the test runner's log too."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_domain_on_a_full_disk(tmp_path: Path) -> None:
    with full_disk():
        assert refused(lambda: embedded.create(tmp_path / "state")) == "trust-disk"
        assert refused(lambda: embedded.open_instance(tmp_path / "state").__enter__()) == "trust-disk"


def test_a_domain_that_was_begun_on_a_full_disk_is_made_anew(tmp_path: Path) -> None:
    with full_disk():
        assert refused(lambda: embedded.create(tmp_path / "state")) == "trust-disk"
    with embedded.open_instance(tmp_path / "state") as instance:
        assert instance.mint("somebody")


def test_a_state_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded.create(tmp_path / "state")
    real = os.open

    def read_only(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if str(path).endswith("/lock"):
            raise OSError(30, "Read-only file system")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", read_only)
    assert refused(lambda: embedded.open_instance(tmp_path / "state").__enter__()) == "trust-disk"


def test_errors_of_the_callers_own_files_stay_theirs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), embedded.open_instance(tmp_path / "state"):
        (tmp_path / "absent").read_bytes()


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    return {
        "iss": embedded.ISSUER,
        "sub": embedded.RELEASE_IDENTITY,
        "aud": "sigstore",
        "iat": now,
        "exp": now + 600,
        **changes,
    }


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OWN = TokenIssuer(KEY, embedded.ISSUER)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b.c",
        jwt.encode(claims(), "", algorithm="none"),
        jwt.encode(claims(), "k" * 64, algorithm="HS256"),
        jwt.encode(
            claims(), rsa.generate_private_key(public_exponent=65537, key_size=2048), algorithm="RS256"
        ),
        jwt.encode(claims(), KEY, algorithm="PS256"),
        jwt.encode(claims(exp=1), KEY, algorithm="RS256"),
        jwt.encode(claims(aud="other"), KEY, algorithm="RS256"),
        jwt.encode(claims(aud=["other"]), KEY, algorithm="RS256"),
        jwt.encode(claims(iss="https://accounts.example"), KEY, algorithm="RS256"),
    ],
)
def test_tokens_that_were_not_minted_here(token: str) -> None:
    assert OWN.check(OWN.mint("somebody"))["sub"] == "somebody"
    with pytest.raises(WheelmarkError) as caught:
        OWN.check(token)
    assert caught.value.reason == "token"
