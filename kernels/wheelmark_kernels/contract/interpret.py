"""Run the kernels' shipped Triton source in Triton's interpreter on CPU tensors, against the float64 reference.

The same source, arguments, grid and compile-time constants as on a card, but no compiled code: it says that the program is right,
not that a compiler or a card is. Needs Triton; exit code 3 without it.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from wheelmark_kernels import launch
from wheelmark_kernels.contract import report
from wheelmark_kernels.contract.report import Case
from wheelmark_kernels.contract.tbe_cases import (
    DTYPES,
    INDEX_DTYPES,
    TbeCase,
    TbeInputs,
    judge,
    make_inputs,
)
from wheelmark_kernels.errors import KernelUnavailable
from wheelmark_kernels.variants import read_code_objects

NARROW: Final = 3
"""Columns: less than one block of them."""
WIDE: Final = 160
"""One block and a part."""
LENGTHS: Final = (1, 0, 9)
"""Bags: empty, one row, and more rows than are read at once. Few and small: the interpreter takes milliseconds for a block."""
TABLE_ROWS: Final = (5, 1, 30)
UNCOMPILED: Final = ({"BLOCK_D": 128, "BLOCK_L": 8},)
"""Constants for a package without code objects (a source tree, a wheel for the CPU)."""

Constants = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: there is nothing to choose."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Check everything and write the report."""
    if importlib.util.find_spec("triton") is None:
        sys.stderr.write("Triton is not installed here, so its interpreter cannot run the kernels\n")
        return report.CANNOT_RUN
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported, below
    cases = []
    for constants in compiled_constants():
        cases += [forward(case, constants) for case in forward_cases()]
        cases += list(bad_values(constants))
    return report.write_cases(
        arguments.report, cases, versions={**report.versions(), "triton": _triton_version()}
    )


def _triton_version() -> str:
    import triton  # noqa: PLC0415 (after TRITON_INTERPRET is set)

    return str(triton.__version__)


def compiled_constants() -> tuple[Constants, ...]:
    """The sets of compile-time constants that the code objects of this package were made with."""
    try:
        variants = read_code_objects().kernels["tbe_forward"]
    except KernelUnavailable as error:
        if not error.may_fall_back:
            raise
        return UNCOMPILED
    sets: list[Constants] = []
    for variant in variants:
        constants = {name: value for name, value in variant.constants.items() if name.isupper()}
        if constants not in sets:
            sets.append(constants)
    return tuple(sets)


def forward_cases() -> Iterator[TbeCase]:
    """Every dtype, index width, weighting and pooling; the wide rows with one index width."""
    for dtype, (indices, dim) in itertools.product(
        DTYPES, [*((name, NARROW) for name in INDEX_DTYPES), ("i64", WIDE)]
    ):
        for weighted, mean in itertools.product((False, True), repeat=2):
            yield TbeCase(
                dtype=dtype,
                indices=indices,
                dim=dim,
                table_rows=TABLE_ROWS,
                lengths=LENGTHS,
                weighted=weighted,
                mean=mean,
            )


def interpreted(inputs: TbeInputs, constants: Constants, *, mean: bool) -> launch.TbeCall:
    """Run the kernel; every element of the result that it does not write stays NaN."""
    from wheelmark_kernels.triton_kernels.tbe_forward import tbe_forward  # noqa: PLC0415 (needs Triton)

    call = launch.tbe_call(*inputs.positional, mean=mean)
    call.out.fill_(math.nan)
    tbe_forward[call.grid(constants)](**call.arguments, **constants)
    return call


def forward(case: TbeCase, constants: Constants) -> Case:
    """Check one result, and that no value was found to be bad."""
    inputs = make_inputs(case)
    call = interpreted(inputs, constants, mean=case.mean)
    if any(call.status.tolist()):
        found = f"good values were reported as bad: status {call.status.tolist()}"
        return Case(name=f"interpret/{case.name}", dtype=case.dtype, passed=False, message=found)
    return judge(case, inputs, call.out, kind="interpret")


def bad_values(constants: Constants) -> Iterator[Case]:
    """Check that bad values are reported, each in its place, and that nothing outside the tables is read.

    The rows of the tables lie within a larger buffer of NaN: a row read from outside would show.
    """
    good = make_inputs(TbeCase(dim=5, table_rows=TABLE_ROWS, lengths=LENGTHS))
    around = torch.full((3 * good.weights.shape[0], 5), math.nan)
    middle = around[good.weights.shape[0] : 2 * good.weights.shape[0]]
    middle.copy_(good.weights)
    # (what is changed, position, value) -> status
    changes: dict[str, tuple[str, int, int, tuple[int, int, int]]] = {
        "index-negative": ("indices", 2, -1, (1, 0, 0)),
        "index-beyond": ("indices", 2, 5, (1, 0, 0)),
        "index-other-table": ("indices", 12, 1, (1, 0, 0)),
        "index-huge": ("indices", 2, 1 << 62, (1, 0, 0)),
        "offsets-start": ("offsets", 0, 1, (0, 1, 0)),
        "offsets-fall": ("offsets", 2, 0, (0, 1, 0)),
        "offsets-beyond": ("offsets", 3, 1 << 40, (0, 1, 0)),
        "offsets-end": ("offsets", -1, int(good.offsets[-1]) - 1, (0, 1, 0)),
        "tables-start": ("table_offsets", 0, -1, (0, 0, 1)),
        "tables-end": ("table_offsets", -1, good.weights.shape[0] + 1, (0, 0, 1)),
    }
    for name, (changed, position, value, expected) in changes.items():
        tensors = {
            "weights": middle,
            "table_offsets": good.table_offsets.clone(),
            "indices": good.indices.clone(),
            "offsets": good.offsets.clone(),
        }
        tensors[changed][position] = value
        call = interpreted(TbeInputs(**tensors, per_sample_weights=None), constants, mean=False)
        found = tuple(call.status.tolist())
        finite = bool(call.out.isfinite().all())
        right = finite and all(bit >= due for bit, due in zip(found, expected, strict=True))
        message = (
            "" if right else f"status {found}, due {expected}; the result is{'' if finite else ' not'} finite"
        )
        yield Case(name=f"interpret/bad-{name}", dtype="fp32", passed=right, message=message)
