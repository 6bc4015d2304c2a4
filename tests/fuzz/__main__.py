"""The fuzzer's command: ``nox -s fuzz -- --seconds N --seed S --workers 2``; see ``--help``."""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz import corpus, engine, record, workers
from fuzz.subject import BrokenError, Subject

CHUNK = 500
_EVERY = 5.0
"""Seconds between two lines of progress."""
_STUCK = 120.0
"""Seconds without an answer of any worker after which the run is given up: a mutant hangs where no signal reaches."""


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop after that long (default: after --count)"
    )
    parser.add_argument(
        "--count", type=int, default=0, help="how many mutants (default: as many as --seconds allow)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first mutant: ranges of a seed can be run apart"
    )
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1)))
    parser.add_argument(
        "--kinds", default="", help="of bundles,wheels,layers,images,roots,policies,releases; default all"
    )
    parser.add_argument(
        "--state", type=Path, help="file that keeps what was found, so that a run broken off goes on"
    )
    parser.add_argument(
        "--broken",
        type=Path,
        default=Path(".nox/fuzz-broken"),
        help="folder for mutants that break an invariant",
    )
    parser.add_argument("--record", type=Path, help="write the page docs/benchmarks/fuzz.md")
    parser.add_argument("--replay", type=Path, help="judge one saved mutant again, and stop")
    args = parser.parse_args(argv)
    if not args.replay and not args.count and args.seconds == float("inf"):
        args.seconds = 60.0
    return args


def main(argv: list[str] | None = None) -> int:
    """Run; 0 if every invariant held."""
    args = arguments(argv)
    if args.replay:
        return replay(args.replay)
    tally, done, spent = _resumed(args)
    started = time.monotonic()
    try:
        for number, part in _parts(args, done):
            tally.add(part)
            done.add(number)
            for broken in part.broken:
                where = broken.save(args.broken)
                print(
                    f"BROKEN {where}: {broken.subject}, {broken.mutator}: {broken.why[-500:]}",
                    file=sys.stderr,
                    flush=True,
                )
            if args.state:
                _keep(args, tally, done, spent + time.monotonic() - started)
    except KeyboardInterrupt:
        print("interrupted; what was found so far:", file=sys.stderr)
    seconds = spent + time.monotonic() - started
    print(record.table(tally))
    print(record.summary(tally, seconds, args.workers))
    if args.record:
        page = record.page(
            tally, seed=args.seed, first=args.first, count=tally.total, seconds=seconds, workers=args.workers
        )
        args.record.write_text(page, encoding="utf-8")
    return 1 if any(counter["BROKEN"] for counter in tally.counts.values()) else 0


def _parts(args: argparse.Namespace, done: set[int]) -> Iterator[tuple[int, engine.Tally]]:
    """Results of chunks that are not done yet, as they come."""
    until = time.monotonic() + args.seconds
    last = args.first + args.count if args.count else sys.maxsize
    starts = (start for start in range(args.first, last, CHUNK) if start not in done)
    jobs = ((args.seed, start, min(CHUNK, last - start), until) for start in starts)
    total, shown = 0, time.monotonic()
    with multiprocessing.get_context("spawn").Pool(args.workers, workers.begin, (args.kinds,)) as pool:
        pending = []
        for job in jobs:
            if time.monotonic() >= until:
                break
            pending.append((job[1], pool.apply_async(workers.chunk, job)))
            if len(pending) < args.workers * 2:
                continue
            yield pending[0][0], (part := pending.pop(0)[1].get(timeout=_STUCK))
            total += part.total
            if time.monotonic() - shown > _EVERY:
                shown = time.monotonic()
                print(f"{total:,} mutants", file=sys.stderr, flush=True)
        for number, result in pending:
            yield number, result.get(timeout=_STUCK)


def _resumed(args: argparse.Namespace) -> tuple[engine.Tally, set[int], float]:
    if not args.state or not args.state.is_file():
        return engine.Tally(), set(), 0.0
    kept = json.loads(args.state.read_text(encoding="utf-8"))
    if kept["seed"] != args.seed:
        raise SystemExit(f"{args.state} is of seed {kept['seed']}")
    print(f"going on after {engine.Tally.of(kept['tally']).total:,} mutants", file=sys.stderr)
    return engine.Tally.of(kept["tally"]), set(kept["done"]), float(kept["seconds"])


def _keep(args: argparse.Namespace, tally: engine.Tally, done: set[int], seconds: float) -> None:
    value = {"seed": args.seed, "done": sorted(done), "tally": tally.as_json(), "seconds": seconds}
    beside = args.state.with_name(f"{args.state.name}.part")
    beside.write_text(json.dumps(value), encoding="utf-8")
    beside.replace(args.state)


def replay(path: Path) -> int:
    """Judge one saved mutant again: 1 if it still breaks an invariant."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    data = base64.b64decode(saved["original"]["data"])
    mutant = base64.b64decode(saved["mutant"])
    with _subject(saved, data) as subject:
        original = next((item for item in subject.originals if item.data == data), subject.originals[0])
        try:
            print(f"{subject.name}: {subject.judge(original, mutant)}")
        except BrokenError as error:
            print(f"{subject.name}: BROKEN: {error}")
            return 1
    return 0


@contextmanager
def _subject(saved: dict[str, Any], data: bytes) -> Iterator[Subject]:
    context = saved["original"]["context"]
    if "root" in context:
        yield corpus.again(context, data)
        return
    with (
        tempfile.TemporaryDirectory(prefix="wheelmark-fuzz-") as folder,
        corpus.subjects(Path(folder), frozenset([saved["subject"]])) as subjects,
    ):
        (subject,) = subjects
        yield subject


if __name__ == "__main__":
    sys.exit(main())
