"""Pooled table-batched embedding forward: one call looks up and pools the rows of several tables.

The operator ``wheelmark::tbe_forward`` is defined and implemented for the CPU in ``_native.so`` (csrc/registration.cpp). This
module is its face: the public function, the checks that Python can make before anything runs, the shape function for
``torch.compile`` and the gradient. Layout of the arguments (after FBGEMM's table-batched embeddings):

    weights             [R, D]     all rows of all tables, table after table; fp32, fp16 or bf16; contiguous
    table_offsets       [T + 1]    int64; table t is weights[table_offsets[t]:table_offsets[t + 1]]; from 0 to R, never falling
    indices             [N]        int32 or int64; a row *within its table*; bags of table 0 first, then those of table 1, ...
    offsets             [T*B + 1]  dtype of indices; bag b of table t is indices[offsets[t*B + b]:offsets[t*B + b + 1]];
                                   from 0 to N, never falling
    per_sample_weights  [N] fp32   a factor for each looked-up row, or None
    returns             [B, T*D]   fp32; table t of bag b is [b, t*D:(t + 1)*D]

Rows are summed in fp32 in the order of the bag; an empty bag gives zeros. With ``mean`` the sum, weighted or not, is divided by the
number of rows in the bag (not by the sum of the weights), as FBGEMM does.

One two-dimensional buffer and row offsets, rather than a list of tensors: a list does not pass the stable ABI's boxed calls
without a copy, one buffer is one parameter with one gradient and one optimizer state, a table is still a view
(``weights[a:b]``), and it is what a kernel wants: one base pointer and one compile-time row length. Tables of different D
are one call for each D.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import torch
from torch import Tensor

from wheelmark_kernels import reference

WEIGHT_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)
INDEX_DTYPES: Final = (torch.int32, torch.int64)
MODES: Final = ("sum", "mean")


def tbe_forward(
    weights: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None = None,
    *,
    mode: Literal["sum", "mean"] = "sum",
) -> Tensor:
    """Look up and pool the rows of T tables for B bags each; shapes and layout are in the module's docstring.

    Differentiable in ``weights`` (a dense gradient of its dtype, summed in fp32) and in ``per_sample_weights``. Works under
    ``torch.compile(fullgraph=True)``.

    Args:
        weights: fp32, fp16 or bf16 [R, D], contiguous.
        table_offsets: int64 [T + 1].
        indices: int32 or int64 [N].
        offsets: [T*B + 1], dtype of ``indices``.
        per_sample_weights: fp32 [N] or None.
        mode: ``"sum"``, or ``"mean"`` (divided by the number of rows in the bag).

    Returns:
        fp32 [B, T*D] on the device of ``weights``.

    Raises:
        TypeError: An argument's dtype is not one of those above.
        ValueError: Shapes that do not fit, tensors on several devices, offsets that do not run from 0 to the end without falling.
        IndexError: An index outside its table. On a GPU, where the values are not read before the launch, the launcher says how
            a bad value is reported; memory outside the tables is never read.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be 'sum' or 'mean', not {mode!r}")
    check_arguments(weights, table_offsets, indices, offsets, per_sample_weights)
    result: Tensor = torch.ops.wheelmark.tbe_forward(
        weights, table_offsets, indices, offsets, per_sample_weights, mode == "mean"
    )
    return result


def check_arguments(
    weights: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
) -> None:
    """Check what can be known without reading values: ranks, dtypes, devices, lengths.

    Raises:
        TypeError: A wrong dtype.
        ValueError: A wrong rank or length, weights that are not contiguous, or several devices.
    """
    _check_dtypes(weights, table_offsets, indices, offsets, per_sample_weights)
    _check_shapes(weights, table_offsets, indices, offsets, per_sample_weights)
    others = {
        "table_offsets": table_offsets,
        "indices": indices,
        "offsets": offsets,
        "per_sample_weights": per_sample_weights,
    }
    for name, tensor in others.items():
        if tensor is not None and tensor.device != weights.device:
            raise ValueError(
                f"{name} is on {tensor.device} and weights on {weights.device}: move them to one device"
            )


