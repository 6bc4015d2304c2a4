"""Check the installed operators: results against a float64 reference, gradients, errors, and that threads change nothing.

Runs on the CPU path that WHEELMARK_KERNELS_CPU names (scalar, avx2 or avx512), else on the widest of this CPU. Exit code 3
when this CPU cannot run the path.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor

import wheelmark_kernels
from wheelmark_kernels import reference
from wheelmark_kernels.contract import report
from wheelmark_kernels.contract.report import Case
from wheelmark_kernels.contract.tbe_cases import (
    DTYPES,
    INDEX_DTYPES,
    MIXED,
    TbeCase,
    TbeInputs,
    compare,
    judge,
    make_inputs,
)

DIMS: Final = (1, 3, 17, 64, 100, 128, 257)
"""Every dtype, index width, pooling and weighting is tried with each: below, at and beside the widths of vectors and cache lines."""
MORE_DIMS: Final = (
    2,
    4,
    5,
    8,
    9,
    15,
    16,
    31,
    32,
    33,
    48,
    80,
    96,
    129,
    160,
    192,
    240,
    256,
    272,
    300,
    512,
    1000,
)
"""Tried once for each dtype: every number of vectors and of passes over a row on every path."""
GRADIENT_TOLERANCES: Final = {"fp32": 1e-6, "fp16": 2**-11 + 1e-6, "bf16": 2**-8 + 1e-6}
"""A gradient is summed in fp32 and rounded once to the dtype of the rows: half a unit in the last place of it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how much is checked; the path is chosen by the environment."""
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="only each N-th call whose result is compared (default: all)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Check everything and write the report."""
    try:
        path = wheelmark_kernels.cpu_dispatch()
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return report.CANNOT_RUN
    cases = [forward(case) for case in itertools.islice(forward_cases(), 0, None, max(1, arguments.every))]
    cases += [gradient(case) for case in gradient_cases()]
    cases += [widening(dtype, dim) for dtype in ("fp16", "bf16") for dim in (1, 4, 8, 16)]
    cases += [same_with_other_threads(case) for case in thread_cases()]
    cases += list(refusals())
    return report.write_cases(arguments.report, cases, dispatch=path)


def forward_cases() -> Iterator[TbeCase]:
    """All calls whose result is compared with the reference."""
    for dtype, indices, dim in itertools.product(DTYPES, INDEX_DTYPES, DIMS):
        for weighted, mean in itertools.product((False, True), repeat=2):
            yield TbeCase(dtype=dtype, indices=indices, dim=dim, weighted=weighted, mean=mean)
    for dtype, dim in itertools.product(DTYPES, MORE_DIMS):
        yield TbeCase(dtype=dtype, dim=dim, weighted=True)
        yield TbeCase(dtype=dtype, dim=dim, mean=True)
    for dtype in DTYPES:
        yield TbeCase(dtype=dtype, table_rows=(500,))
        yield TbeCase(dtype=dtype, table_rows=(5,), lengths=(1,))
        yield TbeCase(dtype=dtype, table_rows=(5, 6, 7), lengths=(), label="no-bags")
        yield TbeCase(dtype=dtype, lengths=(0,) * 9, mean=True, weighted=True, label="empty-bags")
        yield TbeCase(dtype=dtype, table_rows=(0, 0), lengths=(0, 0), label="no-rows")
        yield TbeCase(dtype=dtype, table_rows=(30,) * 20, lengths=(2, 0, 1), label="many-tables")
        yield TbeCase(dtype=dtype, table_rows=(3000, 20, 900), lengths=MIXED * 30, dim=100, label="threads")


def gradient_cases() -> Iterator[TbeCase]:
    """All calls whose gradients are compared."""
    for dtype, weighted, mean in itertools.product(DTYPES, (False, True), (False, True)):
        yield TbeCase(dtype=dtype, weighted=weighted, mean=mean, dim=17)
    yield TbeCase(indices="i32", weighted=True, mean=True, dim=3, table_rows=(2,))
    yield TbeCase(weighted=True, lengths=(), label="no-bags")


def thread_cases() -> Iterator[TbeCase]:
    """Calls large enough for several threads, with bags of very different lengths."""
    for dtype in DTYPES:
        yield TbeCase(
            dtype=dtype,
            dim=128,
            table_rows=(3000, 7, 500),
            lengths=(*MIXED, 900, *MIXED * 20),
            weighted=True,
            label="threads",
        )


def call(case: TbeCase, inputs: TbeInputs) -> Tensor:
    """Call the public function."""
    return wheelmark_kernels.tbe_forward(*inputs.positional, mode="mean" if case.mean else "sum")


def forward(case: TbeCase) -> Case:
    """Check one result."""
    inputs = make_inputs(case)
    return judge(case, inputs, call(case, inputs))


def gradient(case: TbeCase) -> Case:
    """Check the gradients against those that autograd finds for the float64 reference; the worse of the two is reported."""
    inputs = make_inputs(case)
    leaves = [inputs.weights, *([inputs.per_sample_weights] if inputs.per_sample_weights is not None else [])]
    for leaf in leaves:
        leaf.requires_grad_()
    result = call(case, inputs)
    direction = torch.sin(torch.arange(result.numel(), dtype=torch.float32)).view(result.shape)
    found = torch.autograd.grad(result, leaves, direction)

    doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
    expected = torch.autograd.grad(_reference(inputs, doubles, case), doubles, direction.double())
    # each gradient is a sum of products: its error is judged against the sum of their magnitudes
    positive = [double.detach().abs().requires_grad_() for double in doubles]
    scales = torch.autograd.grad(_reference(inputs, positive, case), positive, direction.double().abs())
    judged = [
        compare(
            f"gradient/{case.name}/{name}",
            case.dtype,
            ours,
            theirs,
            scale=scale,
            tolerance=GRADIENT_TOLERANCES[case.dtype if name == "weights" else "fp32"],
        )
        for name, ours, theirs, scale in zip(
            ("weights", "per_sample_weights"), found, expected, scales, strict=False
        )
    ]
    return max(judged, key=lambda one: (not one.passed, one.max_error or 0.0))


