"""Rows 21, 36, 38 and 44: inputs that are made to end a reader, policies that ask for nothing, libraries that fail."""

from __future__ import annotations

import base64
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from asking import SHIPPED, Expect, Stand, ask, command
from forging import Forge, canonical, changed, found
from rows import report, row
from wheelmark import digests
from wheelmark.plainfiles import read_bounded
from wheelmark.trust import state
from wheelmark.verify import entry, load_policy, log
from wheelmark.verify.bundle import LIMITS, read_bundle
from wheelmark.verify.facts import Examiner
from wheelmark.verify.policy import Policy

PROOF = "verificationMaterial.tlogEntries.0.inclusionProof"
MEMORY = 150 << 20
"""Bytes that refusing any of these may take at most, beside what the interpreter takes."""


def twice(data: bytes, member: str) -> bytes:
    """A member of a document a second time, with the same value."""
    start = data.index(f'"{member}":'.encode())
    return data[:start] + f'"{member}":null,'.encode() + data[start:]


@row(21, "json-duplicate-key")
@pytest.mark.parametrize(
    "member",
    ["mediaType", "verificationMaterial", "dsseEnvelope", "payload", "sig", "logIndex", "hashes", "rawBytes"],
)
def test_a_key_twice(stand: Stand, expect: Expect, member: str) -> None:
    data = canonical(stand.bundle())
    expect(stand.ask(twice(data, member)), "json-duplicate-key", also=("no-bundle",))


@row(21, "json-duplicate-key")
@pytest.mark.parametrize("member", ["_type", "subject", "predicate", "predicateType", "digest", "sha256"])
def test_a_key_twice_in_the_statement(stand: Stand, expect: Expect, member: str) -> None:
    signed = stand.forge.sign_payload(twice(stand.statement(), member))
    expect(stand.ask(signed), "json-duplicate-key", also=("no-bundle",))


JUNK: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "200 MB of white space": (lambda data: b" " * (17 << 20) + data, "json-too-large"),
    "200 MB of zeros": (lambda _data: b"", "json-too-large"),
    "200 MB of brackets": (lambda _data: b"[" * (17 << 20), "json-too-large"),
    "10,000 lists": (lambda _data: b"[" * 10_000 + b"]" * 10_000, "json-too-deep"),
    "10,000 lists that never end": (lambda _data: b"[" * 10_000, "json-too-deep"),
    "10,000 objects": (lambda _data: b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "json-too-deep"),
    "lists in a member": (
        lambda data: data[:-1] + b',"x":' + b"[" * 9000 + b"]" * 9000 + b"}",
        "json-too-deep",
    ),
    "two million strings": (
        lambda data: data.replace(b'"hashes":[', b'"hashes":[' + b'"AA==",' * 2_000_000, 1),
        "json-too-long",
    ),
    "two million empty lists": (lambda _data: b"[" + b"[]," * 2_000_000 + b"[]]", "json-too-long"),
    "a number of a million digits": (
        lambda data: data[:-1] + b',"x":' + b"9" * 1_000_000 + b"}",
        "json-number",
    ),
    "a string of 14 MB": (lambda data: data[:-1] + b',"x":"' + b"a" * (14 << 20) + b'"}', "json-too-long"),
}


@row(21, "json-too-large", "json-too-deep", "json-too-long", "json-number")
@pytest.mark.parametrize("kind", JUNK)
def test_junk_is_refused_in_bounded_memory(
    forge: Forge, statement: bytes, tmp_path: Path, kind: str, expect: Expect
) -> None:
    make, code = JUNK[kind]
    path = tmp_path / "bundle"
    path.write_bytes(make(forge.sign(statement)))
    if kind.startswith("200 MB"):
        os.truncate(path, 200 << 20)  # the rest are holes, which are read as zeros
    script = (
        "import sys; from pathlib import Path\n"
        "from wheelmark.errors import InputError\n"
        "from wheelmark.plainfiles import read_bounded\n"
        "from wheelmark.verify.bundle import LIMITS, read_bundle\n"
        "try: read_bundle(read_bounded(Path(sys.argv[1]), LIMITS.size))\n"
        "except InputError as error: print(error.reason, int(error.exit_code))\n"
    )

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))

    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=limited,
    )
    reason, _, exit_code = done.stdout.strip().partition(" ")
    assert (reason, exit_code) == (code, "6")
    expect(ask(lambda: read_bundle(read_bounded(path, LIMITS.size))), code)


