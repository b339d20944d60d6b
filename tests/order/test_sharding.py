"""Steps and ranks: disjoint, complete, equally many for every rank, and the same steps for any world."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.order import Shard, check_division, rank_positions, step_positions, steps_per_epoch
from stoker.order.sharding import LAST_STEP, LastStep

steady = settings(deadline=None, derandomize=True)  # the same examples every run, however busy the machine

epochs = st.tuples(
    st.integers(0, 400), st.integers(1, 12), st.integers(1, 9), st.sampled_from(LAST_STEP)
)  # n, samples a rank takes, world, policy


def _epoch(n: int, per_step: int, world: int, last: LastStep) -> list[np.ndarray]:
    return [step_positions(step, n, per_step, world, last) for step in range(steps_per_epoch(n, per_step, world, last))]


@steady
@given(case=epochs)
def test_all_ranks_take_equally_many_samples_in_every_step(case: tuple[int, int, int, LastStep]) -> None:
    n, each, world, last = case
    for step in range(steps_per_epoch(n, each * world, world, last)):
        sizes = {rank_positions(step, n, each * world, Shard(rank, world), last).size for rank in range(world)}
        assert len(sizes) == 1
        assert 0 < sizes.pop() <= each


@steady
@given(case=epochs)
def test_the_ranks_together_take_what_the_policy_says(case: tuple[int, int, int, LastStep]) -> None:
    n, each, world, last = case
    taken = np.concatenate([np.empty(0, np.int64), *_epoch(n, each * world, world, last)])
    missing = -(n % (each * world)) % world if n else 0
    wanted = {
        "drop": np.arange(n - n % (each * world)),
        "even": np.arange(n - n % (each * world) % world),
        "pad": np.concatenate([np.arange(n), np.arange(missing) % max(1, n)]),
    }
    assert np.array_equal(taken, wanted[last])


@steady
@given(
    n=st.integers(0, 500),
    unit=st.integers(1, 5),
    last=st.sampled_from(LAST_STEP),
    world=st.sampled_from([1, 2, 3, 4, 6, 8, 12]),
)
def test_a_full_step_is_the_same_for_every_world_that_divides_it(n: int, unit: int, last: LastStep, world: int) -> None:
    per_step = 24 * unit
    for step in range(n // per_step):
        assert np.array_equal(step_positions(step, n, per_step, world, last), np.arange(per_step) + step * per_step)


@steady
@given(n=st.integers(1, 500), unit=st.integers(1, 3))
def test_the_partial_step_differs_between_worlds_by_less_than_a_sample_a_rank(n: int, unit: int) -> None:
    for world in (2, 3, 4, 8):
        for last in ("even", "pad"):
            alone, together = _epoch(n, 24 * unit, 1, last), _epoch(n, 24 * unit, world, last)
            assert abs(sum(map(len, alone)) - sum(map(len, together))) < world


def test_padding_comes_from_the_beginning_as_in_distributed_sampler() -> None:
    # 10 samples, 4 ranks: DistributedSampler makes 12 of them, the last two being the first two.
    assert step_positions(1, 10, 8, 4, "pad").tolist() == [8, 9, 0, 1][:4]
    assert step_positions(0, 2, 8, 8, "pad").tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert rank_positions(1, 11, 8, Shard(1, 2), "pad").tolist() == [10, 0]


def test_evening_leaves_out_fewer_samples_than_ranks() -> None:
    assert step_positions(1, 13, 8, 4, "even").tolist() == [8, 9, 10, 11]
    assert steps_per_epoch(11, 8, 4, "even") == 1
    assert steps_per_epoch(11, 8, 4, "pad") == 2
    assert steps_per_epoch(15, 8, 4, "drop") == 1


def test_steps_far_into_a_huge_epoch_are_found_by_arithmetic() -> None:
    n = 2**63 - 1
    step = steps_per_epoch(n, 2**20, 8, "pad") - 1
    assert rank_positions(step - 1, n, 2**20, Shard(7, 8), "pad")[-1] == step * 2**20 - 1
    last = step_positions(step, n, 2**20, 8, "pad")
    assert last[-2:].tolist() == [n - 1, 0]


@pytest.mark.parametrize(
    ("per_step", "world", "text"),
    [
        (
            256,
            3,
            r"256 samples cannot be shared evenly by 3 ranks\. Run it on 2 or 4 ranks, or take 255 or 258 samples",
        ),
        (10, 16, r"Run it on 10 ranks, or take 16 samples"),
        (7, 4, r"Run it on 1 or 7 ranks, or take 4 or 8 samples"),
    ],
)
def test_a_world_that_does_not_divide_the_step_is_told_which_do(per_step: int, world: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_division(per_step, world)
    with pytest.raises(ValueError, match=text):
        steps_per_epoch(1000, per_step, world)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Shard(3, 3), "ranks go from 0 to 2"),
        (lambda: Shard(-1, 3), "rank should be at least 0"),
        (lambda: Shard(0, 0), "world should be at least 1"),
        (lambda: rank_positions(5, 20, 4, Shard()), "step 5 is not in the epoch: 20 samples make 5 steps of 4"),
        (lambda: steps_per_epoch(10, 4, 2, "wrap"), "last should be one of"),  # type: ignore[arg-type]
        (lambda: steps_per_epoch(10, 0), "samples per step should be at least 1"),
    ],
)
def test_bad_shards_and_steps_are_named(call: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()  # type: ignore[operator]
