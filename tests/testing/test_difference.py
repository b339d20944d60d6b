"""`difference` is stricter than ==, and says where."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from stoker import BatchPlan, StepBatch
from stoker.testing import difference


class Point(NamedTuple):
    x: Any
    y: Any


class Plain:
    """Says nothing of what equal means."""

    def __init__(self, value: Any) -> None:
        self.value = value


SAME = [
    (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")])),
    (torch.arange(6).reshape(2, 3).t(), torch.arange(6).reshape(2, 3).t().contiguous()),
    (np.array(["a", None], object), np.array(["a", None], object)),
    (torch.eye(2).to_sparse(), torch.eye(2).to_sparse()),
    (torch.tensor(1, dtype=torch.bfloat16), torch.tensor(1, dtype=torch.bfloat16)),
    (float("nan"), float("nan")),
    ({"a": [1, (2, "x")]}, {"a": [1, (2, "x")]}),
    (Plain([1]), Plain([1])),
    (None, None),
]
DIFFERENT = [
    (torch.tensor([1, 2]), torch.tensor([1, 3]), "batch is tensor([1, 3]), expected tensor([1, 2])"),
    (torch.zeros(2), torch.zeros(2, dtype=torch.float64), "batch is a Tensor of torch.float64, shape (2,)"),
    (torch.zeros(2), torch.zeros(2, 1), "shape (2, 1), expected"),
    (torch.tensor([0.0]), torch.tensor([-0.0]), "batch is tensor([-0.]), expected tensor([0.])"),
    (np.zeros(1, np.int32), np.zeros(1, np.int64), "int64"),
    ([1, 2], (1, 2), "batch is a tuple"),
    ([1, 2], [1], "batch has 1 members, expected 2"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "batch has the keys ['b', 'a']"),
    ({"a": 1}, OrderedDict(a=1), "OrderedDict"),
    ({"a": [0, Point(1, "x")]}, {"a": [0, Point(1, "y")]}, "batch['a'][1][1] is 'y', expected 'x'"),
    (1, True, "batch is a bool (True), expected a int (1)"),
    (0.0, -0.0, "batch is -0.0, expected 0.0"),
    (Plain([1]), Plain([2]), "vars(batch)['value'][0] is 2, expected 1"),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=lambda value: type(value).__name__)
def test_what_is_the_same_to_the_last_bit_has_no_difference(one: Any, other: Any) -> None:
    assert difference(one, other) is None


@pytest.mark.parametrize(("expected", "got", "said"), DIFFERENT)
def test_a_difference_is_told_with_its_place(expected: Any, got: Any, said: str) -> None:
    found = difference(expected, got)
    assert found is not None
    assert said in found


def test_steps_of_a_plan_differ_in_their_data_or_their_mask() -> None:
    plan = BatchPlan(2)
    step = StepBatch(torch.arange(2), plan)
    assert difference(step, StepBatch(torch.arange(2), plan)) is None
    assert "['data']" in str(difference(step, StepBatch(torch.arange(1, 3), plan)))
    assert "['mask']" in str(difference(step, StepBatch(torch.arange(2), plan, torch.ones(2, dtype=torch.bool))))
