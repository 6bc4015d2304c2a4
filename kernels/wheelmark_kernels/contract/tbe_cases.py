"""Inputs for the embedding forward, made from a case's name alone, and the comparison with the float64 reference."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from wheelmark_kernels import reference
from wheelmark_kernels.contract.report import Case

DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
INDEX_DTYPES: Final = {"i32": torch.int32, "i64": torch.int64}

TOLERANCES: Final = dict.fromkeys(DTYPES, 42 * 2.0**-24)
"""Largest |result - reference| / sum of |factor * row| over the bag, for rows of each dtype.

Rows of every dtype widen to fp32 exactly and are summed there, so all dtypes have one tolerance: one wide enough for fp16
arithmetic would hide a sum that was kept in fp16. Summing n terms in any order errs by at most (n - 1) * 2**-24 of the sum of
magnitudes (Higham, *Accuracy and Stability of Numerical Algorithms*, 4.2); bags here have up to 40 rows, and a product, a
division and the conversion of the factor add three roundings at most. A quarter of it is seen (40 times the same row)."""

MIXED: Final = (3, 0, 1, 7, 2, 40, 0, 5, 1, 12, 0)
"""Bag lengths: empty, one, many; the last bag is empty too, and the prefetch of one table runs into the next."""
TABLE_ROWS: Final = (13, 1, 40)
"""Tables of different sizes, one of a single row: ids repeat within and across bags."""


@dataclass(frozen=True, kw_only=True)
class TbeCase:
    """One call of ``tbe_forward``."""

    dtype: str = "fp32"
    indices: str = "i64"
    dim: int = 64
    table_rows: tuple[int, ...] = TABLE_ROWS
    lengths: tuple[int, ...] = MIXED
    """Lengths of the bags of one table; its number is the batch."""
    weighted: bool = False
    mean: bool = False
    label: str = ""

    @property
    def name(self) -> str:
        """Everything that makes the case, ``fp16-i32-d17-t3-b11-weighted-mean``; the seed of its inputs."""
        parts = [
            self.dtype,
            self.indices,
            f"d{self.dim}",
            f"t{len(self.table_rows)}",
            f"b{len(self.lengths)}",
        ]
        parts += (
            ["weighted"] * self.weighted + ["mean" if self.mean else "sum"] + [self.label] * bool(self.label)
        )
        return "-".join(parts)


@dataclass(frozen=True, kw_only=True)
class TbeInputs:
    """Arguments of ``tbe_forward``."""

    weights: Tensor
    table_offsets: Tensor
    indices: Tensor
    offsets: Tensor
    per_sample_weights: Tensor | None

    def to(self, device: str | torch.device) -> TbeInputs:
        """Copy all tensors to `device`."""
        factors = self.per_sample_weights
        return TbeInputs(
            weights=self.weights.to(device),
            table_offsets=self.table_offsets.to(device),
            indices=self.indices.to(device),
            offsets=self.offsets.to(device),
            per_sample_weights=None if factors is None else factors.to(device),
        )

    @property
    def positional(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """In the order of the operator's schema."""
        return self.weights, self.table_offsets, self.indices, self.offsets, self.per_sample_weights


def make_inputs(case: TbeCase) -> TbeInputs:
    """Make the inputs of a case on the CPU: the same for the same case, on every machine.

    Args:
        case: What to make.

    Returns:
        Normal rows and factors; indices uniform in their table, its first and last row among them where there is room.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    tables, batch = len(case.table_rows), len(case.lengths)
    # each table has the lengths in another rotation, so that no two tables are alike
    lengths = [case.lengths[(b + t) % batch] for t in range(tables) for b in range(batch)]
    indices = []
    for table, rows in enumerate(case.table_rows):
        count = sum(lengths[table * batch : (table + 1) * batch])
        drawn = torch.randint(0, max(rows, 1), (count,), generator=generator)
        drawn[:1], drawn[1:2] = rows - 1, 0
        indices.append(drawn)
    index_dtype = INDEX_DTYPES[case.indices]
    joined = torch.cat(indices)
    weights = torch.randn((sum(case.table_rows), case.dim), generator=generator)
    factors = torch.randn((joined.shape[0],), generator=generator)
    return TbeInputs(
        weights=weights.to(DTYPES[case.dtype]),
        table_offsets=running_sum(case.table_rows, torch.int64),
        indices=joined.to(index_dtype),
        offsets=running_sum(lengths, index_dtype),
        per_sample_weights=factors if case.weighted else None,
    )


def running_sum(lengths: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Offsets [len + 1] of consecutive pieces."""
    offsets = torch.zeros(len(lengths) + 1, dtype=dtype)
    offsets[1:] = torch.tensor(list(lengths), dtype=dtype).cumsum(0)
    return offsets


def judge(case: TbeCase, inputs: TbeInputs, result: Tensor, *, kind: str = "forward") -> Case:
    """Compare a result with the reference, element by element.

    Args:
        case: What was asked for.
        inputs: Its inputs, on any device.
        result: fp32 [B, T*D].
        kind: First word of the name in the report.

    Returns:
        The verdict, with the largest error relative to the sum of magnitudes and where it lies.
    """
    name = f"{kind}/{case.name}"
    inputs = inputs.to("cpu")
    expected = reference.tbe_forward(*inputs.positional, mean=case.mean, dtype=torch.float64)
    if result.dtype != torch.float32 or result.shape != expected.shape:
        found = f"{result.dtype} {list(result.shape)} where torch.float32 {list(expected.shape)} was due"
        return Case(name=name, dtype=case.dtype, passed=False, max_error=None, message=found)
    factors = inputs.per_sample_weights
    magnitudes = reference.tbe_forward(
        inputs.weights.abs(),
        inputs.table_offsets,
        inputs.indices,
        inputs.offsets,
        None if factors is None else factors.abs(),
        mean=case.mean,
        dtype=torch.float64,
    )
    return compare(name, case.dtype, result, expected, scale=magnitudes, tolerance=TOLERANCES[case.dtype])


def compare(
    name: str, dtype: str, result: Tensor, expected: Tensor, *, scale: Tensor, tolerance: float
) -> Case:
    """Judge ``|result - expected| / scale`` against a tolerance; where the scale is zero, the result must be exactly right.

    Args:
        name: For the report.
        dtype: For the report.
        result: Any shape and device.
        expected: float64, same shape, CPU.
        scale: float64, same shape, not negative.
        tolerance: The largest error allowed.

    Returns:
        The verdict; a NaN in the result never passes.
    """
    if not expected.numel():
        return Case(name=name, dtype=dtype, passed=True, tolerance=tolerance)
    error = (result.detach().cpu().to(torch.float64) - expected).abs() / scale.clamp(min=1e-30)
    error = torch.where(error.isnan(), math.inf, error)
    worst = int(error.argmax())
    largest = float(error.flatten()[worst])
    where = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), error.shape))
    return Case(
        name=name,
        dtype=dtype,
        passed=largest <= tolerance,
        max_error=largest,
        tolerance=tolerance,
        worst_index=where,
    )
