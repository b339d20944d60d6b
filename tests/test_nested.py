"""What counts as a container in a batch, for everybody who looks into one."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from stoker.nested import is_plain_tensor, leaves_of, open_container, size_of


class Point(NamedTuple):
    x: Any
    y: Any


class Boxes(list[Any]):
    """A list of somebody's own."""


CONTAINERS = [
    {"a": 1, "b": 2},
    OrderedDict(a=1, b=2),
    defaultdict(list, a=1, b=2),
    UserDict(a=1, b=2),
    MappingProxyType({"a": 1, "b": 2}),
    [1, 2],
    (1, 2),
    Point(1, 2),
    Boxes([1, 2]),
    deque([1, 2]),  # torch knows it
]


@pytest.mark.parametrize("value", CONTAINERS, ids=lambda value: type(value).__name__)
def test_a_container_is_taken_apart_and_the_like_put_together(value: Any) -> None:
    container = open_container(value)
    assert container is not None
    assert container.parts == [1, 2]
    like = container.like([3, 4])
    assert type(like) is type(value)
    assert list(like.values() if hasattr(like, "values") else like) == [3, 4]


def test_what_a_mapping_has_beside_its_items_stays() -> None:
    value = defaultdict(list, a=1)
    container = open_container(value)
    assert container is not None
    assert container.like([2])["new"] == []


@pytest.mark.parametrize("value", ["text", b"bytes", 1, None, torch.zeros(2), np.zeros(2), {1}, range(3)], ids=repr)
def test_everything_else_is_a_leaf(value: Any) -> None:
    assert open_container(value) is None
    assert next(leaves_of([value])) is value


def test_leaves_come_in_order() -> None:
    assert list(leaves_of({"a": [1, (2, Point(3, {"b": 4}))], "c": 5})) == [1, 2, 3, 4, 5]


def test_sizes_are_those_of_tensors_and_arrays() -> None:
    batch = {"x": torch.zeros(4, dtype=torch.float64), "y": [np.zeros(3, np.int16)], "names": ["a"] * 1000, "n": 1}
    assert size_of(batch) == 4 * 8 + 3 * 2
    assert size_of(torch.eye(4).to_sparse()) == 4 * 4 * 4  # as if it were not sparse
    assert size_of([1, "two"], other_bytes=8) == 16


def test_what_holds_itself_counts_nothing() -> None:
    circle: list[Any] = [torch.zeros(1)]
    circle.append(circle)
    assert size_of(circle) == 0


def test_a_plain_tensor_is_torchs_own_type_in_ordinary_memory() -> None:
    class Own(torch.Tensor):
        pass

    assert is_plain_tensor(torch.zeros(2, 3).t())
    others = [torch.zeros(2).to_sparse(), torch.zeros(2, device="meta"), torch.zeros(2).as_subclass(Own), np.zeros(2)]
    assert not any(map(is_plain_tensor, others))