@row(21, "json-too-deep", "json-too-large")
@pytest.mark.parametrize(
    ("junk", "code"), [(b"[" * 10_000, "json-too-deep"), (b" " * (17 << 20), "json-too-large")]
)
def test_the_command_is_bounded_too(stand: Stand, expect: Expect, junk: bytes, code: str) -> None:
    expect(stand.command(junk), code, also=("no-bundle",))


@row(21, "bundle-shape")
def test_more_than_a_bundle_has(stand: Stand, expect: Expect) -> None:
    bundle = stand.bundle()
    stamps = "verificationMaterial.timestampVerificationData.rfc3161Timestamps"
    many = changed(bundle, stamps, found(bundle, stamps) * 33)
    expect(stand.ask(many), "bundle-shape", also=("no-bundle",))


# Row 36.
TEXT = SHIPPED.read_text(encoding="utf-8")
SHORT = TEXT[TEXT.rindex("[[require]]") :]
HEAD = TEXT[: TEXT.index("[[require]]")]
EMPTY: dict[str, tuple[str, str]] = {
    "nothing": ("", "policy-version"),
    "a version alone": ("schema = 1\n", "policy-empty"),
    "no requirement": (HEAD, "policy-empty"),
    "no signer": (HEAD[: HEAD.index("[[signer]]")] + SHORT, "policy-empty"),
    "no root": ("schema = 1\n" + HEAD[HEAD.index("[[signer]]") : HEAD.rindex("#")] + SHORT, "policy-empty"),
    "no predicate": (HEAD + SHORT.replace('["provenance"]', "[]"), "policy-empty"),
    "no signer that counts": (HEAD + SHORT.replace('signers = ["release"]', "signers = []"), "policy-empty"),
    "gates without a test result": (
        HEAD + SHORT.rstrip() + '\ngates = ["abi"]\n',
        "policy-contradiction",
    ),
    "a signer that is not there": (
        HEAD + SHORT.replace('["release"]', '["somebody"]'),
        "policy-contradiction",
    ),
}


@report("in-toto/go-witness#784", "policy-empty", "policy-version", "policy-contradiction")
@row(36, "policy-empty", "policy-version", "policy-contradiction")
@pytest.mark.parametrize("kind", EMPTY)
def test_a_policy_that_asks_for_nothing(written: Callable[[str], Policy], expect: Expect, kind: str) -> None:
    text, code = EMPTY[kind]
    expect(ask(lambda: written(text)), code)


@report("in-toto/go-witness#784", "policy-empty")
@row(36, "policy-empty")
def test_the_command_under_a_policy_that_asks_for_nothing(stand: Stand, expect: Expect) -> None:
    path = stand.folder / "policy.toml"
    path.write_text(HEAD, encoding="utf-8")
    expect(command(stand.forge, "verify", stand.put(stand.bundle()), "--policy", path), "policy-empty")


@row(36, "policy-absent", "root-absent", "root-digest")
@pytest.mark.parametrize("kind", ["no policy", "no root", "another root", "no instance"])
def test_what_is_not_there(
    forge: Forge, expect: Expect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "empty" if kind == "no instance" else forge.home))
    policy = tmp_path / "policy.toml"
    source = 'source = "this-machine"'
    pinned = 'path = "root.json"\nsha256 = "' + "0" * 64 + '"'
    text = TEXT if kind == "no instance" else TEXT.replace(source, pinned).replace("development = true\n", "")
    if kind == "another root":
        (tmp_path / "root.json").write_bytes(forge.root_bytes)
    if kind != "no policy":
        policy.write_text(text, encoding="utf-8")
    code = {"no policy": "policy-absent", "another root": "root-digest"}.get(kind, "root-absent")
    expect(ask(lambda: load_policy(policy)), code)


@row(36, "policy-no-rule")
def test_what_a_policy_does_not_speak_of(
    stand: Stand, expect: Expect, written: Callable[[str], Policy]
) -> None:
    policy = written(HEAD + SHORT.replace('targets = ["*"]', 'targets = ["cpu-aarch64"]'))
    expect(stand.ask(stand.bundle(), policy=policy), "policy-no-rule")


