"""Shuffle quality: sorted < block-shuffled < fully shuffled, and the other way round for what reading costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.order import BlockShuffle, PreShuffled, Sequential, Shuffle, sequential_reads, shuffle_quality

steady = settings(deadline=None, derandomize=True)  # the same examples every run, however busy the machine

N = 200_000


def test_sorted_block_shuffled_and_fully_shuffled_come_out_in_that_sequence() -> None:
    found = [shuffle_quality(order) for order in (Sequential(N), BlockShuffle(N, 1), Shuffle(N, 1))]
    qualities = [each.quality for each in found]
    assert qualities == sorted(qualities)
    assert qualities[0] == 0
    assert 0.6 < qualities[1] < 0.9
    assert qualities[2] > 0.97


def test_what_they_cost_in_reads_comes_out_in_the_same_sequence() -> None:
    found = [shuffle_quality(order) for order in (Sequential(N), BlockShuffle(N, 1), Shuffle(N, 1))]
    reads = [each.reads_per_sample for each in found]
    assert reads[0] < reads[1] < reads[2]
    assert reads[1] == pytest.approx(1 / 1024, rel=0.02)
    assert found[0].sequential_share > found[1].sequential_share > 0.99 > 0.2 > found[2].sequential_share


def test_a_wider_window_is_better_and_costs_no_more_reads() -> None:
    found = [shuffle_quality(BlockShuffle(N, 1, 256, window)) for window in (1, 4, 16, 64, 256)]
    qualities = [each.quality for each in found]
    assert qualities == sorted(qualities)
    assert qualities[0] < 0.05
    assert qualities[-1] > 0.9
    assert len({each.cost.blocks_fetched for each in found}) == 1


def test_a_block_shuffle_fetches_every_block_exactly_once() -> None:
    for inside in ("shuffled", "sequential"):
        order = BlockShuffle(50_000, 3, 100, 8, inside)  # type: ignore[arg-type]
        assert sequential_reads(order.indices(np.arange(order.n), 0), 100, held=8).blocks_fetched == 500


def test_a_window_of_sixteen_blocks_is_worth_about_sixteen_draws() -> None:
    assert shuffle_quality(BlockShuffle(10**8, 1, 1024, 16)).effective_batch == pytest.approx(16, rel=0.25)
    assert shuffle_quality(Shuffle(10**6, 1)).effective_batch > 180
    assert shuffle_quality(Sequential(10**6)).effective_batch == pytest.approx(1, rel=0.05)


def test_quality_of_a_list_is_that_of_the_order_it_came_from() -> None:
    order = Shuffle(20_000, 4)
    listed = order.indices(np.arange(order.n), 3)
    assert shuffle_quality(listed) == shuffle_quality(order, epoch=3)


def test_a_rotation_and_a_reversal_are_as_bad_as_sorted() -> None:
    assert shuffle_quality(PreShuffled(N)).quality < 0.02
    assert shuffle_quality(np.arange(N)[::-1].copy()).quality < 0.02


def test_a_billion_samples_are_judged_by_a_part_of_them() -> None:
    assert shuffle_quality(Shuffle(10**9, 1)).quality > 0.97
    assert shuffle_quality(Sequential(10**9)).quality == 0


@steady
@given(seed=st.integers(0, 10**6), n=st.integers(16, 5000), batch=st.integers(2, 500))
def test_quality_is_a_number_from_zero_to_one_whatever_the_sizes(seed: int, n: int, batch: int) -> None:
    found = shuffle_quality(Shuffle(n, seed), batch=batch)
    assert 0 <= found.quality <= 1
    assert found.batch <= n // 8


@pytest.mark.parametrize(
    ("indices", "held", "fetched", "reads"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 1, 2, 1),
        ([4, 5, 6, 7, 0, 1, 2, 3], 1, 2, 2),
        ([0, 4, 1, 5, 2, 6], 1, 6, 3),
        ([0, 4, 1, 5, 2, 6], 2, 2, 1),
        ([0, 4, 8, 0, 4, 8], 2, 6, 2),
        ([], 1, 0, 0),
    ],
)
def test_fetches_and_reads_are_counted_as_a_person_would(
    indices: list[int], held: int, fetched: int, reads: int
) -> None:
    cost = sequential_reads(indices, block=4, held=held)
    assert (cost.blocks_fetched, cost.reads) == (fetched, reads)


def test_too_few_samples_to_judge_is_said() -> None:
    with pytest.raises(ValueError, match="15 samples are too few"):
        shuffle_quality(Shuffle(15))
