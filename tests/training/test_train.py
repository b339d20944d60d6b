"""Weight updates from one step's batch: the gradients, the losses, and what comes back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.plans import plans
from torch import nn

from stoker import BatchPlan, DataLoader, StepBatch
from stoker.training import Every, infer_step, train_step

PLAN = BatchPlan(2, gradient_accumulation=2, replicas=3, device_iterations=4)
ROWS = PLAN.combined_batch


def a_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(3, 1, dtype=torch.float64)


def compute(model: nn.Module, data: Any) -> Any:
    inputs, targets = data
    outputs = model(inputs)
    return (outputs - targets).square().mean(), outputs


def some_data(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    draw = {"generator": generator, "dtype": torch.float64}
    return torch.rand(rows, 3, **draw), torch.rand(rows, 1, **draw)  # type: ignore[arg-type]


def reference(model: nn.Module, data: Any, updates: int, reduction: str = "mean", parts: int = 1) -> list[float]:
    """Plain training: one batch per weight update. A "sum" adds the means of `parts` micro-batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for inputs, targets in zip(*(column.chunk(updates) for column in data), strict=True):
        optimizer.zero_grad()
        loss = compute(model, (inputs, targets))[0] * (parts if reduction == "sum" else 1)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained(model: nn.Module, batch: StepBatch, **options: Any) -> Any:
    return train_step(model, batch, compute, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), **options)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@settings(max_examples=30, deadline=None)
@given(plan=plans(), reduction=st.sampled_from(["mean", "sum"]))
def test_any_factors_train_like_one_batch_per_update(plan: BatchPlan, reduction: Any) -> None:
    data, model = some_data(plan.combined_batch), a_model()
    plain = copy.deepcopy(model)
    micros = plan.gradient_accumulation * plan.groups
    expected = reference(plain, data, plan.device_iterations, reduction, parts=micros)
    result = trained(model, StepBatch(data, plan), reduction=reduction)
    torch.testing.assert_close(weights(model), weights(plain))
    torch.testing.assert_close(result.losses, torch.tensor(expected, dtype=torch.float64))


def test_a_padded_step_trains_on_its_real_rows() -> None:
    inputs, targets = some_data(ROWS)
    real = 12 + 7  # one whole weight update, then three micro-batches and a half
    mask = torch.arange(ROWS) < real
    inputs[~mask] = float("nan")
    model = a_model()
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    for rows in (slice(0, 12), slice(12, 19)):
        optimizer.zero_grad()
        compute(plain, (inputs[rows], targets[rows]))[0].backward()
        optimizer.step()
    result = trained(model, StepBatch((inputs, targets), PLAN, mask), returns="all")
    torch.testing.assert_close(weights(model), weights(plain))
    assert len(result.losses) == 2
    assert len(result.outputs) == real


def test_a_short_step_weighs_micro_batches_by_their_rows() -> None:
    data, model = some_data(7), a_model()
    plain = copy.deepcopy(model)
    reference(plain, data, 1)
    trained(model, StepBatch(data, PLAN))
    torch.testing.assert_close(weights(model), weights(plain))


def places(returns: Any) -> list[int]:
    """The first row of each micro-batch that comes back, for a model that gives its input back."""
    inputs = torch.arange(float(ROWS)).reshape(ROWS, 1)
    model = nn.Linear(1, 1)
    nn.init.ones_(model.weight)

    def echo(model: nn.Module, data: Any) -> Any:
        return model(data).mean(), {"rows": data, "first": data[0, 0]}

    result = train_step(model, StepBatch(inputs, PLAN), echo, torch.optim.SGD(model.parameters()), returns=returns)
    assert result.outputs["rows"].tolist()[:: PLAN.micro_batch] == [
        [value] for value in result.outputs["first"].tolist()
    ]
    return [int(value) for value in result.outputs["first"].tolist()]


