"""What the operators must compute, in plain PyTorch: any device, any floating dtype, float64 when a test asks for it.

These functions are the contract's yardstick, the gradient until a faster one is written, and the fallback where no precompiled
object fits. They follow the layout that `wheelmark_kernels.tbe` describes and need no native library.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Lookups:
    """Which row each position of `indices` names, and which bag it belongs to."""

    rows: Tensor  # int64 [N], row of the concatenated tables
    bags: Tensor  # int64 [N], t * B + b
    lengths: Tensor  # [T*B], rows in each bag
    batch: int


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Gradients of the two differentiable arguments; None where none was asked for."""

    weights: Tensor | None  # [R, D], dtype of the weights
    per_sample_weights: Tensor | None  # [N], fp32


def lookups(table_offsets: Tensor, indices: Tensor, offsets: Tensor) -> Lookups:
    """Resolve table-major bags to rows of the concatenated tables.

    Args:
        table_offsets: int64 [T + 1].
        indices: int32 or int64 [N].
        offsets: [T*B + 1].

    Returns:
        The rows, bags and bag lengths.
    """
    tables = table_offsets.shape[0] - 1
    batch = (offsets.shape[0] - 1) // tables
    lengths = offsets.diff().long()
    numbers = torch.arange(tables * batch, device=offsets.device)
    # output_size: without it the length would be read back from the device and torch.compile would have to break the graph
    bags = torch.repeat_interleave(numbers, lengths, output_size=indices.shape[0])
    rows = indices.long() + table_offsets[bags // max(batch, 1)]
    return Lookups(rows=rows, bags=bags, lengths=lengths, batch=batch)


def tbe_forward(
    weights: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None = None,
    *,
    mean: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Pool rows as `wheelmark_kernels.tbe.tbe_forward` does, accumulating in `dtype`.

    Args:
        weights: [R, D].
        table_offsets: int64 [T + 1].
        indices: [N].
        offsets: [T*B + 1].
        per_sample_weights: [N] or None.
        mean: Divide by the number of rows in the bag.
        dtype: Of the arithmetic and the result; ``torch.float64`` makes this the yardstick.

    Returns:
        [B, T*D] of `dtype`.
    """
    found = lookups(table_offsets, indices, offsets)
    values = weights[found.rows].to(dtype)
    if per_sample_weights is not None:
        values = values * per_sample_weights.to(dtype).unsqueeze(1)
    pooled = values.new_zeros((found.lengths.shape[0], weights.shape[1])).index_add(0, found.bags, values)
    if mean:
        pooled = pooled / found.lengths.clamp(min=1).unsqueeze(1)
    tables = table_offsets.shape[0] - 1
    return (
        pooled.view(tables, found.batch, weights.shape[1])
        .transpose(0, 1)
        .reshape(found.batch, tables * weights.shape[1])
    )


def tbe_backward(  # noqa: PLR0917 (gradient, then the operator's schema)
    grad: Tensor,
    weights: Tensor,
    table_offsets: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    *,
    mean: bool,
    weights_needed: bool = True,
    per_sample_weights_needed: bool = True,
) -> Gradients:
    """Gradient of the pooled lookup: for y[b, t] = sum_j p_j * W[r_j] / n, dW[r] = sum over j with r_j = r of p_j * dy / n, dp_j = W[r_j] . dy / n.

    Args:
        grad: [B, T*D], gradient of the result.
        weights: [R, D].
        table_offsets: int64 [T + 1].
        indices: [N].
        offsets: [T*B + 1].
        per_sample_weights: [N] or None.
        mean: As in the forward pass.
        weights_needed: Compute the gradient of the weights.
        per_sample_weights_needed: Compute the gradient of the per-sample weights, if there are any.

    Returns:
        The gradients, summed in fp32 (float64 if `grad` is); repeated rows add up.
    """
    found = lookups(table_offsets, indices, offsets)
    tables, dim = table_offsets.shape[0] - 1, weights.shape[1]
    by_bag = grad.reshape(found.batch, tables, dim).transpose(0, 1).reshape(tables * found.batch, dim)
    if mean:
        by_bag = by_bag / found.lengths.clamp(min=1).unsqueeze(1)
    by_row = by_bag[found.bags]
    weights_grad = None
    if weights_needed:
        scaled = by_row if per_sample_weights is None else by_row * per_sample_weights.unsqueeze(1)
        weights_grad = scaled.new_zeros(weights.shape).index_add(0, found.rows, scaled).to(weights.dtype)
    sample_grad = None
    if per_sample_weights is not None and per_sample_weights_needed:
        sample_grad = (weights[found.rows].to(by_row.dtype) * by_row).sum(dim=1)
    return Gradients(weights=weights_grad, per_sample_weights=sample_grad)
