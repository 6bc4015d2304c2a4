"""How the scheduler answers workers that die, hang, lie or cannot be started as they must be.

The worker here is a real process that speaks the protocol and compiles nothing; the real one is run in
tests/integration/build/kernels.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from wheelmark.build.kernels.cache import ObjectCache
from wheelmark.build.kernels.scheduler import Scheduler, TargetWork, target_work
from wheelmark.build.kernels.toolchain import CompilerFiles, read_compiler
from wheelmark.build.kernels.variants import load_all
from wheelmark.build.kernels.worker_process import worker_environment
from wheelmark.errors import BuildError, CommandError, ToolError, WheelmarkError
from wheelmark.targets import Target

SM90 = Target("cuda-sm90")
DECLARATION = """schema = 1
[[kernel]]
name = "k"
module = "m"
attribute = "f"
generic = true
[kernel.matrix]
v = ["one", "two", "three"]
"""
WORKER = """#!{python}
import json, os, sys, time
def hear():
    line = sys.stdin.buffer.readline()
    return json.loads(sys.stdin.buffer.read(int(line))) if line else sys.exit(0)
def say(event, **fields):
    sys.stdout.write(json.dumps({{"event": event, **fields}}) + chr(10)); sys.stdout.flush()
def prologue(job):
    for file in job["files"]:
        for kernel in file["kernels"]:
            say("begin", step="import", kernel=kernel["name"], variant=None)
            say("kernel", kernel=kernel["name"], source_digest="0" * 64)
            for variant in kernel["variants"]:
                say("described", kernel=kernel["name"], variant=variant["name"], key=variant["name"] * 8, facts={{}})
    say("all-described", asked=[])
    return hear()["compile"]
def compiled(job, kernel, variant):
    say("begin", step="compile", kernel=kernel, variant=variant)
    open(job["output"] + "/" + variant, "w").write(variant)
    say("compiled", kernel=kernel, variant=variant, file=variant, metadata={{}})
