"""The plan: its products, the two directions between rows and places, and what it refuses."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.plans import plans

from stoker import BatchPlan


def test_the_products_of_the_factors() -> None:
    plan = BatchPlan(4, gradient_accumulation=2, replicas=3, device_iterations=5, hosts=2)
    assert plan.shape == (5, 2, 3, 4)
    assert (plan.replica_batch, plan.global_batch) == (8, 48)
    assert (plan.combined_batch, plan.samples_per_step) == (120, 240)
    assert plan.micro_steps == 10
    assert str(plan) == "4 rows × 2 accumulation × 3 replicas × 5 iterations × 2 hosts = 240 samples per step"


def test_replicas_of_a_group_share_their_samples() -> None:
    plan = BatchPlan(4, replicas=6, input_group_size=2)
    assert (plan.groups, plan.shape, plan.combined_batch) == (3, (1, 1, 3, 4), 12)
    assert str(plan) == "4 rows × 6 replicas ÷ 2 replicas a group = 12 samples per step"


@pytest.mark.parametrize(
    ("grouping", "groups"), [("consecutive", [0, 0, 1, 1, 2, 2]), ("orthogonal", [0, 1, 2, 0, 1, 2])]
)
def test_which_group_a_replica_reads(grouping: Any, groups: list[int]) -> None:
    plan = BatchPlan(1, replicas=6, input_group_size=2, input_grouping=grouping)
    assert [plan.group_of(replica) for replica in range(6)] == groups
    assert all(plan.group_of(replica) == group for group in range(3) for replica in plan.replicas_of(group))


@given(plans())
def test_rows_and_places_are_inverse(plan: BatchPlan) -> None:
    for row in range(plan.combined_batch):
        assert plan.row_of(*plan.place_of(row)) == row


@given(plans())
def test_rows_lie_in_the_order_of_a_reshape(plan: BatchPlan) -> None:
    grid = np.arange(plan.combined_batch).reshape(plan.shape)
    for iteration in range(plan.device_iterations):
        for accumulation in range(plan.gradient_accumulation):
            for replica in range(plan.replicas):
                for row in range(plan.micro_batch):
                    expected = grid[iteration, accumulation, plan.group_of(replica), row]
                    assert plan.row_of(iteration, accumulation, replica, row) == expected


@given(plans(), st.integers(0, 10**6))
def test_steps_of_an_epoch(plan: BatchPlan, length: int) -> None:
    assert plan.steps_per_epoch(length) == length // plan.samples_per_step
    assert plan.steps_per_epoch(length, "keep") == plan.steps_per_epoch(length, "pad")
    assert plan.steps_per_epoch(length, "keep") == -(-length // plan.samples_per_step)


def test_a_process_that_is_one_replica_has_a_plan_of_the_same_product() -> None:
    plan = BatchPlan(4, gradient_accumulation=2, replicas=6, hosts=2, input_group_size=3)
    one = plan.one_replica
    assert (one.replicas, one.hosts, one.combined_batch) == (1, 4, 8)
    assert (one.samples_per_step, one.global_batch) == (plan.samples_per_step, plan.global_batch)


def test_a_plan_is_a_value() -> None:
    plan = BatchPlan(np.int64(4), replicas=2)  # type: ignore[arg-type]
    assert type(plan.micro_batch) is int
    assert {plan: 1}[BatchPlan(4, replicas=2)] == 1
    assert pickle.loads(pickle.dumps(plan)) == plan
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.replicas = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("factors", "error", "said"),
    [
        ({"micro_batch": 0, "replicas": 3}, ValueError, "at least 1, but got 0.*0 rows × 3 replicas"),
        ({"micro_batch": 4, "replicas": -1}, ValueError, "replicas.*4 rows × -1 replicas"),
        ({"micro_batch": 4, "hosts": 0}, ValueError, "hosts.*4 rows × 0 hosts"),
        ({"micro_batch": 2.0}, TypeError, "whole number.*2.0 rows"),
        ({"micro_batch": True}, TypeError, "whole number"),
        ({"micro_batch": None}, TypeError, "whole number"),
        ({"micro_batch": 4, "input_group_size": 0}, ValueError, "input_group_size.*÷ 0"),
        ({"micro_batch": 4, "replicas": 6, "input_group_size": 4}, ValueError, r"6 replicas ÷ 4.*\[1, 2, 3, 6\]"),
        ({"micro_batch": 4, "input_grouping": "all"}, ValueError, "consecutive.*orthogonal.*'all'"),
    ],
)
def test_factors_that_make_no_step_are_refused(factors: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        BatchPlan(**factors)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ((2, 0, 0, 0), "iteration 2 is not in the plan, whose last is 1: 4 rows × 3 replicas × 2 iterations"),
        ((0, 1, 0, 0), "accumulation 1"),
        ((0, 0, 3, 0), "replica 3"),
        ((0, 0, 0, 4), "row 4"),
    ],
)
def test_places_outside_the_plan_are_refused(place: Any, said: str) -> None:
    plan = BatchPlan(4, replicas=3, device_iterations=2)
    with pytest.raises(IndexError, match=said):
        plan.row_of(*place)
    with pytest.raises(ValueError, match="at least 0"):
        plan.row_of(-1, 0, 0, 0)
    with pytest.raises(IndexError, match="row 24"):
        plan.place_of(24)


def test_questions_that_make_no_sense_are_refused() -> None:
    plan = BatchPlan(4)
    with pytest.raises(ValueError, match="last should be one of"):
        plan.steps_per_epoch(10, "cut")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="length should be at least 0"):
        plan.steps_per_epoch(-1)
