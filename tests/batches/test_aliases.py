"""Tensors that share memory in a worker share it in the training process, as with torch's loader and a worker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from torch.utils import _pytree as pytree

import stoker
from stoker.batches.packing import pack, unpack


class Tagged(torch.Tensor):
    """A user's own kind of tensor."""


def same(item: Any) -> Any:
    return item


class Views(torch.utils.data.Dataset[Any]):
    """Items of tensors and arrays of which many look into the same memory, drawn anew for each index."""

    def __init__(self, items: int) -> None:
        self.items = items

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> list[Any]:
        chance = random.Random(index)
        bases = [self._base(chance) for _ in range(chance.randint(1, 3))]
        return [self._leaf(chance, *chance.choice(bases)) for _ in range(chance.randint(2, 7))]

    @staticmethod
    def _base(chance: random.Random) -> Any:
        rows = chance.choice([3, 5, 300])  # the last is so large that a column of it would not drag all along
        kind = chance.choice([torch.float64, torch.float32, torch.bfloat16, torch.int64])
        base = torch.arange(rows * 200).reshape(rows, 200).to(kind)
        return base, None if kind is torch.bfloat16 else base.numpy().copy()

    @staticmethod
    def _leaf(chance: random.Random, base: torch.Tensor, array: Any) -> Any:
        part = slice(chance.randint(0, 2), chance.randint(2, 3))
        leaves = [
            lambda: base,
            lambda: base[chance.randint(0, 2)],
            lambda: base[part],
            lambda: base[:, chance.randint(0, 3)],
            lambda: base[:, 4 : chance.randint(5, 7)],
            lambda: base.t(),
            lambda: base[1:2].expand(4, 200),
            lambda: base[:0],
            lambda: base.clone()[0],
            lambda: base.view(torch.int16)[0],
            lambda: {"again": base, "and": [base[2]]},
            lambda: Tagged(base[1]),
            lambda: base[1].as_subclass(Tagged),
            lambda: base[0].detach().requires_grad_() if base.is_floating_point() else base,
            lambda: base if array is None else array,
            lambda: base if array is None else array[1],
            lambda: base if array is None else torch.from_numpy(array[1]),
            lambda: torch.nn.Parameter(base[0], requires_grad=False),
        ]
        return chance.choice(leaves)()


def leaves_of(item: Any) -> list[Any]:
    return list(pytree.tree_leaves(item))


def aliases(item: Any) -> list[list[int]]:
    """For each leaf the leaves that a write into it is seen in, found by writing."""
    leaves = leaves_of(item)
    return [list(_changed_by_writing(leaf, leaves)) for leaf in leaves]


def _changed_by_writing(leaf: Any, leaves: list[Any]) -> Iterator[int]:
    before = [_bytes(other) for other in leaves]
    with torch.no_grad():
        target = leaf[0] if isinstance(leaf, torch.Tensor) and 0 in leaf.stride() else leaf  # as expanded
        target[...] = -target - 1  # changes every number, also where ones are too small to add
    for number, (other, was) in enumerate(zip(leaves, before, strict=True)):
        if _bytes(other) != was:
            yield number


def _bytes(leaf: Any) -> bytes:
    if isinstance(leaf, np.ndarray):
        return leaf.tobytes()
    return bytes(leaf.detach().as_subclass(torch.Tensor).contiguous().view(torch.uint8).numpy().tobytes())


@pytest.mark.parametrize("start_method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_write_is_seen_in_the_same_leaves_as_with_torchs_loader_and_a_worker(start_method: str) -> None:
    items = 150 if start_method == "fork" else 30
    options: dict[str, Any] = {"num_workers": 1, "collate_fn": same, "multiprocessing_context": start_method}
    theirs = torch.utils.data.DataLoader(Views(items), batch_size=None, **options)
    ours: Any = stoker.DataLoader(Views(items), batch_size=None, **options)
    shared = 0
    for number, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        for one, other in zip(leaves_of(their), leaves_of(our), strict=True):
            assert type(one) is type(other), number
            assert _bytes(one) == _bytes(other), number
            assert getattr(one, "requires_grad", None) == getattr(other, "requires_grad", None)
        expected = aliases(their)
        assert aliases(our) == expected, number
        shared += sum(len(seen) > 1 for seen in expected)
    assert shared > items


def _with_view(samples: list[Any]) -> Any:
    x = torch.stack(samples)
    return {"x": x, "view": x[0], "again": x, "column": x[:, 0]}


class Rows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((5000,), float(index))


@pytest.mark.parametrize("workers", [(0, 0), (0, 2), (1, 1), (2, 2)])
def test_a_view_that_a_collate_fn_gives_beside_its_tensor_is_a_view(workers: tuple[int, int]) -> None:
    loader: Any = stoker.DataLoader(Rows(), 4, collate_fn=_with_view, workers=stoker.Workers(*workers))
    for batch in loader:
        assert batch["x"] is batch["again"]
        batch["x"][0, 7], batch["x"][2, 0] = -1.0, -2.0
        assert batch["view"][7] == -1.0
        assert batch["column"][2] == -2.0
        batch["view"][3] = -3.0
        assert batch["x"][0, 3] == -3.0


def _packed_bytes(batch: Any) -> int:
    memory = np.zeros(2**24, np.uint8)
    packed, size = pack(batch, lambda wanted: memory[:wanted])
    again = unpack(packed, memory)
    for one, other in zip(leaves_of(batch), leaves_of(again), strict=True):
        assert torch.equal(one, other)
    return size


def test_what_is_shared_is_packed_once() -> None:
    x = torch.rand(100, 1000)
    alone = _packed_bytes([x])
    assert _packed_bytes([x, x[3], x[:, 1], x.t(), x]) == alone
    assert _packed_bytes([x[:50], x[50:]]) == alone
    assert _packed_bytes([x[:60], x[40:]]) == alone


def test_a_view_alone_does_not_drag_a_large_tensor_along() -> None:
    x = torch.rand(1000, 1000)
    assert _packed_bytes([x[:, 5]]) <= 4096
    assert _packed_bytes([x[3], x[990]]) <= 2 * 4096
    assert _packed_bytes([x[:, 5], x[:, 5].clone()]) <= 2 * 4096