def _check_dtypes(
    weights: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
) -> None:
    if weights.dtype not in WEIGHT_DTYPES:
        raise TypeError(
            f"weights must be float32, float16 or bfloat16, not {weights.dtype}: convert the tables once, before use"
        )
    if table_offsets.dtype != torch.int64:
        raise TypeError(f"table_offsets must be int64, not {table_offsets.dtype}: use table_offsets.long()")
    if indices.dtype not in INDEX_DTYPES:
        raise TypeError(f"indices must be int32 or int64, not {indices.dtype}")
    if offsets.dtype != indices.dtype:
        raise TypeError(
            f"offsets and indices must have one dtype, not {offsets.dtype} and {indices.dtype}: convert one of them"
        )
    if per_sample_weights is not None and per_sample_weights.dtype != torch.float32:
        raise TypeError(f"per_sample_weights must be float32, not {per_sample_weights.dtype}: use .float()")


def _check_shapes(
    weights: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
) -> None:
    if weights.dim() != 2 or weights.shape[1] == 0:  # noqa: PLR2004 (rows and columns)
        raise ValueError(f"weights must be [rows, dim] with dim at least 1, not {_shape(weights)}")
    if not weights.is_contiguous():
        raise ValueError(
            f"weights must be contiguous, not of strides {tuple(weights.stride())}: call .contiguous() once, before use"
        )
    if table_offsets.dim() != 1 or table_offsets.shape[0] < 2:  # noqa: PLR2004 (a start and an end)
        raise ValueError(
            f"table_offsets must be [tables + 1] with at least one table, not {_shape(table_offsets)}"
        )
    if indices.dim() != 1:
        raise ValueError(
            f"indices must have one dimension, not {_shape(indices)}: concatenate the bags, table after table"
        )
    tables = table_offsets.shape[0] - 1
    if offsets.dim() != 1 or offsets.shape[0] < 1 or (offsets.shape[0] - 1) % tables != 0:
        raise ValueError(f"offsets must be [{tables} tables * batch + 1], not {_shape(offsets)}")
    if per_sample_weights is not None and per_sample_weights.shape != indices.shape:
        raise ValueError(
            f"per_sample_weights must be {_shape(indices)} like indices, not {_shape(per_sample_weights)}"
        )


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))


def _fake(  # noqa: PLR0917 (the operator's schema)
    weights: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None = None,
    mean: bool = False,  # noqa: FBT001, FBT002
) -> Tensor:
    del mean
    check_arguments(weights, table_offsets, indices, offsets, per_sample_weights)
    tables = table_offsets.shape[0] - 1
    batch = (offsets.shape[0] - 1) // tables
    return weights.new_empty((batch, tables * weights.shape[1]), dtype=torch.float32)


def _cuda(  # noqa: PLR0917 (the operator's schema)
    weights: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None = None,
    mean: bool = False,  # noqa: FBT001, FBT002
) -> Tensor:
    """Launch the precompiled object; the dispatch key of NVIDIA and AMD cards is the same."""
    from wheelmark_kernels import launch  # noqa: PLC0415 (a machine without a card never needs it)

    check_arguments(weights, table_offsets, indices, offsets, per_sample_weights)
    return launch.tbe_forward(
        weights,
        table_offsets,
        indices.contiguous(),
        offsets.contiguous(),
        None if per_sample_weights is None else per_sample_weights.contiguous(),
        mean=mean,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    *tensors, ctx.mean = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None, Tensor | None, None]:
    weights, table_offsets, indices, offsets, per_sample_weights = ctx.saved_tensors
    # The dispatcher leaves out trailing arguments that have their default, here and only here.
    needed = (*ctx.needs_input_grad, False)[:5]
    gradients = reference.tbe_backward(
        grad,
        weights,
        table_offsets,
        indices,
        offsets,
        per_sample_weights,
        mean=ctx.mean,
        weights_needed=needed[0],
        per_sample_weights_needed=needed[4],
    )
    return gradients.weights, None, None, None, gradients.per_sample_weights, None


torch.library.register_fake("wheelmark::tbe_forward", _fake)
torch.library.impl("wheelmark::tbe_forward", "CUDA", _cuda)
torch.library.register_autograd("wheelmark::tbe_forward", _backward, setup_context=_setup_context)
