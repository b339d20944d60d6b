"""The keyed permutation: a bijection for every n, pinned, and as random as chi-square can tell."""

from __future__ import annotations

import json
import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.order import Key, Purpose, permute, unpermute

steady = settings(deadline=None, derandomize=True)  # the same examples every run, however busy the machine

GOLDEN = Path(__file__).parents[1] / "golden" / "order_permutation.json"
seeds = st.integers(0, 2**64 - 1)
epochs = st.integers(0, 2**64 - 1)


def _key(seed: int, epoch: int = 0) -> Key:
    return Key(seed, epoch, Purpose.SHUFFLE)


def _deviation(counts: np.ndarray) -> float:
    """How many standard deviations chi-square lies from what even counts would give."""
    expected, freedom = counts.sum() / counts.size, counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


@pytest.mark.parametrize("n", [1, 2, 3, 63, 64, 97, 1023, 1024, 1025, 2**20])
def test_every_index_comes_exactly_once(n: int) -> None:
    assert np.array_equal(np.sort(permute(np.arange(n), n, _key(5))), np.arange(n))


@steady
@given(n=st.integers(1, 3000), seed=seeds, epoch=epochs, stream=st.none() | st.integers(0, 2**63 - 1))
def test_every_index_comes_exactly_once_for_any_size_and_key(n: int, seed: int, epoch: int, stream: int | None) -> None:
    shuffled = permute(np.arange(n), n, _key(seed, epoch), stream)
    assert np.array_equal(np.sort(shuffled), np.arange(n))


@steady
@given(n=st.integers(1, 2**63), seed=seeds, data=st.data())
def test_the_inverse_leads_back_for_sizes_up_to_two_to_the_63(n: int, seed: int, data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20))
    indices = permute(positions, n, _key(seed))
    assert ((indices >= 0) & (indices.astype(np.uint64) < n)).all()
    assert unpermute(indices, n, _key(seed)).tolist() == positions


@pytest.mark.parametrize("n", [10**12, 2**63 - 25, 2**63])
def test_a_huge_permutation_does_not_repeat_itself_in_a_sample(n: int) -> None:
    ends = np.concatenate([np.arange(50_000), np.arange(50_000) + (n - 50_000)])
    indices = permute(ends, n, _key(1))
    assert np.unique(indices).size == ends.size
    assert np.array_equal(unpermute(indices, n, _key(1)), ends)
    assert abs(_deviation(np.bincount((indices.astype(np.float64) / n * 100).astype(int), minlength=100))) < 5


@steady
@given(n=st.integers(1, 10**12), positions=st.lists(st.integers(0, 2**62), min_size=1, max_size=30), seed=seeds)
def test_a_position_has_its_index_whoever_asks_along(n: int, positions: list[int], seed: int) -> None:
    places = [position % n for position in positions]
    together = permute(places, n, _key(seed)).tolist()
    assert together == [int(permute([place], n, _key(seed))[0]) for place in places]


@steady
@given(n=st.integers(2, 500), streams=st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_streams_given_as_an_array_equal_streams_given_one_by_one(n: int, streams: list[int]) -> None:
    places = np.arange(len(streams)) % n
    together = permute(places, n, _key(3), np.array(streams))
    assert together.tolist() == [
        int(permute([place], n, _key(3), stream)[0]) for place, stream in zip(places, streams, strict=True)
    ]


def test_the_permutation_is_the_one_of_the_golden_file() -> None:
    for case in json.loads(GOLDEN.read_text()):
        key = Key(case["seed"], case["epoch"], Purpose(case["purpose"]))
        assert permute(case["positions"], case["n"], key, case["stream"]).tolist() == case["indices"], case


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_small_sets_come_in_all_sequences_equally_often(n: int) -> None:
    trials = 120_000
    streams = np.repeat(np.arange(trials), n)
    rows = permute(np.tile(np.arange(n), trials), n, _key(0), streams).reshape(trials, n)
    codes = rows @ (n ** np.arange(n))
    all_codes = np.array(list(permutations(range(n)))) @ (n ** np.arange(n))
    counts = np.array([(codes == code).sum() for code in all_codes])
    assert counts.sum() == trials
    assert abs(_deviation(counts)) < 4


@pytest.mark.parametrize("n", [7, 8, 9, 10, 97, 1000])
def test_every_index_is_as_likely_at_every_position_and_pairs_are_too(n: int) -> None:
    trials = 200_000
    for first, second in [(0, 1), (n // 2, n - 1)]:
        pairs = permute(np.tile([first, second], trials), n, _key(0), np.repeat(np.arange(trials), 2)).reshape(-1, 2)
        assert abs(_deviation(np.bincount(pairs[:, 0], minlength=n))) < 4.5
        apart = (pairs[:, 1] - pairs[:, 0]) % n
        assert abs(_deviation(np.bincount(apart, minlength=n)[1:])) < 4.5


@pytest.mark.parametrize("n", [2**20, 10**6 + 3])
def test_neighbours_and_whole_rows_apart_are_unrelated(n: int) -> None:
    indices = permute(np.arange(n), n, _key(1))
    row = -(-n // (math.isqrt(n - 1) + 1))
    for lag in (1, 2, row - 1, row, row + 1, 7 * row):
        apart = (indices[lag:] - indices[:-lag]) % n
        assert abs(_deviation(np.bincount(apart * 1000 // n, minlength=1000))) < 5, lag
    assert abs(np.corrcoef(indices[1:], indices[:-1])[0, 1]) < 0.005


@pytest.mark.parametrize("n", [1000, 2**20])
def test_epochs_seeds_and_purposes_are_unlike(n: int) -> None:
    keys = [_key(0, 0), _key(0, 1), _key(1, 0), _key(1, 1), Key(0, 0, Purpose.BLOCKS), _key(2**63, 0)]
    orders = [permute(np.arange(n), n, key) for key in keys]
    for number, one in enumerate(orders):
        for other in orders[:number]:
            assert (one == other).sum() < 15  # one agreement is expected, whatever n
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(n)


def test_positions_keep_their_shape_and_are_not_touched() -> None:
    positions = np.arange(6).reshape(2, 3)
    assert permute(positions, 10**9, _key(0)).shape == (2, 3)
    assert positions.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert permute([], 0, _key(0)).size == 0


@pytest.mark.parametrize("wrong", [-1, 100, 2**62])
def test_a_position_outside_is_named(wrong: int) -> None:
    with pytest.raises(ValueError, match=f"position {wrong} is outside of an order of 100 samples"):
        permute([0, wrong], 100, _key(0))


def test_more_samples_than_indices_can_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at most 2\*\*63"):
        permute([0], 2**63 + 1, _key(0))
