"""Streaming copies: the same bytes as any other copy, nothing beside them, and nobody needs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker import DataLoader
from stoker.slots import streaming

built = pytest.mark.skipif(streaming._library() is None, reason="streaming.c was not compiled on this machine")
NOT_BUILT = Path("no-such-library.so")


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(streaming, "LIBRARY", NOT_BUILT)
    streaming._library.cache_clear()
    yield
    streaming._library.cache_clear()


@built
@given(st.integers(1, 9), st.integers(1, 700), st.integers(0, 130), st.integers(0, 130), st.integers(0, 2**32 - 1))
def test_rows_of_any_length_and_alignment_are_copied_and_nothing_beside_them(
    rows: int, row_bytes: int, from_offset: int, to_offset: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    source = rng.integers(0, 256, from_offset + rows * row_bytes, np.uint8)[from_offset:].reshape(rows, row_bytes)
    chosen = rng.integers(0, rows, rows)
    memory = np.full(to_offset + rows * row_bytes + 64, 7, np.uint8)
    target = memory[to_offset : to_offset + rows * row_bytes]
    streaming.stream_rows((source.ctypes.data + chosen * row_bytes).astype(np.uintp), target)
    assert np.array_equal(target.reshape(rows, row_bytes), source[chosen])
    assert (memory[:to_offset] == 7).all()
    assert (memory[to_offset + rows * row_bytes :] == 7).all()


@built
def test_only_large_rows_of_large_batches_are_streamed() -> None:
    row, batch = streaming.LEAST_ROW_BYTES, streaming.LEAST_BATCH_BYTES
    assert streaming.pays_to_stream(row, batch // row)
    assert not streaming.pays_to_stream(row, batch // row - 1)
    assert not streaming.pays_to_stream(row - 1, batch)


def test_without_the_library_nothing_is_streamed(without_library: None) -> None:
    assert not streaming.pays_to_stream(1 << 30, 1)


def test_a_file_that_is_no_library_counts_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "_streaming.so").write_bytes(b"not for this machine")
    monkeypatch.setattr(streaming, "LIBRARY", tmp_path / "_streaming.so")
    streaming._library.cache_clear()
    try:
        assert not streaming.pays_to_stream(1 << 30, 1)
    finally:
        streaming._library.cache_clear()


class Rows(torch.utils.data.Dataset[Any]):
    """Samples of one kind, each 64 KiB or so, distinguishable."""

    def __init__(self, kind: str) -> None:
        self.kind, self.numbers = kind, np.arange(200 * 16 * 1024, dtype=np.float32).reshape(200, 16, 1024)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Any:
        array = self.numbers[index]
        tensor = torch.from_numpy(array)
        kinds: dict[str, Any] = {
            "array": array,
            "tensor": tensor,
            "both": {"image": tensor, "mask": array, "label": index},
            "strided": tensor.t(),
            "fortran": np.asfortranarray(array),
            "negated": torch._neg_view(tensor),
            "conjugated": torch.complex(tensor, tensor).conj(),
            "bfloat16": tensor.bfloat16(),
        }
        return kinds[self.kind]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)


@pytest.mark.parametrize("kind", ["array", "tensor", "both", "strided", "fortran", "negated", "conjugated", "bfloat16"])
@pytest.mark.parametrize("workers", [0, 2])
def test_large_batches_equal_torchs(kind: str, workers: int) -> None:
    dataset = Rows(kind)
    theirs = torch.utils.data.DataLoader(dataset, batch_size=150)
    assert all(map(same, DataLoader(dataset, batch_size=150, num_workers=workers), theirs))


@pytest.mark.parametrize("workers", [0, 2])
def test_large_gathered_batches_equal_torchs(workers: int) -> None:
    images = torch.arange(200 * 16 * 1024, dtype=torch.float32).reshape(200, 16, 1024)
    for tensors in (
        (images, torch.arange(200)),
        (images.transpose(1, 2),),
        (images.transpose(0, 1)[:16].transpose(0, 1),),
    ):
        dataset = torch.utils.data.TensorDataset(*tensors)
        order = torch.randperm(200, generator=torch.Generator().manual_seed(5)).tolist()
        ours = DataLoader(dataset, batch_size=150, sampler=order, num_workers=workers)
        theirs = torch.utils.data.DataLoader(dataset, batch_size=150, sampler=order)
        for left, right in zip(ours, theirs, strict=True):
            assert all(map(same, left, right))


def collate_whole(samples: Any) -> Any:
    return {"image": torch.stack([torch.as_tensor(sample) for sample in samples]), "count": len(samples)}


def test_large_batches_of_an_own_collate_arrive_whole() -> None:
    dataset = Rows("array")
    batches = list(DataLoader(dataset, batch_size=150, num_workers=2, collate_fn=collate_whole))
    assert torch.equal(torch.cat([batch["image"] for batch in batches]), torch.from_numpy(dataset.numbers))


def test_batches_are_the_same_without_the_library(without_library: None) -> None:
    dataset = Rows("tensor")
    ours = torch.cat(list(DataLoader(dataset, batch_size=150, num_workers=2)))
    assert torch.equal(ours, torch.from_numpy(dataset.numbers))


def test_importing_stoker_loads_no_library() -> None:
    told = "import stoker.slots.streaming as s; print(s._library.cache_info().currsize)"
    ran = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "0"
