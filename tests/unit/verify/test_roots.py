"""Rows 12 to 14 at the root itself: windows are closed, and a root that cannot be used says so."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

from forging import Forge, Json
from rows import row
from wheelmark.errors import ConfigError
from wheelmark.trust.roots import CONFIG_TYPE, Root, Window, read_root

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
END = dt.datetime(2026, 2, 1, tzinfo=dt.UTC)
INSTANT = dt.timedelta(microseconds=1)


def read(data: bytes) -> Root:
    return read_root(data, name="r", issuers=("i",), level="l", canonical=False)


def reason(data: bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        read(data)
    return caught.value.reason


@row(13)
def test_windows_are_closed() -> None:
    window = Window(start=START, end=END)
    assert [window.contains(time) for time in (START - INSTANT, START, END, END + INSTANT)] == [
        False,
        True,
        True,
        False,
    ]
    assert Window(start=START).contains(END + dt.timedelta(days=9999))
    assert str(Window(start=START)) == "2026-01-01T00:00:00+00:00 to open"


def test_material_of_a_root(forge: Forge) -> None:
    root = forge.root()
    material = root.material
    assert len(material.authorities) == len(material.logs) == len(material.ct_logs) == 1
    assert material.logs[0].host
    assert material.logs[0].log_id != material.logs[0].key_id  # a note's id, not RFC 6962's
    assert not material.logs[0].verifies(b"x" * 64, b"data")
    assert not material.ct_logs[0].verifies(b"x" * 64, b"data")


def test_root_inside_a_client_configuration_is_read(forge: Forge) -> None:
    whole = json.dumps({"mediaType": CONFIG_TYPE, "trustedRoot": json.loads(forge.root_bytes)}).encode()
    assert read(whole).material.logs == forge.root().material.logs


@row(14, "root-no-start")
@pytest.mark.parametrize("part", ["certificateAuthorities", "timestampAuthorities", "tlogs", "ctlogs"])
@pytest.mark.parametrize(
    "spoil", [lambda v: v.pop("start"), lambda v: v.update(start=""), lambda v: v.clear()]
)
def test_no_start_of_validity_is_refused(forge: Forge, part: str, spoil: Callable[[Json], Any]) -> None:
    document = json.loads(forge.root_bytes)
    item = document[part][0]
    spoil((item["publicKey"] if part.endswith("logs") else item)["validFor"])
    assert reason(json.dumps(document).encode()) == "root-no-start"


@row(36, "root-empty")
@pytest.mark.parametrize("part", ["certificateAuthorities", "tlogs"])
def test_root_that_names_nothing_is_refused(forge: Forge, part: str) -> None:
    empties: tuple[list[str] | None, ...] = ([], None)
    for empty in empties:
        document = json.loads(forge.root_bytes)
        document[part] = empty
        if empty is None:
            del document[part]
        assert reason(json.dumps(document).encode()) == "root-empty"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"mediaType": "text/plain"}',
        b'{"mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json"}',
        b"[" * 100,
        b"x" * (5 << 20),
    ],
)
def test_what_is_no_root_is_refused(data: bytes) -> None:
    assert reason(data) == "root-shape"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("certificateAuthorities", 0, "certChain", "certificates", 0, "rawBytes"), "AAAA"),
        (("certificateAuthorities", 0, "certChain", "certificates"), []),
        (("certificateAuthorities", 0, "certChain"), None),
        (("certificateAuthorities",), "x"),
        (("tlogs", 0, "publicKey", "rawBytes"), "!"),
        (("tlogs", 0, "publicKey", "rawBytes"), "AAAA"),
        (("tlogs", 0, "publicKey", "validFor", "start"), "yesterday"),
        (("tlogs", 0, "publicKey", "validFor", "start"), "2026-01-01T00:00:00"),
        (("tlogs", 0, "publicKey"), None),
        (("ctlogs", 0), "x"),
    ],
)
def test_malformed_member_is_refused(forge: Forge, path: tuple[Any, ...], value: Any) -> None:
    document = json.loads(forge.root_bytes)
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    assert reason(json.dumps(document).encode()) == "root-shape"


def test_key_of_an_unknown_kind_vouches_for_nothing(forge: Forge) -> None:
    document = json.loads(forge.root_bytes)
    document["tlogs"][0]["publicKey"]["keyDetails"] = "LMS_SHA256"
    assert reason(json.dumps(document).encode()) == "root-empty"


def test_fractions_of_a_second_finer_than_ours_are_read(forge: Forge) -> None:
    document = json.loads(forge.root_bytes)
    document["tlogs"][0]["publicKey"]["validFor"]["start"] = "2026-01-01T00:00:00.123456789Z"
    root = read(json.dumps(document).encode())
    assert root.material.logs[0].window.start.microsecond == 123456