hear()
{body}
"""
READY = "say('ready', address_randomization=False)\n"


def run(
    folder: Path, body: str, *, silence: float = 20.0, work: list[TargetWork] | None = None
) -> TargetWork:
    (folder / "kernels.toml").write_text(DECLARATION)
    worker = folder / "python"
    worker.write_text(WORKER.format(python=sys.executable, body=body))
    worker.chmod(0o755)
    scratch = folder / "scratch"
    for name in ("home", "tmp", "out"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    compiler = CompilerFiles(
        python=worker, python_version="3", triton="0", folder=folder, digest="d", environment="e"
    )
    files = load_all([folder / "kernels.toml"])
    work = work or [target_work(files, SM90)]
    cache = ObjectCache(folder / "cache")
    scheduler = Scheduler(
        files,
        compiler,
        source_root=folder,
        cache=cache,
        scratch=scratch,
        workers=2,
        progress=lambda _text: None,
        silence=silence,
    )
    scheduler.run(work)
    return work[0]


def outcome(work: TargetWork) -> Mapping[str, str]:
    done = {variant: "done" for _, variant in work.done}
    return done | {variant: reason for (_, variant), (reason, _) in work.refused.items()}


def test_all_is_well_and_the_second_run_comes_from_the_cache(tmp_path: Path) -> None:
    body = READY + (
        "while True:\n"
        "    job = hear()\n"
        "    for kernel, variant in prologue(job): compiled(job, kernel, variant)\n"
        "    say('end'); say('exited', signal=0, code=0)\n"
    )
    work = run(tmp_path, body)
    assert outcome(work) == {"one": "done", "two": "done", "three": "done"}
    assert (work.compiled, work.cached) == (3, 0)
    assert work.done["k", "two"].data == b"two"
    again = run(tmp_path, body)
    assert (again.compiled, again.cached) == (0, 3)


def test_a_death_by_signal_refuses_that_variant_and_nothing_else(tmp_path: Path) -> None:
    body = READY + (
        "while True:\n"
        "    job = hear()\n"
        "    signal = 0\n"
        "    for kernel, variant in prologue(job):\n"
        "        if variant == 'two':\n"
        "            say('begin', step='compile', kernel=kernel, variant=variant)\n"
        "            print('assertion: no such tile', file=sys.stderr, flush=True); signal = 6; break\n"
        "        compiled(job, kernel, variant)\n"
        "    say('exited', signal=signal, code=0)\n"
    )
    work = run(tmp_path, body)
    assert outcome(work) == {"one": "done", "two": "kernel-abort", "three": "done"}
    text = work.refused["k", "two"][1]
    assert "SIGABRT" in text
    assert "assertion: no such tile" in text


def test_a_death_while_importing_refuses_all_of_the_kernel(tmp_path: Path) -> None:
    body = READY + (
        "job = hear()\n"
        "say('begin', step='import', kernel='k', variant=None)\n"
        "say('exited', signal=11, code=0)\n"
        "hear()\n"
    )
    work = run(tmp_path, body)
    assert set(outcome(work).values()) == {"kernel-abort"}
    assert len(work.refused) == 3


def test_the_whole_worker_may_die(tmp_path: Path) -> None:
    body = READY + (
        "job = hear()\n"
        "for kernel, variant in prologue(job):\n"
        "    if variant == 'two':\n"
        "        say('begin', step='compile', kernel=kernel, variant=variant); os.kill(os.getpid(), 9)\n"
        "    compiled(job, kernel, variant)\n"
        "say('exited', signal=0, code=0)\n"
        "hear()\n"
    )
    work = run(tmp_path, body)
    assert outcome(work) == {"one": "done", "two": "kernel-abort", "three": "done"}
    assert "signal 9" in work.refused["k", "two"][1]


def test_silence_is_ended_and_refused(tmp_path: Path) -> None:
    body = READY + (
        "job = hear()\n"
        "for kernel, variant in prologue(job):\n"
        "    if variant == 'one':\n"
        "        say('begin', step='compile', kernel=kernel, variant=variant); time.sleep(600)\n"
        "    compiled(job, kernel, variant)\n"
        "say('exited', signal=0, code=0)\n"
        "hear()\n"
    )
    work = run(tmp_path, body, silence=2.0)
    assert outcome(work) == {"one": "kernel-timeout", "two": "done", "three": "done"}


def test_an_error_in_one_place_ends_the_other_workers_at_once(tmp_path: Path) -> None:
    (tmp_path / "kernels.toml").write_text(DECLARATION)
    files = load_all([tmp_path / "kernels.toml"])
    first = tmp_path / "first"
    body = READY + (
        "job = hear()\n"
        f"if not os.path.exists({str(first)!r}):\n"
        f"    open({str(first)!r}, 'x').close(); say('begin', step='import', kernel='k', variant=None); time.sleep(600)\n"
        f"say('exited', signal=0, code=1); hear()\n"
    )
    targets = [Target("cuda-sm80"), Target("cuda-sm90")]
    with pytest.raises(BuildError) as caught:
        run(tmp_path, body, silence=300, work=[target_work(files, target) for target in targets])
    assert caught.value.reason == "kernel-worker"


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        ("say('ready', address_randomization=True); hear()", ToolError, "address-randomization"),
        ("sys.exit(3)", BuildError, "kernel-worker"),
        ("print('hello from the project', flush=True); hear()", BuildError, "kernel-worker"),
        (READY + "hear(); say('exited', signal=0, code=1); hear()", BuildError, "kernel-worker"),
        (READY + "prologue(hear()); say('exited', signal=0, code=0); hear()", BuildError, "kernel-worker"),
        (
            READY
            + "prologue(hear()); say('compiled', kernel='k', variant='one', file='../x', metadata={}); hear()",
            BuildError,
            "kernel-worker",
        ),
    ],
    ids=["aslr", "no start", "not an event", "ends before a step", "leaves variants out", "no object"],
)
def test_failures_that_are_no_variants_fault(
    tmp_path: Path, body: str, kind: type[WheelmarkError], reason: str
) -> None:
    with pytest.raises(kind) as caught:
        run(tmp_path, body)
    assert caught.value.reason == reason


def test_a_worker_sees_nothing_of_the_callers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "WHEELMARK_STATE",
        "GITHUB_TOKEN",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "PYTHONPATH",
        "SSH_AUTH_SOCK",
    ):
        monkeypatch.setenv(name, "secret")
    report = tmp_path / "seen.json"
    body = f"json.dump([dict(os.environ), os.getcwd(), os.getsid(0)], open({str(report)!r}, 'w'))\n"
    with pytest.raises(BuildError):
        run(tmp_path, body)
    seen, folder, session = json.loads(report.read_text())
    seen.pop("LC_CTYPE", None)  # set by Python itself where the locale is coerced
    assert seen == worker_environment(tmp_path / "scratch")
    assert "secret" not in seen.values()
    assert Path(folder) == tmp_path / "scratch"
    assert seen["HOME"].startswith(str(tmp_path / "scratch"))
    # 0 where its leader is outside of the worker's process namespace.
    assert session != os.getsid(0)


def fake_environment(folder: Path, record: str) -> Path:
    site = folder / "site"
    info = site / "triton-3.7.1.dist-info"
    info.mkdir(parents=True)
    (site / "triton").mkdir()
    (site / "triton" / "a.py").write_text("12345")
    (info / "RECORD").write_text(record)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\necho \'["{site}", "3.11"]\'\n')
    python.chmod(0o755)
    return python


RECORD = (
    "../../../bin/proton,sha256=x,1\ntriton-3.7.1.dist-info/INSTALLER,sha256=x,4\n"
    "triton-3.7.1.dist-info/RECORD,,\ntriton/a.py,sha256=aaaa,5\n"
)


def test_the_toolchain_digest_is_of_the_compilers_files_alone(tmp_path: Path) -> None:
    one = read_compiler(fake_environment(tmp_path / "1", RECORD))
    other = read_compiler(
        fake_environment(tmp_path / "22", RECORD.replace("proton,sha256=x", "proton,sha256=y"))
    )
    changed = read_compiler(fake_environment(tmp_path / "3", RECORD.replace("aaaa", "bbbb")))
    assert one.triton == "3.7.1"
    assert one.digest == other.digest
    assert one.environment != other.environment
    assert one.digest != changed.digest


@pytest.mark.parametrize(
    "record",
    [RECORD.replace(",5", ",6"), RECORD.replace("sha256=aaaa", ""), RECORD + "triton/b.py,sha256=b,1\n"],
)
def test_a_compiler_that_is_not_its_record_is_refused(tmp_path: Path, record: str) -> None:
    with pytest.raises(ToolError) as caught:
        read_compiler(fake_environment(tmp_path, record))
    assert caught.value.reason == "toolchain"


def test_an_environment_without_triton_is_refused(tmp_path: Path) -> None:
    python = fake_environment(tmp_path, RECORD)
    (tmp_path / "site" / "triton-3.7.1.dist-info" / "RECORD").unlink()
    with pytest.raises(ToolError) as caught:
        read_compiler(python)
    assert caught.value.reason == "toolchain"


def test_an_interpreter_that_fails_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(CommandError) as caught:
        read_compiler(python)
    assert caught.value.code == 3