# Row 38.
@row(38, "policy-permissions")
@pytest.mark.parametrize("name", ["policy.toml", "root.json", "folder"])
@pytest.mark.parametrize("mode", [0o020, 0o002, 0o022])
def test_a_file_that_others_can_write(
    forge: Forge, expect: Expect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int
) -> None:
    monkeypatch.setenv(state.VARIABLE, str(forge.home))
    folder = tmp_path / "mine"
    folder.mkdir(0o700)
    policy, root = folder / "policy.toml", folder / "root.json"
    root.write_bytes(forge.root_bytes)
    pinned = f'path = "root.json"\nsha256 = "{digests.sha256(forge.root_bytes)}"'
    text = TEXT.replace('source = "this-machine"', pinned).replace("development = true\n", "")
    policy.write_text(text, encoding="utf-8")
    for path in (policy, root):
        path.chmod(0o600)
    assert load_policy(policy, strict=True).requirements
    spoiled = folder if name == "folder" else folder / name
    spoiled.chmod(spoiled.stat().st_mode | mode)
    expect(ask(lambda: load_policy(policy, strict=True)), "policy-permissions")


@row(38, "policy-permissions")
def test_install_does_not_start(stand: Stand, expect: Expect) -> None:
    policy = stand.folder / "mine.toml"
    policy.write_text(TEXT, encoding="utf-8")
    policy.chmod(0o666)
    answer = command(
        stand.forge, "install", stand.put(stand.bundle()), "--policy", policy, "--python", sys.executable
    )
    expect(answer, "policy-permissions")


# Row 44.
class Panic(BaseException):
    """As a library in Rust raises where it gives up (``pyo3_runtime.PanicException``): no ``Exception``."""


RAISED: tuple[BaseException, ...] = (
    ValueError("x"),
    KeyError("x"),
    RecursionError(),
    MemoryError(),
    AssertionError(),
    UnicodeDecodeError("utf-8", b"", 0, 1, "x"),
    OverflowError(),
    StopIteration(),
    Panic("called `Option::unwrap()` on a `None` value"),
)


@row(44, "library")
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    ("module", "name"), [(entry, "check_body"), (log, "check_inclusion"), (log, "check_checkpoint")]
)
def test_whatever_is_raised_below(
    stand: Stand,
    expect: Expect,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    error: BaseException,
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    bundle = stand.bundle()
    monkeypatch.setattr(module, name, fail)
    expect(stand.ask(bundle), "library", also=("no-bundle",))


@row(44, "timestamp-untrusted", "timestamp-malformed")
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    ("name", "code"),
    [("cms.check_signed", "timestamp-untrusted"), ("decode_timestamp_response", "timestamp-malformed")],
)
def test_whatever_the_timestamp_library_raises(
    stand: Stand, expect: Expect, monkeypatch: pytest.MonkeyPatch, name: str, code: str, error: BaseException
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    bundle = canonical(stand.bundle())
    examiner = Examiner([stand.forge.root(canonical=False)])
    monkeypatch.setattr(f"wheelmark.verify.timestamps.{name}", fail)
    expect(ask(lambda: examiner.examine(bundle)), code)


@row(44, "library")
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_whatever_the_reader_of_a_wheel_raises(
    stand: Stand, expect: Expect, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    bundle = stand.bundle()
    monkeypatch.setattr("wheelmark.verify.artifact.read_wheel", fail)
    expect(stand.ask(bundle), "library")


@row(44, "root-shape")
def test_a_root_on_which_a_library_panics(forge: Forge, expect: Expect) -> None:
    """The name in a timestamp authority's certificate is no UTF-8: the library that verifies timestamps ended with it."""

    def spoil(document: dict[str, object]) -> None:
        holder = document["timestampAuthorities"][0]["certChain"]["certificates"][-1]  # type: ignore[index]
        data = base64.b64decode(holder["rawBytes"]).replace(b"embedded timestamp", b"\xffmbedded timestamp")
        holder["rawBytes"] = base64.b64encode(data).decode()

    expect(ask(lambda: forge.root(change=spoil)), "root-shape")


def test_interrupts_are_nobodys_refusal(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    bundle = canonical(stand.bundle())
    monkeypatch.setattr(log, "check_inclusion", fail)
    with pytest.raises(KeyboardInterrupt):
        Examiner([stand.forge.root()]).examine(bundle)


def test_the_texts_are_policies(written: Callable[[str], Policy]) -> None:
    assert written(HEAD + SHORT).requirements
