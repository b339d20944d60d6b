"""The resume checker notices loaders that are wrong, each in its own way, and says where."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from stoker import DataLoader
from stoker.testing import assert_resumes_everywhere


class Counting:
    """A correct loader of three batches an epoch, small enough to be broken on purpose."""

    def __init__(self) -> None:
        self.epoch, self.step, self.loaded = 0, 0, False

    def __iter__(self) -> Iterator[Any]:
        if not self.loaded:
            self.step = 0
        self.loaded = False
        while self.step < 3:
            self.step += 1
            yield self.batch()
        self.epoch, self.step = self.epoch + 1, 0

    def batch(self) -> Any:
        return {"x": torch.tensor([10 * self.epoch + self.step])}

    def state_dict(self) -> Any:
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state: Any) -> None:
        self.epoch, self.step, self.loaded = state["epoch"], state["step"], True


class OneStepBack(Counting):
    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.step = max(0, self.step - 1)


class ForgetsEpochs(Counting):
    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict({**state, "epoch": 0})


class ChangesType(Counting):
    def batch(self) -> Any:
        return super().batch() if not self.loaded_once else {"x": torch.tensor([10 * self.epoch + self.step]).int()}

    loaded_once = False

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.loaded_once = True


class SavingMoves(Counting):
    def state_dict(self) -> Any:
        random.random()
        return super().state_dict()

    def batch(self) -> Any:
        return random.random()


class Shares(Counting):
    """Its state is the very dictionary it goes on working with."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[str, Any] = {}

    def state_dict(self) -> Any:
        self.live.update(super().state_dict())
        return self.live


class Refuses(Counting):
    def load_state_dict(self, state: Any) -> None:
        if state["step"] == 2:
            raise ValueError("not from here")
        super().load_state_dict(state)


def test_a_correct_loader_passes() -> None:
    assert_resumes_everywhere(Counting, epochs=2, others=[Counting, lambda: copy.deepcopy(Counting())])


def test_a_state_that_is_not_json_passes_too() -> None:
    class WithTensors(Counting):
        def state_dict(self) -> Any:
            return {**super().state_dict(), "seen": torch.arange(2), ("a", 1): (1, 2)}

    assert_resumes_everywhere(WithTensors)


def test_a_live_state_is_told_apart_from_a_saved_one() -> None:
    assert_resumes_everywhere(Shares)  # what was saved is a copy, as in a file


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            OneStepBack,
            r"saved before step 1 of epoch 0 and resumed .* in epoch 0, step 1 differs: batch\['x'\] is",
        ),
        (ForgetsEpochs, r"saved before step 0 of epoch 1 and resumed .* in epoch 1, step 0 differs"),
        (ChangesType, r"is a Tensor of torch.int32, shape \(1,\), expected a Tensor of torch.int64"),
        (SavingMoves, "the same run without asking for states is not the uninterrupted run"),
        (Refuses, "saved before step 2 of epoch 0 and resumed cannot go on: ValueError: not from here"),
    ],
)
def test_a_broken_loader_is_caught(broken: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_resumes_everywhere(broken)


def test_the_other_that_fails_is_named() -> None:
    with pytest.raises(AssertionError, match=r"resumed by others\[1\]"):
        assert_resumes_everywhere(Counting, others=[Counting, OneStepBack])


def test_batches_that_are_too_many_or_missing_are_caught_in_any_order() -> None:
    with pytest.raises(AssertionError, match="1 batches came that should not"):
        assert_resumes_everywhere(OneStepBack, any_order=True)
    with pytest.raises(AssertionError, match="a batch never came"):
        assert_resumes_everywhere(ForgetsEpochs, any_order=True)


def test_the_generators_of_the_process_are_left_as_they_were() -> None:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    expected = random.random(), np.random.rand(), torch.rand(1).item()
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    assert_resumes_everywhere(lambda: DataLoader(list(range(4)), batch_size=2, shuffle=True))
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected
