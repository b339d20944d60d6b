"""Rebatching: the rows of a pass, cut anew; equal to cutting the concatenation."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import stoker
from stoker import UnevenBatch, prefetch

Pair = namedtuple("Pair", ["x", "y"])
SIZES = st.lists(st.integers(1, 9), max_size=12)


def parts(sizes: list[int]) -> list[Any]:
    """Batches of these sizes, with rows of several kinds that all say which row they are."""
    made, at = [], 0
    for size in sizes:
        rows = torch.arange(at, at + size)
        made.append(
            {
                "image": rows.view(-1, 1, 1).expand(-1, 3, 2).to(torch.float32),
                "pair": Pair(rows.to(torch.bfloat16), rows.numpy().astype(np.int16)),
                "empty": torch.empty(size, 0),
                "names": [str(row) for row in rows.tolist()],
                "flag": [rows % 2 == 0],
            }
        )
        at += size
    return made


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, rows=st.integers(1, 30), drop=st.booleans())
def test_any_sizes_equal_the_concatenation_cut_anew(sizes: list[int], rows: int, drop: bool) -> None:
    total = sum(sizes)
    cuts = [(start, min(start + rows, total)) for start in range(0, total, rows)]
    cuts = [cut for cut in cuts if not drop or cut[1] - cut[0] == rows]
    whole = parts([total])[0]
    with prefetch(parts(sizes), batch_size=rows, drop_last=drop, across_epochs=False) as accessor:
        for _ in range(2):
            taken = list(accessor)
            assert len(taken) == len(cuts)
            for batch, (start, stop) in zip(taken, cuts, strict=True):
                assert torch.equal(batch["image"], whole["image"][start:stop])
                assert torch.equal(batch["pair"].x, whole["pair"].x[start:stop])
                assert np.array_equal(batch["pair"].y, whole["pair"].y[start:stop])
                assert batch["pair"].y.dtype == np.int16
                assert batch["empty"].shape == (stop - start, 0)
                assert batch["names"] == whole["names"][start:stop]
                assert torch.equal(batch["flag"][0], whole["flag"][0][start:stop])


@pytest.mark.parametrize("by", ["thread", "process"])
def test_combined_batches_that_are_kept_never_change(by: Any) -> None:
    source = [torch.arange(start, start + 100).repeat(256, 1).T.contiguous() for start in range(0, 3000, 100)]
    with prefetch(source, batch_size=128, by=by, ahead=2) as accessor:
        kept = list(accessor)
    assert torch.equal(torch.cat(kept), torch.cat(source))
    assert [len(batch) for batch in kept] == [128] * 23 + [56]


def test_batches_without_rows_are_passed_over() -> None:
    source = [torch.empty(0, 2), torch.ones(3, 2), torch.empty(0, 2), torch.ones(2, 2)]
    with prefetch(source, batch_size=4) as accessor:
        assert [len(batch) for batch in accessor] == [4, 1]


def test_tensors_that_are_no_plain_memory_are_joined() -> None:
    source = [torch.eye(4)[:3].to_sparse(), torch.eye(4)[3:].to_sparse()]
    with prefetch(source, batch_size=4) as accessor:
        (batch,) = accessor
    assert batch.is_sparse
    assert torch.equal(batch.to_dense(), torch.eye(4))


class Rows(IterableDataset[Any]):
    def __len__(self) -> int:
        return 101

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        return iter(range(101) if info is None else range(info.id, 101, info.num_workers))


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("batch_size", [1, 4, 20])
@pytest.mark.parametrize("make", [DataLoader, stoker.DataLoader])
def test_there_is_one_tail_for_the_whole_pass(make: Any, batch_size: int, drop_last: bool) -> None:
    loader = make(TensorDataset(torch.arange(101)), batch_size)
    accessor = prefetch(loader, batch_size=20, drop_last=drop_last)
    sizes = [len(batch) for (batch,) in accessor]
    assert sizes == [20] * 5 + [1] * (not drop_last)
    assert len(accessor) == len(sizes)
    accessor.close()


def test_iterable_workers_share_one_tail() -> None:
    loader = DataLoader(Rows(), 4, num_workers=2)
    with prefetch(loader, batch_size=20) as accessor:
        taken = list(accessor)
    assert [len(batch) for batch in taken] == [20] * 5 + [1]
    assert sorted(torch.cat(taken).tolist()) == list(range(101))
    assert len(accessor) == 6


def test_length_counts_what_the_inner_loader_drops() -> None:
    loader = DataLoader(TensorDataset(torch.arange(101)), 10, drop_last=True)
    assert len(prefetch(loader, batch_size=30)) == 4
    assert len(prefetch(loader, batch_size=30, drop_last=True)) == 3


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([torch.ones(2, 3)], "'list' does not say how many rows"),
        (DataLoader(TensorDataset(torch.arange(4)), batch_sampler=[[0], [1, 2]]), "made by its batch_sampler"),
    ],
)
def test_an_unknown_length_says_why(source: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        len(prefetch(source, batch_size=2))


BAD: list[tuple[list[Any], str]] = [
    ([{"a": torch.ones(3), "b": torch.ones(2)}], r"\['a'\] has 3 and \['b'\] has 2"),
    ([torch.tensor(1.0)], "single value without a first dimension"),
    ([{"a": torch.ones(2), "b": 3}], r"\['b'\] is of type 'int'"),
    ([torch.ones(2, 3), torch.ones(2, 4)], r"shape \(4,\) and torch.float32.*shape \(3,\)"),
    ([[torch.ones(2)], [torch.ones(2).to(torch.int32)]], r"\[0\] differs.*torch.int32"),
    ([(torch.ones(2), torch.ones(2)), (torch.ones(2),)], "differs in structure"),
    ([torch.ones(2), np.ones(2, np.float32)], "cannot be combined"),
    ([{}], "no tensor at all"),
]


@pytest.mark.parametrize(("source", "words"), BAD)
@pytest.mark.parametrize("by", ["thread", "process"])
def test_rows_that_cannot_be_combined_are_named(source: list[Any], words: str, by: Any) -> None:
    with prefetch(source, batch_size=3, by=by) as accessor, pytest.raises(UnevenBatch, match=f"(?s){words}"):
        list(accessor)
