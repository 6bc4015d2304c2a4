"""Time the embedding forward against PyTorch's own: pairs of runs, interleaved, each on another batch.

The reference is the function behind nn.EmbeddingBag, ``torch.nn.functional.embedding_bag``, called once for each table, its results
concatenated to the same [B, T*D]. Both read the same tables. One batch used again and again would stay in the last-level cache
and flatter whoever reads it second, so batches rotate and the two never get one batch in succession.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

import wheelmark_kernels
from wheelmark_kernels.contract import report
from wheelmark_kernels.contract.tbe_cases import DTYPES

REFERENCE: Final = "torch.nn.functional.embedding_bag for each table, then torch.cat"
BATCHES: Final = 8
WARM_UP: Final = 3
ZIPF_EXPONENT: Final = 1.05


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a workload; every bag has the same length."""

    tables: int
    rows: int
    dim: int
    batch: int
    pooling: int


SHAPES: Final = {
    "main": Shape(tables=8, rows=100_000, dim=128, batch=512, pooling=20),
    "small": Shape(tables=4, rows=10_000, dim=32, batch=64, pooling=5),
    "large": Shape(tables=8, rows=1_000_000, dim=64, batch=1024, pooling=40),
}
"""Training in memory, latency of one request, and tables of 2 GB (fp32), which is run only when asked for."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Tables of one dtype and batches of indices of one distribution."""

    name: str
    shape: Shape
    precision: str
    distribution: str
    weights: Tensor
    batches: Sequence[Tensor]  # each int64 [T*B*L], table-major

    def ours(self) -> Callable[[int], Tensor]:
        """Our operator on batch number k."""
        shape = self.shape
        table_offsets = torch.arange(shape.tables + 1) * shape.rows
        offsets = torch.arange(shape.tables * shape.batch + 1) * shape.pooling
        return lambda k: wheelmark_kernels.tbe_forward(self.weights, table_offsets, self.batches[k], offsets)

    def reference(self) -> Callable[[int], Tensor]:
        """PyTorch's function on batch number k; the split into tables is made beforehand, not timed."""
        shape = self.shape
        tables = self.weights.view(shape.tables, shape.rows, shape.dim).unbind()
        offsets = torch.arange(shape.batch) * shape.pooling
        split = [list(batch.view(shape.tables, -1).unbind()) for batch in self.batches]
        return lambda k: torch.cat(
            [
                torch.nn.functional.embedding_bag(indices, table, offsets, mode="sum")
                for indices, table in zip(split[k], tables, strict=True)
            ],
            1,
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what may be chosen."""
    parser.add_argument(
        "--pairs", type=int, default=30, help="timed pairs of runs for each case (default 30)"
    )
    parser.add_argument(
        "--shape",
        action="append",
        choices=sorted(SHAPES),
        help="workload, may be given several times (default: main and small; large needs 3 GB of memory)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="time with this many threads (default: 1, and all for the large fp32 cases)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Time all cases and write the report."""
    if arguments.pairs < 1 or arguments.threads < 0:
        sys.stderr.write("--pairs must be at least 1, and --threads at least 1 where it is given\n")
        return 2
    try:
        path = wheelmark_kernels.cpu_dispatch()
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return report.CANNOT_RUN
    available = torch.get_num_threads()
    cases = []
    for name in dict.fromkeys(arguments.shape or ("main", "small")):
        for workload in workloads(name):
            for threads in thread_counts(workload, available, arguments.threads):
                torch.set_num_threads(threads)
                cases.append(time_case(workload, threads, arguments.pairs))
    report.write(
        arguments.report,
        {"dispatch": path, "threads": arguments.threads or available, "cpu": cpu_model(), "cases": cases},
    )
    return report.PASSED


def workloads(name: str) -> Iterator[Workload]:
    """All workloads of one shape, one after the other: each dtype's tables are made when their turn comes."""
    shape = SHAPES[name]
    generator = torch.Generator().manual_seed(0)
    batches = {
        "uniform": uniform_batches(shape, generator),
        f"zipf {ZIPF_EXPONENT}": zipf_batches(shape, generator),
    }
    weights = torch.empty(shape.tables * shape.rows, shape.dim).uniform_(-0.01, 0.01, generator=generator)
    for precision in ("fp32", "fp16"):
        weights = weights.to(DTYPES[precision])
        for distribution, indices in batches.items():
            yield Workload(
                name=name,
                shape=shape,
                precision=precision,
                distribution=distribution,
                weights=weights,
                batches=indices,
            )


def thread_counts(workload: Workload, available: int, wanted: int) -> tuple[int, ...]:
    """How many threads to time a workload with.

    One thread says most about the code and least about what else the machine does; the large fp32 workloads run on
    all threads too, or a lost parallel loop would go unseen.
    """
    if wanted:
        return (wanted,)
    if available > 1 and workload.name != "small" and workload.precision == "fp32":
        return (1, available)
    return (1,)


def time_case(workload: Workload, threads: int, pairs: int) -> dict[str, Any]:
    """Time one workload and describe it as the report has it."""
    ours, theirs = time_pairs(workload.ours(), workload.reference(), pairs)
    distribution = workload.distribution.split()[0]
    name = f"tbe_forward/{workload.name}-{distribution}-{workload.precision}-{threads}thr"
    sys.stderr.write(summary(name, ours, theirs))
    return {
        "name": name,
        "precision": workload.precision,
        "batch": workload.shape.batch,
        "distribution": workload.distribution,
        "shapes": asdict(workload.shape),
        "threads": threads,
        "reference": REFERENCE,
        "ours_ns": ours,
        "reference_ns": theirs,
    }


def uniform_batches(shape: Shape, generator: torch.Generator) -> list[Tensor]:
    """Batches whose indices are equally likely: the worst case for every cache."""
    count = shape.tables * shape.batch * shape.pooling
    return [torch.randint(0, shape.rows, (count,), generator=generator) for _ in range(BATCHES)]


def zipf_batches(shape: Shape, generator: torch.Generator) -> list[Tensor]:
    """Batches in which the row of rank k has probability proportional to k**-1.05, popular rows scattered over the table."""
    ranks = torch.arange(1, shape.rows + 1, dtype=torch.float64)
    cumulative = ranks.pow(-ZIPF_EXPONENT).cumsum(0)
    cumulative /= cumulative[-1].clone()
    scattered = [torch.randperm(shape.rows, generator=generator) for _ in range(shape.tables)]
    batches = []
    for _ in range(BATCHES):
        drawn = torch.rand(
            (shape.tables, shape.batch * shape.pooling), dtype=torch.float64, generator=generator
        )
        rank = torch.searchsorted(cumulative, drawn).clamp_(max=shape.rows - 1)
        batches.append(torch.cat([order[row] for order, row in zip(scattered, rank, strict=True)]))
    return batches


def time_pairs(
    ours: Callable[[int], Tensor], theirs: Callable[[int], Tensor], pairs: int
) -> tuple[list[int], list[int]]:
    """Time pairs of runs; who goes first alternates.

    Args:
        ours: Runs batch number k.
        theirs: Runs batch number k.
        pairs: How many.

    Returns:
        Nanoseconds of each run of ours and of theirs, pair by pair.
    """
    batch = itertools.count()
    both = (ours, theirs)
    times: tuple[list[int], list[int]] = ([], [])
    for pair in range(-WARM_UP, pairs):
        for which in (0, 1) if pair % 2 else (1, 0):
            k = next(batch) * 3 % BATCHES
            start = time.perf_counter_ns()
            both[which](k)
            elapsed = time.perf_counter_ns() - start
            if pair >= 0:
                times[which].append(elapsed)
    return times


def summary(name: str, ours: Sequence[int], theirs: Sequence[int]) -> str:
    """One line for a person; milliseconds."""
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return (
        f"{name:38} ours min {min(ours) / 1e6:7.3f} median {statistics.median(ours) / 1e6:7.3f} ms, "
        f"reference min {min(theirs) / 1e6:7.3f} median {statistics.median(theirs) / 1e6:7.3f} ms, "
        f"median ratio {ratio:.2f}\n"
    )


def cpu_model() -> str:
    """What the system calls this CPU, or an empty string."""
    file = Path("/proc/cpuinfo")
    if not file.is_file():
        return ""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
