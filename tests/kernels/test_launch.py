"""Launching from Python: errors with their reasons, the fallback, and bad values; the driver's part is in test_launch_contract."""

from __future__ import annotations

import hashlib
import importlib
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch


@pytest.fixture
def launch(payload: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module(f"{payload.__name__}.launch")
    monkeypatch.delenv("WHEELMARK_KERNELS_FALLBACK", raising=False)
    module._warn_once.cache_clear()
    return module


def lookup(**changes: Any) -> dict[str, torch.Tensor]:
    return {
        "weights": torch.arange(12.0).view(6, 2),
        "table_offsets": torch.tensor([0, 2, 6]),
        "indices": torch.tensor([0, 1, 3, 0]),
        "offsets": torch.tensor([0, 1, 2, 4, 4]),
        **changes,
    }


def unavailable(monkeypatch: pytest.MonkeyPatch, launch: ModuleType, reason: str) -> None:
    def none() -> None:
        raise launch.KernelUnavailable("there is nothing to launch", reason=reason)

    monkeypatch.setattr(launch, "_launcher", none)


def test_without_a_fallback_it_is_an_error(launch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    unavailable(monkeypatch, launch, "driver-missing")
    with pytest.raises(RuntimeError, match=r"\[driver-missing\] there is nothing to launch") as caught:
        launch.tbe_forward(**lookup())
    assert "WHEELMARK_KERNELS_FALLBACK=1" in str(caught.value)


@pytest.mark.parametrize("mean", [False, True])
def test_the_fallback_gives_the_reference_and_warns_once(
    launch: ModuleType, payload: ModuleType, monkeypatch: pytest.MonkeyPatch, mean: bool
) -> None:
    unavailable(monkeypatch, launch, "arch")
    monkeypatch.setenv("WHEELMARK_KERNELS_FALLBACK", "1")
    with pytest.warns(RuntimeWarning, match=r"plain PyTorch runs .* \[arch\]"):
        found = launch.tbe_forward(**lookup(), mean=mean)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = launch.tbe_forward(**lookup(), mean=mean)
    due = payload.tbe_forward(**lookup(), mode="mean" if mean else "sum")
    assert torch.equal(found, due)
    assert torch.equal(again, due)


@pytest.mark.parametrize("value", ["", "0", "yes", "true"])
def test_only_1_allows_the_fallback(launch: ModuleType, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    unavailable(monkeypatch, launch, "arch")
    monkeypatch.setenv("WHEELMARK_KERNELS_FALLBACK", value)
    with pytest.raises(RuntimeError, match=r"\[arch\]"):
        launch.tbe_forward(**lookup())


@pytest.mark.parametrize("reason", ["digest", "manifest", "object-missing"])
def test_no_fallback_hides_changed_files(
    launch: ModuleType, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    unavailable(monkeypatch, launch, reason)
    monkeypatch.setenv("WHEELMARK_KERNELS_FALLBACK", "1")
    with pytest.raises(RuntimeError, match=rf"\[{reason}\]") as caught:
        launch.tbe_forward(**lookup())
    assert "install the wheel again" in str(caught.value)


BAD = {
    "negative": {"indices": torch.tensor([0, -1, 3, 0])},
    "beyond": {"indices": torch.tensor([0, 2, 3, 0])},
    "second-table": {"indices": torch.tensor([0, 1, 4, 0])},
    "int32": {
        "indices": torch.tensor([0, 1, -(2**31), 0], dtype=torch.int32),
        "offsets": torch.tensor([0, 1, 2, 4, 4], dtype=torch.int32),
    },
    "start": {"offsets": torch.tensor([1, 1, 2, 4, 4])},
    "fall": {"offsets": torch.tensor([0, 3, 2, 4, 4])},
    "end": {"offsets": torch.tensor([0, 1, 2, 3, 3])},
    "beyond-end": {"offsets": torch.tensor([0, 1, 2, 4, 1 << 40])},
    "table-start": {"table_offsets": torch.tensor([1, 2, 6])},
    "table-fall": {"table_offsets": torch.tensor([0, 7, 6])},
    "table-end": {"table_offsets": torch.tensor([0, 2, 7])},
    "no-bags": {"offsets": torch.tensor([0])},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_values_are_refused_in_the_words_of_the_cpu_operator(
    launch: ModuleType, payload: ModuleType, name: str
) -> None:
    bad = lookup(**BAD[name])
    with pytest.raises((ValueError, IndexError)) as due:
        payload.tbe_forward(**bad)
    with pytest.raises(type(due.value)) as found:
        launch.check_values(bad["weights"].shape[0], bad["table_offsets"], bad["indices"], bad["offsets"])
    assert str(found.value).splitlines()[0] == str(due.value).splitlines()[0]


def test_good_values_pass(launch: ModuleType) -> None:
    good = lookup()
    launch.check_values(6, good["table_offsets"], good["indices"], good["offsets"])


def test_the_fallback_checks_values_first(launch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    unavailable(monkeypatch, launch, "arch")
    monkeypatch.setenv("WHEELMARK_KERNELS_FALLBACK", "1")
    with (
        pytest.warns(RuntimeWarning, match="plain PyTorch"),
        pytest.raises(IndexError, match="outside table 0"),
    ):
        launch.tbe_forward(**lookup(indices=torch.tensor([0, 9, 3, 0])))


def test_no_bags_need_no_driver(launch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    unavailable(monkeypatch, launch, "driver-missing")
    empty = lookup(indices=torch.tensor([], dtype=torch.int64), offsets=torch.tensor([0]))
    assert launch.tbe_forward(**empty).shape == (0, 4)


# ---- the library's own functions ----


def image(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def register(payload: ModuleType, content: bytes, **changes: Any) -> int:
    arguments: dict[str, Any] = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "backend": "cuda",
        "arch": "sm90",
        "entry": "kernel",
        "layout": "pointer,i32",
        "scratch": 2,
        "threads": 32,
        "shared": 0,
        **changes,
    }
    return int(torch.ops.wheelmark.code_object(image(content), *arguments.values()))


@pytest.mark.parametrize("size", [64, 65, 118, 119, 120, 127, 128, 129, 1000, 65_536])
def test_the_digest_is_sha256(payload: ModuleType, size: int) -> None:
    content = bytes(number * 7 % 251 for number in range(size))
    assert register(payload, content) > 0
    with pytest.raises(RuntimeError, match=r"\[wheelmark:digest\]"):
        register(payload, content[:-1] + b"\0", sha256=hashlib.sha256(content).hexdigest())


def test_equal_objects_have_one_handle(payload: ModuleType) -> None:
    content = bytes(range(100))
    first = register(payload, content)
    assert register(payload, content) == first
    assert register(payload, content, threads=64) != first
    assert register(payload, content, layout="pointer,i64") != first


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sha256": "0" * 64}, "digest"),
        ({"sha256": ""}, "digest"),
        ({"backend": "xpu"}, "arguments"),
        ({"entry": ""}, "manifest"),
        ({"layout": "pointer,fp16"}, "manifest"),
        ({"layout": "pointer,,i32"}, "manifest"),
        ({"layout": ",".join(["i32"] * 600)}, "manifest"),
        ({"threads": 0}, "manifest"),
        ({"threads": 1025}, "manifest"),
        ({"shared": -1}, "manifest"),
        ({"shared": 1 << 40}, "manifest"),
        ({"scratch": -1}, "manifest"),
        ({"scratch": 9}, "manifest"),
    ],
)
def test_what_is_no_code_object(payload: ModuleType, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RuntimeError, match=rf"\[wheelmark:{reason}\]"):
        register(payload, bytes(range(100)), **changes)


def test_an_image_is_bytes_on_the_cpu(payload: ModuleType) -> None:
    content = bytes(range(128))
    digest = hashlib.sha256(content).hexdigest()
    rest = (digest, "cuda", "sm90", "kernel", "pointer", 2, 32, 0)
    for wrong in (image(content).view(2, 64), image(content).view(torch.int32), image(content * 2)[::2]):
        with pytest.raises(RuntimeError, match=r"\[wheelmark:arguments\]"):
            torch.ops.wheelmark.code_object(wrong, *rest)


def test_the_bytes_are_kept_whatever_becomes_of_the_tensor(payload: ModuleType) -> None:
    content = bytes(range(128))
    digest = hashlib.sha256(content).hexdigest()
    rest = (digest, "cuda", "sm90", "kernel", "pointer", 2, 32, 0)
    tensor = image(content)
    first = torch.ops.wheelmark.code_object(tensor, *rest)
    tensor.zero_()
    with pytest.raises(RuntimeError, match=r"\[wheelmark:digest\]"):
        torch.ops.wheelmark.code_object(tensor, *rest)
    assert torch.ops.wheelmark.code_object(image(content), *rest) == first


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"handle": 10**6}, "no code object with handle"),
        ({"handle": 0}, "no code object with handle"),
        ({"handle": -1}, "no code object with handle"),
        ({"arguments": [1]}, "takes 2 arguments, 1 were given"),
        ({"arguments": [1, 1 << 31]}, "does not fit 4 bytes"),
        ({"arguments": [1, -(1 << 31) - 1]}, "does not fit 4 bytes"),
        ({"scratch": [0]}, "takes 2 scratch pointers"),
        ({"grid": [1, 1]}, "three numbers"),
        ({"grid": [1, 0, 1]}, "on axis 1"),
        ({"grid": [1, 65_536, 1]}, "on axis 1"),
        ({"grid": [1, 1, -5]}, "on axis 2"),
        ({"device": -1}, "no device -1"),
        ({"device": 1 << 40}, "no device"),
    ],
)
def test_what_cannot_be_launched(payload: ModuleType, arguments: dict[str, Any], words: str) -> None:
    handle = register(payload, bytes(range(100)))
    call = {
        "handle": handle, "device": 0, "grid": [1, 1, 1], "stream": 0, "arguments": [0, 1], "scratch": [], **arguments,
    }  # fmt: skip
    with pytest.raises(RuntimeError, match=words):
        torch.ops.wheelmark.launch(*call.values())


def test_no_driver_is_an_exception(
    payload: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WHEELMARK_DRIVER_LIBRARY", str(tmp_path / "absent.so"))
    for backend in ("cuda", "rocm"):
        for attempt in (torch.ops.wheelmark.device_count, torch.ops.wheelmark.driver_version):
            with pytest.raises(RuntimeError, match=r"\[wheelmark:driver-missing\].*absent\.so"):
                attempt(backend)
        with pytest.raises(RuntimeError, match=r"\[wheelmark:driver-missing\]"):
            torch.ops.wheelmark.device_arch(backend, 0)
    with pytest.raises(RuntimeError, match=r"\[wheelmark:arguments\]"):
        torch.ops.wheelmark.device_count("xpu")
