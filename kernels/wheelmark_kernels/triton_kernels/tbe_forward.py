"""Pooled table-batched embedding forward: one kernel body for NVIDIA and AMD cards.

One program reduces one block of ``BLOCK_D`` columns of one bag: it walks the bag in blocks of ``BLOCK_L``
rows, sums them in fp32 in an order that depends on nothing but the bag, and stores once. No atomics, so two
runs give the same bits.

A row that is not in its table is never read. It is reported in ``status``, which every program that finds
one sets to the same value: the order of the writes does not matter.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tbe_forward(
    out,
    weights,
    table_offsets,
    indices,
    offsets,
    per_sample_weights,
    status,
    num_rows,
    num_indices,
    batch,
    dim,
    mean,
    BLOCK_D: tl.constexpr,
    BLOCK_L: tl.constexpr,
):
    """Reduce bag ``program_id(0)`` (table-major), columns ``program_id(1) * BLOCK_D`` onwards.

    Args:
        out: fp32 ``(batch, tables * dim)``, contiguous.
        weights: fp32, fp16 or bf16 rows of all tables one after the other, ``(num_rows, dim)``, contiguous.
        table_offsets: int64 ``(tables + 1,)``: table ``t`` owns rows ``table_offsets[t]`` up to, not
            including, ``table_offsets[t + 1]``.
        indices: int32 or int64 ``(num_indices,)``: rows within their table.
        offsets: ``(tables * batch + 1,)``, of the indices' type: bag ``t * batch + b`` owns the indices
            from ``offsets[t * batch + b]`` up to the next offset.
        per_sample_weights: fp32 ``(num_indices,)``, or None: every row counts once.
        status: int32 ``(3,)``, zero before the launch. ``status[0]`` becomes 1 where an index is outside
            its table, ``status[1]`` where the offsets do not run from 0 to ``num_indices`` without a step
            back, ``status[2]`` where the table offsets do not run so from 0 to ``num_rows``.
        num_rows: Rows of all tables.
        num_indices: Number of indices.
        batch: Bags of one table.
        dim: Columns of a row.
        mean: 0: sum. 1: the (weighted) sum divided by the number of rows in the bag; an empty bag gives 0.
        BLOCK_D: Columns of one program; a power of two.
        BLOCK_L: Rows read at once; a power of two.
    """
    bag = tl.program_id(0).to(tl.int64)
    table = bag // batch
    last_bag = tl.num_programs(0) - 1

    row_begin = tl.load(table_offsets + table)
    row_end = tl.load(table_offsets + table + 1)
    no_table = (row_begin < 0) | (row_end < row_begin) | (row_end > num_rows)
    no_table = no_table | ((bag == 0) & (row_begin != 0)) | ((bag == last_bag) & (row_end != num_rows))
    tl.store(status + 2, 1, mask=no_table)
    rows = tl.where(no_table, 0, row_end - row_begin)

    begin = tl.load(offsets + bag).to(tl.int64)
    end = tl.load(offsets + bag + 1).to(tl.int64)
    broken = (begin < 0) | (end < begin) | (end > num_indices)
    broken = broken | ((bag == 0) & (begin != 0)) | ((bag == last_bag) & (end != num_indices))
    tl.store(status + 1, 1, mask=broken)
    # Offsets that cannot be trusted bound nothing: such a bag is taken as empty, such a table has no rows.
    end = tl.where(broken, begin, end)

    column = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    column_mask = column < dim
    total = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for start in range(begin, end, BLOCK_L):
        position = start + tl.arange(0, BLOCK_L)
        in_bag = position < end
        index = tl.load(indices + position, mask=in_bag, other=0).to(tl.int64)
        in_table = (index >= 0) & (index < rows)
        outside = in_bag & (in_table == 0)
        tl.store(status + tl.zeros((BLOCK_L,), dtype=tl.int64), 1, mask=outside)
        row_mask = in_bag & in_table
        row = tl.load(
            weights + (row_begin + index)[:, None] * dim + column[None, :],
            mask=row_mask[:, None] & column_mask[None, :],
            other=0.0,
        ).to(tl.float32)
        if per_sample_weights is not None:
            factor = tl.load(per_sample_weights + position, mask=row_mask, other=0.0)
            row = row * factor[:, None]
        total += tl.sum(row, axis=0)
    if mean != 0:
        total = total / tl.maximum(end - begin, 1).to(tl.float32)
    # batch-major: the tables of one sample lie side by side
    sample = bag - table * batch
    tables = tl.num_programs(0) // batch
    tl.store(out + (sample * tables + table) * dim + column, total, mask=column_mask)
