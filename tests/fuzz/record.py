"""What a run found, as a table for people and as the page ``docs/benchmarks/fuzz.md``."""

from __future__ import annotations

import collections
import datetime as dt
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from fuzz.engine import NOT_MADE, Tally
from fuzz.subject import EQUAL, LESS, UNCHANGED

_ROOT = Path(__file__).resolve().parents[2]
_ACCEPTED = {EQUAL, LESS, "accepted, says something else", "accepted, CRC wrong"}
_PACKAGES = ("cryptography", "rfc3161-client", "sigstore", "packaging")
_MOST = 5
"""Reasons named in a row of the table; the rest is summed up."""


def table(tally: Tally) -> str:
    """Each mutator: tried, refused by reason, accepted because nothing that is said differs."""
    lines = [
        "| input | mutator | tried | refused | accepted, equal | broken | reasons, most frequent first |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (subject, mutator), counter in sorted(tally.counts.items()):
        accepted = sum(counter[word] for word in _ACCEPTED)
        idle = counter[UNCHANGED] + counter[NOT_MADE]
        tried = counter.total() - idle
        codes = [
            (word, count)
            for word, count in counter.most_common()
            if word not in {*_ACCEPTED, UNCHANGED, NOT_MADE, "BROKEN"}
        ]
        named = ", ".join(f"`{word}` {count:,}" for word, count in codes[:_MOST])
        more = sum(count for _, count in codes[_MOST:])
        refused = sum(count for _, count in codes)
        rest = f", {len(codes) - _MOST} more {more:,}" if more else ""
        lines.append(
            f"| {subject} | {mutator} | {tried:,} | {refused:,} | {accepted:,} | {counter['BROKEN']:,} | {named}{rest} |"
        )
    return "\n".join(lines)


def summary(tally: Tally, seconds: float, workers: int) -> str:
    """Totals in a few lines."""
    words: collections.Counter[str] = collections.Counter()
    for counter in tally.counts.values():
        words.update(counter)
    idle = words[UNCHANGED] + words[NOT_MADE]
    accepted = sum(words[word] for word in _ACCEPTED)
    busy = sum(tally.seconds.values()) or 1.0
    slowest = ", ".join(f"{name} {taken * 1000:,.0f} ms" for name, taken in sorted(tally.slowest.items()))
    return "\n".join(
        [
            (
                f"- {tally.total:,} mutants, {idle:,} of which were the original again; {accepted:,} accepted with what the "
                f"original says; {tally.total - idle - accepted - words['BROKEN']:,} refused with a reason; "
                f"**{words['BROKEN']:,} broke an invariant**."
            ),
            f"- {workers} workers for {seconds:,.0f} s: {tally.total / busy:,.0f} mutants a second and worker.",
            f"- Slowest single mutant: {slowest}. Peak memory of a worker: {tally.peak / 2**20:,.0f} MiB.",
        ]
    )


def page(tally: Tally, *, seed: int, first: int, count: int, seconds: float, workers: int) -> str:
    """The whole record."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    command = f"nox -s fuzz -- --count {count} --seed {seed} --first {first} --workers {workers} --record docs/benchmarks/fuzz.md"
    return "\n".join(
        [
            "# The fuzzer's record",
            "",
            "<!-- written by `nox -s fuzz -- --record`; do not edit -->",
            "",
            "What is changed how, and what has to hold of every mutant, stands in `tests/fuzz/__init__.py`: of bundles that",
            "Wheelmark wrote nothing but the original bytes is accepted; of others no change to signed content or to a reported fact,",
            "and what differs is named as authenticated by nothing; nothing comes out but an answer with a reason; what is accepted,",
            "sigstore-python accepts too: it is asked for every accepted mutant, but where a timestamp beside a good one was ignored.",
            "",
            f"`{command}`",
            "",
            (
                f"Date: {dt.datetime.now(dt.UTC).date().isoformat()}. Machine: {_machine()}. Commit {_commit()}. "
                f"Python {platform.python_version()}, {versions}. Seed {seed}, numbers {first:,} to {first + count - 1:,}."
            ),
            "",
            summary(tally, seconds, workers),
            "",
            table(tally),
            "",
        ]
    )


def _machine() -> str:
    fields: Mapping[str, str] = {}
    info = Path("/proc/cpuinfo")
    if info.is_file():
        pairs = (line.partition(":") for line in info.read_text(encoding="utf-8").splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
    return f"{fields.get('model name', platform.machine())}, {os.cpu_count()} CPUs"


def _commit() -> str:
    command = ["git", "-C", str(_ROOT), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
