"""Weighted mixing: proportions to within one sample at every cut, and a stated end for each part."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.order import Mix, Repeat, Sequential, Shuffle
from stoker.order.turns import LONGEST, lay_out, whole_weights

steady = settings(deadline=None, derandomize=True)  # the same examples every run, however busy the machine

mixes = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 12)), min_size=1, max_size=5)


def _mix(sizes_and_weights: list[tuple[int, int]], when_used_up: str) -> Mix:
    parts = [Shuffle(size, seed) for seed, (size, _) in enumerate(sizes_and_weights)]
    return Mix(parts, [weight for _, weight in sizes_and_weights], when_used_up)  # type: ignore[arg-type]


def _worst_error(part: np.ndarray, weights: tuple[int, ...]) -> Fraction:
    """The largest distance, over all cuts and parts, of the turns a part had from the turns it should have had."""
    cuts = np.arange(1, part.size + 1)
    scaled = [
        np.abs(np.cumsum(part == each) * sum(weights) - cuts * weight).max() for each, weight in enumerate(weights)
    ]
    return Fraction(int(max(scaled)), sum(weights))


@steady
@given(weights=st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_every_cut_has_each_share_to_within_one_sample(weights: list[int]) -> None:
    whole = whole_weights(weights)
    part, _ = lay_out(whole).at(np.arange(2 * sum(whole)))
    assert _worst_error(part, whole) < 1


@pytest.mark.parametrize(
    "weights",
    [(1,) * 50, (50, *(1,) * 50), (65_000, 300, 200, 36), (30_000, 20_000, 15_000, 535, 1), tuple(range(1, 60))],
)
def test_awkward_weights_keep_their_shares_too(weights: tuple[int, ...]) -> None:
    whole = whole_weights(weights)
    part, _ = lay_out(whole).at(np.arange(sum(whole)))
    assert _worst_error(part, whole) < 1


@steady
@given(weights=st.lists(st.integers(1, 30), min_size=1, max_size=6), far=st.integers(0, 2**40))
def test_turns_are_counted_without_walking_there(weights: list[int], far: int) -> None:
    turns = lay_out(whole_weights(weights))
    near = np.arange(far, far + 40)
    part, before = turns.at(near)
    for number in range(len(weights)):
        had = before[part == number]
        assert np.array_equal(had, turns.taken(number, far) + np.arange(had.size))
        for turn, count in zip(near[part == number], had, strict=True):
            assert turns.end_of(number, int(count) + 1) == turn + 1


@steady
@given(case=mixes)
def test_stop_ends_with_the_part_that_is_used_up_first_and_repeats_nothing(case: list[tuple[int, int]]) -> None:
    mix = _mix(case, "stop")
    indices = mix.indices(np.arange(mix.n), 2)
    part, place = mix.locate(np.arange(mix.n))
    assert np.unique(indices).size == indices.size
    sizes = [size for size, _ in case]
    assert place[-1] == sizes[part[-1]] - 1
    assert all((part == number).sum() <= size for number, size in enumerate(sizes))
    assert sum((part == number).sum() == size for number, size in enumerate(sizes)) >= 1
    assert _worst_error(part, mix.weights) < 1  # type: ignore[arg-type]


@steady
@given(case=mixes)
def test_drop_gives_every_sample_exactly_once(case: list[tuple[int, int]]) -> None:
    mix = _mix(case, "drop")
    assert mix.n == sum(size for size, _ in case)
    assert np.array_equal(np.sort(mix.indices(np.arange(mix.n), 1)), np.arange(mix.n))


@settings(steady, max_examples=40)
@given(case=mixes)
def test_repeat_uses_every_part_up_and_goes_on_in_the_next_epoch(case: list[tuple[int, int]]) -> None:
    mix = _mix(case, "repeat")
    seen = np.concatenate([mix.indices(np.arange(mix.n), epoch) for epoch in range(2)])
    counts = np.bincount(seen, minlength=mix.offsets[-1])
    assert set(np.unique(mix.indices(np.arange(mix.n), 0))) == set(range(mix.offsets[-1]))
    for start, stop in zip(mix.offsets, mix.offsets[1:], strict=False):
        assert np.ptp(counts[start:stop]) <= 1
    part, _ = mix.locate(np.arange(mix.n))
    assert _worst_error(part, mix.weights) < 1  # type: ignore[arg-type]


@steady
@given(case=mixes, when_used_up=st.sampled_from(["stop", "repeat", "drop"]), data=st.data())
def test_a_position_has_its_index_whoever_asks_along(
    case: list[tuple[int, int]], when_used_up: str, data: st.DataObject
) -> None:
    mix = _mix(case, when_used_up)
    asked = data.draw(st.lists(st.integers(0, mix.n - 1), min_size=1, max_size=20))
    assert mix.indices(asked, 1).tolist() == mix.indices(np.arange(mix.n), 1)[asked].tolist()


@steady
@given(case=mixes)
def test_dropping_keeps_proportions_between_departures(case: list[tuple[int, int]]) -> None:
    mix = _mix(case, "drop")
    part, _ = mix.locate(np.arange(mix.n))
    weights = {number: weight for number, (_, weight) in enumerate(case)}
    lasts = sorted(int(np.flatnonzero(part == number)[-1]) + 1 for number in weights)
    for start, stop in zip([0, *lasts], lasts, strict=False):
        staying = sorted(number for number in weights if np.flatnonzero(part == number)[-1] >= start)
        members = np.searchsorted(staying, part[start:stop])
        assert _worst_error(members, tuple(weights[number] for number in staying)) < 1


def test_the_schedule_is_pinned() -> None:
    mix = Mix([Sequential(100), Sequential(100), Sequential(100)], (5, 3, 2))
    assert mix.locate(np.arange(10))[0].tolist() == [0, 1, 0, 2, 0, 1, 0, 1, 0, 2]
    assert mix.indices([0, 1, 3, 100], 0).tolist() == [0, 100, 200, 50]


@pytest.mark.parametrize(
    ("given_as", "whole"),
    [
        ((0.7, 0.2, 0.1), (7, 2, 1)),
        ((1 / 3, 2 / 3), (1, 2)),
        ((10, 4), (5, 2)),
        ((Fraction(1, 7), 1), (1, 7)),
        ((np.float32(0.5), np.int64(2)), (1, 4)),
    ],
)
def test_weights_mean_the_numbers_a_person_wrote(given_as: tuple[float, ...], whole: tuple[int, ...]) -> None:
    assert whole_weights(given_as) == whole


def test_weights_too_fine_for_a_period_are_refused_with_near_ones() -> None:
    with pytest.raises(ValueError, match=rf"at most {LONGEST}\. Near enough are \(9624, 376\)"):
        Mix([Shuffle(10), Shuffle(10)], (1_281_167, 50_000))


def test_mixes_can_hold_mixes_and_repeats() -> None:
    inner = Mix([Shuffle(10, 1), Shuffle(30, 2)], (1, 1))
    outer = Mix([inner, Repeat(Shuffle(5, 3), 20), Sequential(7)], (2, 1, 1), "drop")
    indices = outer.indices(np.arange(outer.n), 0)
    assert outer.offsets == (0, 40, 45, 52)
    assert outer.n == inner.n + 20 + 7
    assert np.bincount(indices, minlength=52)[40:].tolist() == [4] * 5 + [1] * 7


def test_a_mix_of_billions_finds_its_place_at_once() -> None:
    mix = Mix([Shuffle(10**12, 1), Shuffle(10**11, 2)], (9, 1), "repeat")
    part, place = mix.locate([10**12 - 1, 10**12])
    assert abs(int(place[part == 0][0]) - 9 * 10**11) <= 1
    assert mix.indices([10**12 - 1], 0)[0] < mix.offsets[-1]


def test_equal_mixes_are_equal_and_describe_themselves_alike() -> None:
    one, other = (Mix([Shuffle(10), Sequential(5)], weights) for weights in [(0.8, 0.2), (4, 1)])
    assert one == other
    assert hash(one) == hash(other)
    assert json.dumps(one.describe()) == json.dumps(other.describe())
    assert one != Mix([Shuffle(10), Sequential(5)], (4, 1), "drop")


@pytest.mark.parametrize(
    ("parts", "weights", "rule", "text"),
    [
        ([], [], "stop", "at least one part"),
        ([Shuffle(3)], [1, 2], "stop", "1 parts and 2 weights"),
        ([Shuffle(3), Shuffle(0)], [1, 2], "stop", "part 1 of the mix has no samples"),
        ([Shuffle(3)], [0], "stop", "more than 0"),
        ([Shuffle(3)], [float("nan")], "stop", "more than 0"),
        ([Shuffle(3)], [float("inf")], "stop", "finite"),
        ([Shuffle(3)], [1], "wait", "when_used_up should be"),
        ([Sequential(2**62), Sequential(2**62), Sequential(1)], [1, 1, 1], "stop", "indices go up to"),
    ],
)
def test_bad_mixes_are_named(parts: list[Shuffle], weights: list[float], rule: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Mix(parts, weights, rule)  # type: ignore[arg-type]