def _reference(inputs: TbeInputs, leaves: list[Tensor], case: TbeCase) -> Tensor:
    return reference.tbe_forward(
        leaves[0],
        inputs.table_offsets,
        inputs.indices,
        inputs.offsets,
        leaves[1] if len(leaves) > 1 else None,
        mean=case.mean,
        dtype=torch.float64,
    )


def widening(dtype: str, dim: int) -> Case:
    """Check that each of the 65536 values of a 16-bit type becomes the same fp32 value: subnormals, infinities and NaNs too.

    Args:
        dtype: ``"fp16"`` or ``"bf16"``.
        dim: Divides 65536; short rows are handled by narrower code than long ones.

    Returns:
        The verdict; bags of one row, so that nothing is added.
    """
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    weights = patterns.view(DTYPES[dtype]).view(-1, dim)
    rows = weights.shape[0]
    found = wheelmark_kernels.tbe_forward(
        weights, torch.tensor([0, rows]), torch.arange(rows), torch.arange(rows + 1)
    )
    expected = weights.float()
    wrong = ~((found == expected) | (found.isnan() & expected.isnan()))
    worst = tuple(int(i) for i in wrong.nonzero()[0]) if bool(wrong.any()) else None
    return Case(
        name=f"widening/{dtype}-d{dim}",
        dtype=dtype,
        passed=worst is None,
        max_error=0.0 if worst is None else float(wrong.sum()),
        worst_index=worst,
        message="" if worst is None else "error: number of values that are not the same",
    )


def same_with_other_threads(case: TbeCase) -> Case:
    """Check that one, two and three threads give the same bits."""
    inputs = make_inputs(case)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(call(case, inputs))
    finally:
        torch.set_num_threads(before)
    same = all(torch.equal(results[0].view(torch.int32), other.view(torch.int32)) for other in results[1:])
    return Case(
        name=f"threads/{case.name}",
        dtype=case.dtype,
        passed=same,
        message="" if same else "the result depends on the number of threads",
    )


def refusals() -> Iterator[Case]:
    """Check that bad input is refused by the operator itself, with the type and the words that say what is wrong."""
    good = make_inputs(TbeCase(dim=16, weighted=True))
    weights, tables, indices, offsets, factors = good.positional
    assert factors is not None  # noqa: S101 (the case is weighted)

    def changed(tensor: Tensor, position: int, value: int) -> Tensor:
        copy = tensor.clone()
        copy[position] = value
        return copy

    bad: dict[str, tuple[type[Exception], str, tuple[Tensor, ...]]] = {
        "index-negative": (IndexError, "is -1, outside table 0", (weights, tables, changed(indices, 5, -1), offsets)),
        "index-beyond": (IndexError, "is 13, outside table 0, which has 13 rows", (weights, tables, changed(indices, 5, 13), offsets)),
        "index-last": (IndexError, "outside table 2", (weights, tables, changed(indices, -1, 40), offsets)),
        "index-huge": (IndexError, "outside table", (weights, tables, changed(indices, 9, 2**62), offsets)),
        "index-narrow": (IndexError, "is -2147483648", (weights, tables, changed(indices.int(), 9, -(2**31)), offsets.int())),
        "offsets-start": (ValueError, "offsets[0] is 1", (weights, tables, indices, changed(offsets, 0, 1))),
        "offsets-fall": (ValueError, "offsets must never fall", (weights, tables, indices, changed(offsets, 3, 0))),
        "offsets-end": (ValueError, "the number of indices", (weights, tables, indices[:-1], offsets)),
        "offsets-length": (ValueError, "3 tables * batch + 1", (weights, tables, indices, offsets[:-1])),
        "offsets-dtype": (ValueError, "one dtype", (weights, tables, indices, offsets.int())),
        "tables-fall": (ValueError, "table_offsets", (weights, changed(tables, 1, 20), indices, offsets)),
        "tables-end": (ValueError, "the number of rows", (weights[:-1], tables, indices, offsets)),
        "tables-none": (ValueError, "at least one table", (weights, tables[:1], indices, offsets)),
        "weights-dtype": (ValueError, "weights must be", (weights.double(), tables, indices, offsets)),
        "weights-rank": (ValueError, "weights must be", (weights[0], tables, indices, offsets)),
        "weights-strided": (ValueError, "contiguous", (weights[:, ::2], tables, indices, offsets)),
        "indices-dtype": (ValueError, "indices must be", (weights, tables, indices.float(), offsets)),
        "indices-rank": (ValueError, "one dimension", (weights, tables, indices[None], offsets)),
        "factors-length": (ValueError, "like indices", (weights, tables, indices, offsets, factors[1:])),
        "factors-dtype": (ValueError, "float32", (weights, tables, indices, offsets, indices)),
    }  # fmt: skip
    for name, (error, words, arguments) in bad.items():
        yield _refused(name, error, words, functools.partial(torch.ops.wheelmark.tbe_forward, *arguments))


def _refused(name: str, error: type[Exception], words: str, attempt: Callable[[], object]) -> Case:
    try:
        attempt()
    except Exception as raised:  # noqa: BLE001 (whatever comes is judged)
        right = type(raised) is error and words in str(raised)
        message = "" if right else f"raised {type(raised).__name__}: {str(raised)[:200]}"
    else:
        right, message = False, "raised nothing"
    return Case(name=f"refusal/{name}", dtype="", passed=right, message=message)
