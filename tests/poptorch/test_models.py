"""A step's rows go through the model micro-batch by micro-batch, and come back as the output mode says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker.poptorch as poptorch

MODES = list(poptorch.OutputMode)
FACTORS = st.integers(1, 3)


class Seen(torch.nn.Module):
    """Says what it was given: the rows, and their number as a single value."""

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return rows * 2, rows.sum()


class Regression(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, rows: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        answer = self.linear(rows)
        return answer, torch.nn.functional.mse_loss(answer, target)


def options_of(device_iterations: int = 1, replicas: int = 1, accumulation: int = 1) -> poptorch.Options:
    options = poptorch.Options().deviceIterations(device_iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    return options


@settings(max_examples=60, deadline=None)
@given(FACTORS, FACTORS, FACTORS, st.sampled_from(MODES))
def test_outputs_are_those_of_the_reference_reshape(iterations: int, replicas: int, rows: int, mode: Any) -> None:
    options = options_of(iterations, replicas).outputMode(mode, iterations)
    given_rows = torch.arange(iterations * replicas * rows, dtype=torch.float32)
    doubled, sums = poptorch.inferenceModel(Seen(), options)(given_rows)
    grid = given_rows.numpy().reshape(iterations, replicas, rows)
    if mode in (poptorch.OutputMode.All, poptorch.OutputMode.Default):
        expected = grid
    elif mode == poptorch.OutputMode.Sum:
        expected = grid.sum(0, keepdims=True)
    else:  # the last iteration; with EveryN the period is all of them
        expected = grid[-1:]
    np.testing.assert_array_equal(doubled.numpy(), 2 * expected.reshape(-1))
    np.testing.assert_array_equal(sums.numpy().reshape(-1), expected.sum(-1).reshape(-1))
    assert sums.dim() == (0 if expected.shape[0] * replicas == 1 else 1)


def test_every_n_gives_the_results_of_each_nth_iteration() -> None:
    options = options_of(6, 2).outputMode(poptorch.OutputMode.EveryN, 3)
    doubled, _ = poptorch.inferenceModel(Seen(), options)(torch.arange(12.0))
    assert doubled.tolist() == [2.0 * row for row in (4, 5, 10, 11)]


def test_a_period_that_does_not_divide_the_iterations_is_refused() -> None:
    with pytest.raises(poptorch.Error, match=r"2 does not divide deviceIterations\(3\)"):
        poptorch.inferenceModel(Seen(), options_of(3).outputMode(poptorch.OutputMode.EveryN, 2))


def test_training_returns_the_last_result_of_each_replica_and_inference_all() -> None:
    options = options_of(4)
    answer, loss = poptorch.trainingModel(Regression(), options)(torch.randn(8, 4), torch.randn(8, 2))
    assert (answer.shape, loss.dim(), answer.requires_grad) == ((2, 2), 0, False)
    assert poptorch.inferenceModel(Seen(), options)(torch.arange(8.0))[0].shape == (8,)
    assert options.defaultOutputMode()  # the user's own are not touched


@pytest.mark.parametrize("kind", [poptorch.ReductionType.Mean, poptorch.ReductionType.Sum])
@pytest.mark.parametrize(("accumulation", "replicas"), [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_an_update_is_made_from_the_gradients_of_all_its_micro_batches(
    kind: poptorch.ReductionType, accumulation: int, replicas: int
) -> None:
    torch.manual_seed(0)
    count = accumulation * replicas
    rows, target = torch.randn(2 * count * 5, 4), torch.randn(2 * count * 5, 2)
    options = options_of(2, replicas, accumulation)
    options.Training.accumulationAndReplicationReductionType(kind)
    ours = Regression()
    poptorch.trainingModel(ours, options, torch.optim.SGD(ours.parameters(), lr=0.1))(rows, target)

    theirs = Regression()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for iteration in range(2):
        part = slice(iteration * count * 5, (iteration + 1) * count * 5)
        _, loss = theirs(rows[part], target[part])  # the mean over all is the mean of the micro-batches' means
        (loss * (count if kind == poptorch.ReductionType.Sum else 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(ours.linear.weight, theirs.linear.weight)


@pytest.mark.parametrize("grouping", [poptorch.CommGroupType.Consecutive, poptorch.CommGroupType.Orthogonal])
def test_replicas_of_an_input_group_read_the_same_rows(grouping: poptorch.CommGroupType) -> None:
    options = options_of(2, 4).inputReplicaGrouping(2, grouping)
    doubled, _ = poptorch.inferenceModel(Seen(), options)(torch.arange(4.0))
    groups = [0, 0, 1, 1] if grouping == poptorch.CommGroupType.Consecutive else [0, 1, 0, 1]
    assert doubled.tolist() == [2.0 * (2 * iteration + group) for iteration in range(2) for group in groups]


def test_arguments_keep_their_structure_and_single_numbers_are_for_all() -> None:
    class Nested(torch.nn.Module):
        def forward(self, batch: dict[str, Any], scale: torch.Tensor, name: str = "") -> dict[str, Any]:
            return {"name": name, "both": [batch["rows"] * scale, (batch["pair"][0] + batch["pair"][1],)]}

    model = poptorch.inferenceModel(Nested(), options_of(3))
    batch = {"rows": torch.arange(6.0), "pair": (torch.ones(6, 2), torch.ones(6, 2))}
    answer = model(batch, torch.tensor(3.0), name="kept")
    assert answer["name"] == "kept"
    assert answer["both"][0].tolist() == [0, 3, 6, 9, 12, 15]
    assert answer["both"][1][0].shape == (6, 2)


def test_synthetic_data_takes_shapes_and_nothing_else() -> None:
    options = options_of(2).enableSyntheticData(True)
    model = poptorch.inferenceModel(Seen(), options)
    first, _ = model(torch.full((4, 3), 1e9))
    again, _ = model(torch.full((4, 3), -1e9))
    assert first.shape == (4, 3)
    assert first.abs().max() < 100  # drawn, not given
    assert torch.equal(first, again)  # and drawn once


def test_synthetic_labels_are_valid_classes() -> None:
    class Classes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, rows: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.linear(rows), label)

    model = poptorch.trainingModel(Classes(), options_of(2).enableSyntheticData(True))
    assert torch.isfinite(model(torch.zeros(4, 3), torch.full((4,), 7)))


def test_the_weights_trained_are_the_models_own() -> None:
    model = Regression()
    before = model.linear.weight.detach().clone()
    wrapped = poptorch.trainingModel(model)
    wrapped(torch.randn(4, 4), torch.randn(4, 2))
    assert not torch.equal(model.linear.weight, before)
    assert wrapped.linear.weight is model.linear.weight
    assert poptorch.inferenceModel(wrapped).model is model


def test_a_model_without_a_loss_is_told_to_return_one() -> None:
    with pytest.raises(poptorch.Error, match="must return its loss"):
        poptorch.trainingModel(torch.nn.Linear(2, 2))(torch.zeros(1, 2))


def test_identity_loss_makes_one_number() -> None:
    rows = torch.arange(4.0, requires_grad=True)
    assert poptorch.identity_loss(rows, "mean") == 1.5
    assert poptorch.identity_loss(rows, reduction="sum") == 6
    with pytest.raises(poptorch.Error, match="a loss is one number"):
        poptorch.identity_loss(rows, "none")


def test_annotated_layers_run_as_they_are() -> None:
    class Annotated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = poptorch.BeginBlock(torch.nn.Linear(2, 2), ipu_id=0)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            with poptorch.Block("rest", ipu_id=1):
                return self.first(rows).sum(-1)

    assert poptorch.inferenceModel(Annotated(), options_of(2))(torch.zeros(4, 2)).shape == (4,)


def test_optimizers_take_the_chips_arguments() -> None:
    model = Regression()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, loss_scaling=1000.0, use_combined_accum=False)
    assert poptorch.optim.AdamW(model.parameters(), accum_type=torch.float16).defaults["lr"] == 1e-3
    poptorch.trainingModel(model, optimizer=optimizer)(torch.randn(2, 4), torch.randn(2, 2))
