"""Rows 8 to 10, 12, 13 and 39: when something was signed, and who says so."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import pytest
from cryptography import x509

from asking import Expect, Stand, ask
from forging import Forge, Json, b64, canonical, changed, found
from rows import row
from wheelmark.trust.roots import Root
from wheelmark.verify import Memory, certificate, verify_wheel
from wheelmark.verify.facts import Examiner

MATERIAL = "verificationMaterial"
STAMPS = f"{MATERIAL}.timestampVerificationData"
STAMP = f"{STAMPS}.rfc3161Timestamps.0.signedTimestamp"
TIME = f"{MATERIAL}.tlogEntries.0.integratedTime"
INSTANT = dt.timedelta(microseconds=1)


def free(stand: Stand) -> Root:
    """The root, where bundles need not have the form that Wheelmark writes."""
    return stand.forge.root(canonical=False)


@row(8, "time-missing")
@pytest.mark.parametrize("left", [None, {}, {"rfc3161Timestamps": []}])
def test_no_signed_time(stand: Stand, expect: Expect, left: Any) -> None:
    spoiled = changed(stand.bundle(), STAMPS, left)
    answer = stand.ask(spoiled, policy=stand.under(free(stand)))
    expect(answer, "time-missing", also=("no-bundle",))


@row(8, "not-canonical")
@pytest.mark.parametrize("left", [None, {"rfc3161Timestamps": []}])
def test_no_signed_time_under_this_machines_root(stand: Stand, expect: Expect, left: Any) -> None:
    expect(stand.command(changed(stand.bundle(), STAMPS, left)), "not-canonical", also=("no-bundle",))


@row(9, "time-unsigned")
@pytest.mark.parametrize("claimed", ["within", "1", "4000000000", "1700000000"])
def test_a_time_that_nobody_signed(stand: Stand, expect: Expect, claimed: str) -> None:
    within = str(int(stand.now.timestamp()))
    bundle = changed(changed(stand.bundle(), STAMPS, None), TIME, within if claimed == "within" else claimed)
    answer = stand.ask(bundle, policy=stand.under(free(stand)))
    expect(answer, "time-unsigned", also=("no-bundle",))


@row(9, "promise")
@pytest.mark.parametrize("promise", [b"x", b"\x30\x06\x02\x01\x01\x02\x01\x01", b"\0" * 70])
def test_a_promise_that_nobody_made(stand: Stand, expect: Expect, promise: bytes) -> None:
    bundle = changed(stand.bundle(), TIME, str(int(stand.now.timestamp())))
    path = TIME.replace("integratedTime", "inclusionPromise")
    answer = stand.ask(
        changed(bundle, path, {"signedEntryTimestamp": b64(promise)}), policy=stand.under(free(stand))
    )
    expect(answer, "promise", also=("no-bundle",))


@row(10, "timestamp-other")
@pytest.mark.parametrize("over", ["nothing", "the payload", "another signature"])
def test_a_timestamp_over_something_else(stand: Stand, expect: Expect, over: str) -> None:
    bundle = stand.bundle()
    signature = base64.b64decode(found(stand.bundle(), "dsseEnvelope.signatures.0.sig"))
    data = {"nothing": b"x", "the payload": stand.statement(), "another signature": signature}[over]
    spoiled = changed(bundle, STAMP, stand.forge.timestamp(data))
    expect(stand.ask(spoiled), "timestamp-other", also=("no-bundle",))


@row(10, "timestamp-untrusted")
@pytest.mark.parametrize("certificate", [True, False])
def test_a_timestamp_by_another_authority(
    stand: Stand, expect: Expect, other_forge: Forge, certificate: bool
) -> None:
    bundle = stand.bundle()
    signature = base64.b64decode(found(bundle, "dsseEnvelope.signatures.0.sig"))
    spoiled = changed(bundle, STAMP, other_forge.timestamp(signature, certificate=certificate))
    expect(stand.ask(spoiled), "timestamp-untrusted", also=("no-bundle",))


@row(10, "timestamp-untrusted")
def test_the_command_does_not_know_it_either(stand: Stand, expect: Expect, other_forge: Forge) -> None:
    bundle = stand.bundle()
    signature = base64.b64decode(found(bundle, "dsseEnvelope.signatures.0.sig"))
    spoiled = changed(bundle, STAMP, other_forge.timestamp(signature))
    expect(stand.command(spoiled), "timestamp-untrusted", also=("no-bundle",))


@row(10, "timestamp-untrusted")
@pytest.mark.parametrize("status", [1, 2, 3, 16, 127])
def test_a_response_that_grants_nothing(stand: Stand, expect: Expect, status: int) -> None:
    """The status beside the token is signed by nobody, and has to be the one that says that there is one."""
    bundle = stand.bundle()
    token = base64.b64decode(found(bundle, STAMP))
    granted = bytes.fromhex("3003020100")
    assert token.count(granted) == 1
    spoiled = changed(bundle, STAMP, b64(token.replace(granted, granted[:-1] + bytes([status]))))
    answer = stand.ask(spoiled, policy=stand.under(free(stand)))
    expect(answer, "timestamp-untrusted", also=("no-bundle",))


# Rows 12 and 13.
PARTS = {
    "certificateAuthorities": "ca-window",
    "timestampAuthorities": "tsa-window",
    "tlogs": "log-window",
    "ctlogs": "ct-window",
}


def moments(stand: Stand, bundle: Json, part: str) -> tuple[dt.datetime, dt.datetime]:
    """First and last moment at which a part of the root has to be trusted."""
    time = Examiner([free(stand)]).examine(canonical(bundle)).time
    raw = base64.b64decode(found(bundle, f"{MATERIAL}.certificate.rawBytes"))
    kind = x509.PrecertificateSignedCertificateTimestamps
    (promise,) = x509.load_der_x509_certificate(raw).extensions.get_extension_for_class(kind).value
    promised = promise.timestamp.replace(tzinfo=dt.UTC)
    return (min(time, promised), max(time, promised)) if part == "ctlogs" else (time, time)


def window(stand: Stand, part: str, start: dt.datetime | None, end: dt.datetime | None) -> Any:
    def change(document: Json) -> None:
        for item in document[part]:
            holder = item["publicKey"] if part.endswith("logs") else item
            if start is not None:
                holder["validFor"]["start"] = start.isoformat()
            if end is not None:
                holder["validFor"]["end"] = end.isoformat()

    return stand.windowed(change)


@row(12, "ca-window", "tsa-window", "log-window", "ct-window")
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("by", [INSTANT, dt.timedelta(milliseconds=1), dt.timedelta(days=400)])
def test_a_window_that_had_closed(stand: Stand, expect: Expect, part: str, by: dt.timedelta) -> None:
    bundle = stand.bundle()
    first, _ = moments(stand, bundle, part)
    policy = window(stand, part, first - by - dt.timedelta(days=1), first - by)
    expect(stand.ask(bundle, policy=policy), PARTS[part], also=("no-bundle",))


@row(12, "ca-window", "tsa-window", "log-window", "ct-window")
@pytest.mark.parametrize("part", PARTS)
def test_a_window_that_had_not_opened(stand: Stand, expect: Expect, part: str) -> None:
    bundle = stand.bundle()
    _, last = moments(stand, bundle, part)
    policy = window(stand, part, last + INSTANT, None)
    expect(stand.ask(bundle, policy=policy), PARTS[part], also=("no-bundle",))


@row(13)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("edges", ["both", "start", "end"])
def test_the_first_and_the_last_instant_count(stand: Stand, expect: Expect, part: str, edges: str) -> None:
    bundle = stand.bundle()
    first, last = moments(stand, bundle, part)
    start = first if edges != "end" else first - dt.timedelta(days=1)
    end = last if edges != "start" else None
    expect.accepted(stand.ask(bundle, policy=window(stand, part, start, end)))


# Row 39.
@row(39, "clock-behind")
@pytest.mark.parametrize(
    "behind", [dt.timedelta(microseconds=1), dt.timedelta(hours=1), dt.timedelta(days=4000)]
)
def test_a_clock_behind_the_signature(stand: Stand, expect: Expect, behind: dt.timedelta) -> None:
    bundle = canonical(stand.bundle())
    time = Examiner([free(stand)]).examine(bundle).time
    expect(stand.ask(bundle, now=time - behind), "clock-behind", also=("predicate-missing",))
    expect.accepted(stand.ask(bundle, now=time))


@row(39, "clock-behind")
@pytest.mark.parametrize("behind", [dt.timedelta(seconds=1), dt.timedelta(days=30)])
def test_a_clock_behind_what_this_machine_has_seen(
    stand: Stand, expect: Expect, behind: dt.timedelta
) -> None:
    path = stand.put(stand.bundle())
    memory = Memory(stand.folder / "memory")
    later = stand.now + dt.timedelta(days=60)
    expect.accepted(ask(lambda: verify_wheel(path, stand.policy, now=later, memory=memory)))
    answer = ask(lambda: verify_wheel(path, stand.policy, now=later - behind, memory=memory))
    expect(answer, "clock-behind", also=("predicate-missing",))
    expect.accepted(ask(lambda: verify_wheel(path, stand.policy, now=later, memory=memory)))


@row(8, "certificate-expired")
@pytest.mark.parametrize("days", [1, 400])
def test_a_certificate_that_was_over(stand: Stand, expect: Expect, days: int) -> None:
    """Signed by a timestamp long after the ten minutes of the certificate."""
    bundle = stand.bundle()
    raw = base64.b64decode(found(bundle, f"{MATERIAL}.certificate.rawBytes"))
    ended = x509.load_der_x509_certificate(raw).not_valid_after_utc
    loaded = certificate.load((raw,))
    root = free(stand)
    later = ended + dt.timedelta(days=days)

    def check() -> None:
        certificate.check_chain(loaded, root.material.authorities, (later,), {})

    expect(ask(check), "certificate-expired")


def test_the_parts_are_all_that_a_root_has(stand: Stand) -> None:
    document = dict(free(stand).document)
    assert set(PARTS) == {name for name, value in document.items() if isinstance(value, list)}
