"""The public function: definitions by hand, gradients, registration, compilation, refusals."""

from __future__ import annotations

import importlib
import re
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the payload's tests need torch")

WEIGHTS = ((1.0, 2.0), (10.0, 20.0), (100.0, 200.0), (3.0, 4.0), (30.0, 40.0))  # tables of 3 and 2 rows
TABLES = (0, 3, 5)
INDICES = (0, 2, 0, 1, 1, 0, 1)
OFFSETS = (0, 2, 2, 3, 6, 6, 7)  # table 0: [0, 2] [] [0]; table 1: [1, 1, 0] [] [1]


def example(dtype: Any = None, index_dtype: Any = None) -> tuple[Any, Any, Any, Any]:
    return (
        torch.tensor(WEIGHTS, dtype=dtype or torch.float32),
        torch.tensor(TABLES),
        torch.tensor(INDICES, dtype=index_dtype or torch.int64),
        torch.tensor(OFFSETS, dtype=index_dtype or torch.int64),
    )


FACTORS = (1.0, -1.0, 2.0, 1.0, 0.5, 10.0, 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_sum_mean_and_weights_by_hand(payload: ModuleType, dtype: Any, index_dtype: Any) -> None:
    arguments = example(dtype, index_dtype)
    plain = payload.tbe_forward(*arguments)
    assert plain.dtype == torch.float32
    assert plain.tolist() == [[101, 202, 63, 84], [0, 0, 0, 0], [1, 2, 30, 40]]
    mean = payload.tbe_forward(*arguments, mode="mean")
    assert mean.tolist() == [[50.5, 101, 21, 28], [0, 0, 0, 0], [1, 2, 30, 40]]
    weighted = payload.tbe_forward(*arguments, torch.tensor(FACTORS))
    assert weighted.tolist() == [[-99, -198, 75, 100], [0, 0, 0, 0], [2, 4, 0, 0]]
    both = payload.tbe_forward(*arguments, torch.tensor(FACTORS), mode="mean")  # by rows, not by weights
    assert both.tolist() == [[-49.5, -99, 25, pytest.approx(100 / 3)], [0, 0, 0, 0], [2, 4, 0, 0]]


def test_equals_embedding_bag(payload: ModuleType) -> None:
    weights, indices = torch.randn(50, 24), torch.randint(0, 50, (90,))
    offsets = torch.tensor([0, 10, 10, 55, 90])
    for mode in ("sum", "mean"):
        expected = torch.nn.functional.embedding_bag(
            indices, weights, offsets, mode=mode, include_last_offset=True
        )
        found = payload.tbe_forward(weights, torch.tensor([0, 50]), indices, offsets, mode=mode)
        torch.testing.assert_close(found, expected)


def test_strided_indices_are_read_in_order(payload: ModuleType) -> None:
    weights, tables, indices, offsets = example()
    spread = torch.stack([indices, torch.full_like(indices, 10**6)], dim=1)[:, 0]
    factors = torch.stack([torch.tensor(FACTORS), torch.zeros(7)], dim=1)[:, 0]
    assert not spread.is_contiguous()
    found = payload.tbe_forward(weights, tables, spread, offsets, factors)
    assert torch.equal(found, payload.tbe_forward(weights, tables, indices, offsets, torch.tensor(FACTORS)))


def test_a_table_is_a_view_and_rows_may_be_infinite(payload: ModuleType) -> None:
    weights, _, _, _ = example()
    weights[0, 0], weights[1, 1] = torch.inf, torch.nan
    part = weights[:2]
    found = payload.tbe_forward(part, torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([0, 1, 2]))
    assert found[0].tolist() == [torch.inf, 2]
    assert found[1, 1].isnan()


def test_gradients_by_hand(payload: ModuleType) -> None:
    weights, tables, indices, offsets = example()
    weights.requires_grad_()
    factors = torch.tensor(FACTORS, requires_grad=True)
    payload.tbe_forward(weights, tables, indices, offsets, factors, mode="mean").sum().backward()
    per_row = [
        0.5 + 2,
        0,
        -0.5,
        10 / 3,
        1.5 / 3,
    ]  # row 0 is in two bags of table 0; row 1 of table 1 twice in one bag
    assert weights.grad.tolist() == [[pytest.approx(g)] * 2 for g in per_row]
    assert factors.grad.tolist() == pytest.approx([1.5, 150, 3, 70 / 3, 70 / 3, 7 / 3, 70])


@pytest.mark.parametrize(("weights_wanted", "factors_wanted"), [(True, False), (False, True)])
def test_only_what_is_asked_for_has_a_gradient(
    payload: ModuleType, weights_wanted: bool, factors_wanted: bool
) -> None:
    weights, tables, indices, offsets = example(torch.float16)
    weights.requires_grad_(weights_wanted)
    factors = torch.tensor(FACTORS, requires_grad=factors_wanted)
    payload.tbe_forward(weights, tables, indices, offsets, factors).sum().backward()
    assert (weights.grad is not None) == weights_wanted
    assert (factors.grad is not None) == factors_wanted
    if weights_wanted:
        assert weights.grad.dtype == torch.float16


def test_the_operator_is_registered_soundly(payload: ModuleType) -> None:
    assert payload.cpu_dispatch() in {"scalar", "avx2", "avx512"}
    cases = importlib.import_module("wheelmark_kernels.contract.tbe_cases")
    for case in (
        cases.TbeCase(dim=5),
        cases.TbeCase(dtype="bf16", indices="i32", weighted=True, mean=True),
        cases.TbeCase(lengths=(), weighted=True),
    ):
        inputs = cases.make_inputs(case)
        inputs.weights.requires_grad_()
        if inputs.per_sample_weights is not None:
            inputs.per_sample_weights.requires_grad_()
        torch.library.opcheck(
            torch.ops.wheelmark.tbe_forward.default,
            (*inputs.positional, case.mean),
            rtol=1e-2 if case.dtype == "bf16" else None,
            atol=1e-2 if case.dtype == "bf16" else None,
        )


@pytest.mark.parametrize(
    ("backend", "dynamic"), [("aot_eager", False), ("aot_eager", True), ("inductor", True)]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_compiles_as_one_graph(payload: ModuleType, backend: str, dynamic: bool) -> None:
    torch.compiler.reset()

    def model(weights: Any, factors: Any, tables: Any, indices: Any, offsets: Any) -> Any:
        pooled = payload.tbe_forward(weights * 2, tables, indices, offsets, factors, mode="mean")
        return torch.relu(pooled) + pooled

    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic)
    for index_count in (7, 6):
        results = []
        for function in (model, compiled):
            weights, tables, indices, offsets = example()
            indices, offsets = indices[:index_count], offsets.clamp(max=index_count)
            weights.requires_grad_()
            factors = torch.tensor(FACTORS[:index_count], requires_grad=True)
            result = function(weights, factors, tables, indices, offsets)
            result.square().sum().backward()
            results.append((result, weights.grad, factors.grad))
        for eager, fast in zip(*results, strict=True):
            torch.testing.assert_close(fast, eager)


def test_a_wrong_call_is_refused_while_it_is_compiled(payload: ModuleType) -> None:
    weights, tables, indices, offsets = example()
    compiled = torch.compile(payload.tbe_forward, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="tables \\* batch"):
        compiled(weights, tables, indices, offsets[:-1])


REFUSALS = {
    "mode": (ValueError, "mode must be", {"mode": "max"}),
    "weights-dtype": (TypeError, "not torch.float64", {"weights": torch.zeros(5, 2, dtype=torch.float64)}),
    "weights-rank": (ValueError, "not [10]", {"weights": torch.zeros(10)}),
    "weights-no-columns": (ValueError, "dim at least 1", {"weights": torch.zeros(5, 0)}),
    "weights-strides": (ValueError, "contiguous", {"weights": torch.zeros(2, 5).t()}),
    "tables-dtype": (TypeError, "table_offsets.long()", {"table_offsets": torch.tensor(TABLES).int()}),
    "tables-rank": (ValueError, "at least one table", {"table_offsets": torch.tensor([0])}),
    "tables-end": (ValueError, "the number of rows, 5", {"table_offsets": torch.tensor([0, 3, 6])}),
    "indices-dtype": (TypeError, "int32 or int64", {"indices": torch.zeros(7)}),
    "indices-rank": (ValueError, "one dimension", {"indices": torch.tensor([INDICES])}),
    "index": (IndexError, "indices[4] is 2, outside table 1, which has 2 rows", {"indices": torch.tensor((0, 2, 0, 1, 2, 0, 1))}),
    "offsets-dtype": (TypeError, "one dtype", {"offsets": torch.tensor(OFFSETS).int()}),
    "offsets-length": (ValueError, "[2 tables * batch + 1], not [6]", {"offsets": torch.tensor(OFFSETS[:-1])}),
    "offsets-fall": (ValueError, "offsets[3] is 1, less than the 2 before it", {"offsets": torch.tensor((0, 2, 2, 1, 6, 6, 7))}),
    "offsets-end": (ValueError, "is 6: it must be the number of indices, 7", {"offsets": torch.tensor((0, 2, 2, 3, 6, 6, 6))}),
    "factors-dtype": (TypeError, "use .float()", {"per_sample_weights": torch.zeros(7, dtype=torch.float64)}),
    "factors-length": (ValueError, "must be [7] like indices, not [6]", {"per_sample_weights": torch.zeros(6)}),
    "device": (ValueError, "indices is on meta and weights on cpu", {"indices": torch.zeros(7, dtype=torch.int64, device="meta")}),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_is_refused(payload: ModuleType, name: str) -> None:
    error, words, change = REFUSALS[name]
    weights, tables, indices, offsets = example()
    good = {"weights": weights, "table_offsets": tables, "indices": indices, "offsets": offsets}
    payload.tbe_forward(**good)
    with pytest.raises(error, match=re.escape(words)):
        payload.tbe_forward(**{**good, **change})


def test_the_reported_index_is_the_first_whatever_the_threads(payload: ModuleType) -> None:
    weights, indices = torch.zeros(1000, 64), torch.zeros(20_000, dtype=torch.int64)
    indices[7_000], indices[19_999] = 5_000, -3
    offsets = torch.arange(0, 20_001, 20)
    for threads in (1, 2, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with pytest.raises(IndexError, match=re.escape("indices[7000] is 5000, outside table 0")):
                payload.tbe_forward(weights, torch.tensor([0, 1000]), indices, offsets)
        finally:
            torch.set_num_threads(before)