def test_outputs_come_back_by_mode() -> None:
    assert places("all") == list(range(0, ROWS, 2))
    assert places("final") == [PLAN.row_of(3, 1, replica, 0) for replica in range(3)]
    assert places(Every(2)) == [*range(12, 24, 2), *range(36, 48, 2)]
    assert places(Every(4)) == [*range(36, 48, 2)]
    assert places("sum") == [
        sum(PLAN.row_of(iteration, accumulation, replica, 0) for iteration in range(4) for accumulation in range(2))
        for replica in range(3)
    ]


def test_a_single_number_stays_one() -> None:
    batch = StepBatch(torch.arange(4.0).reshape(4, 1), BatchPlan(2, device_iterations=2))
    assert infer_step(nn.Identity(), batch, lambda model, data: data.sum(), returns="final").shape == ()
    assert infer_step(nn.Identity(), batch, lambda model, data: data.sum()).tolist() == [1.0, 5.0]


def test_inference_needs_no_gradients_and_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    inputs, plan = torch.rand(12, 3), BatchPlan(2, replicas=2, device_iterations=3)
    output = infer_step(model, StepBatch(inputs, plan))
    torch.testing.assert_close(output, model[0](inputs))
    assert not output.requires_grad
    assert model.training
    assert infer_step(model, StepBatch(inputs, plan), returns="final").shape == (4, 2)


def test_a_loader_trains_a_model() -> None:
    inputs = torch.rand(100, 3)
    targets = inputs.sum(dim=1, keepdim=True)
    plan = BatchPlan(4, gradient_accumulation=2, device_iterations=3)
    loader = DataLoader(torch.utils.data.TensorDataset(inputs, targets), plan=plan, shuffle=True, seed=1, last="pad")
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = [train_step(model, batch, compute, optimizer).losses for _ in range(20) for batch in loader]
    assert losses[0].mean() > 10 * losses[-1].mean()
    assert len(losses[-1]) == 1  # 4 rows were left: the other weight updates would have been of padding alone


def test_hooks_of_the_optimizer_run_once_for_each_weight_update() -> None:
    model = a_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ran: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: ran.append("clip"))
    train_step(model, StepBatch(some_data(ROWS), PLAN), compute, optimizer)
    assert ran == ["clip"] * 4


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"batch": some_data(ROWS)}, TypeError, r"stoker.StepBatch, but got tuple.*plan=stoker.BatchPlan"),
        ({"batch": StepBatch(some_data(ROWS + 1), PLAN)}, ValueError, r"49 rows, more than.*2 rows × 2 accumulation"),
        ({"returns": "some"}, ValueError, r'"all", "final", "sum" or Every\(n\)'),
        ({"returns": Every(3)}, ValueError, r"every 3 of 4 iterations.*divides 4"),
        ({"reduction": "max"}, ValueError, '"mean" or "sum"'),
        ({"compute": lambda model, data: model(data[0])}, TypeError, r"shape \(2, 1\).*mean\(\)"),
        ({"compute": lambda model, data: None}, TypeError, "NoneType"),
    ],
)
def test_steps_that_cannot_be_trained_are_refused(change: Any, error: Any, said: str) -> None:
    model = a_model()
    asked = {"batch": StepBatch(some_data(ROWS), PLAN), "compute": compute, **change}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(error, match=said):
        train_step(model, optimizer=optimizer, **asked)


def test_inference_has_no_gradients_to_accumulate() -> None:
    with pytest.raises(ValueError, match=r"2 rows × 2 accumulation.*device_iterations"):
        infer_step(a_model(), StepBatch(some_data(ROWS), PLAN))
    with pytest.raises(TypeError, match=r"stoker.StepBatch, but got Tensor"):
        infer_step(a_model(), torch.zeros(3))  # type: ignore[arg-type]


def test_sums_of_micro_batches_of_different_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r'shapes \(2, 1\) and \(1, 1\).*last="drop"'):
        trained(a_model(), StepBatch(some_data(2 * 6 + 1), PLAN), returns="sum")


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_every_needs_a_whole_number(n: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"n should be (a whole number|at least 1)"):
        Every(n)
