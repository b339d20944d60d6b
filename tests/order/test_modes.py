"""The order modes that order one dataset: each a permutation, pure, describable, pinned."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.order import BlockShuffle, Order, PreShuffled, Repeat, Sequential, Shuffle

steady = settings(deadline=None, derandomize=True)  # the same examples every run, however busy the machine

GOLDEN = Path(__file__).parents[1] / "golden" / "order_modes.json"
MODES = {"Sequential": Sequential, "Shuffle": Shuffle, "BlockShuffle": BlockShuffle, "PreShuffled": PreShuffled}
orders = st.one_of(
    st.builds(Sequential, st.integers(1, 400)),
    st.builds(Shuffle, st.integers(1, 400), st.integers(0, 2**64 - 1)),
    st.builds(PreShuffled, st.integers(1, 400), st.integers(0, 9), st.integers(1, 50)),
    st.builds(
        BlockShuffle,
        st.integers(1, 400),
        st.integers(0, 99),
        st.integers(1, 60),
        st.integers(1, 9),
        st.sampled_from(["shuffled", "sequential"]),
    ),
)


@steady
@given(order=orders, epoch=st.integers(0, 2**40))
def test_an_epoch_has_every_sample_exactly_once(order: Order, epoch: int) -> None:
    assert np.array_equal(np.sort(order.indices(np.arange(order.n), epoch)), np.arange(order.n))
    assert len(order) == order.n


@steady
@given(order=orders, data=st.data())
def test_a_position_has_its_index_whoever_asks_along(order: Order, data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.integers(0, order.n - 1), max_size=20))
    whole = order.indices(np.arange(order.n), 3)
    assert order.indices(np.array(asked, dtype=np.int64), 3).tolist() == whole[asked].tolist()


@steady
@given(one=orders, other=orders)
def test_descriptions_are_json_and_equal_exactly_when_the_orders_are(one: Order, other: Order) -> None:
    assert isinstance(one, Order)
    assert (json.dumps(one.describe()) == json.dumps(other.describe())) == (one == other)
    assert pickle.loads(pickle.dumps(one)) == one


@steady
@given(
    n=st.integers(1, 500),
    block=st.integers(1, 60),
    window=st.integers(1, 9),
    seed=st.integers(0, 99),
    inside=st.sampled_from(["shuffled", "sequential"]),
)
def test_a_window_is_made_of_its_blocks_and_nothing_else(
    n: int, block: int, window: int, seed: int, inside: str
) -> None:
    order = BlockShuffle(n, seed, block, window, inside)  # type: ignore[arg-type]
    came = order.indices(np.arange(n), 1)
    start = 0
    for number in range(order.window_count):
        members = order.blocks(number, 1)
        wanted = np.concatenate([np.arange(each * block, min(n, (each + 1) * block)) for each in members])
        assert np.array_equal(np.sort(came[start : start + wanted.size]), np.sort(wanted))
        start += wanted.size
    assert start == n


@steady
@given(n=st.integers(1, 500), block=st.integers(1, 60), window=st.integers(1, 9), seed=st.integers(0, 99))
def test_sequential_inside_reads_each_block_front_to_back_in_turns(n: int, block: int, window: int, seed: int) -> None:
    came = BlockShuffle(n, seed, block, window, "sequential").indices(np.arange(n), 0)
    for each in range(-(-n // block)):
        of_block = came[came // block == each]
        assert np.array_equal(of_block, np.arange(each * block, min(n, (each + 1) * block)))


def test_block_shuffle_mixes_the_blocks_of_a_window_evenly() -> None:
    order = BlockShuffle(64 * 1000, seed=4, block=1000, window=8)
    first = order.indices(np.arange(800), 0) // 1000
    counts = [int((first == each).sum()) for each in order.blocks(0, 0)]
    assert sum(counts) == 800
    assert min(counts) > 60
    assert max(counts) < 140


def test_block_shuffle_of_a_trillion_samples_is_still_a_bijection_where_looked_at() -> None:
    order = BlockShuffle(10**12 + 17, seed=1, block=4096, window=64)
    ends = np.concatenate([np.arange(40_000), order.n - 1 - np.arange(40_000)])
    indices = order.indices(ends, 7)
    assert np.unique(indices).size == ends.size
    assert indices.min() >= 0
    assert indices.max() < order.n


def test_pre_shuffled_reads_in_sequence_from_another_block_every_epoch() -> None:
    order = PreShuffled(10_000, seed=1, block=100)
    starts = [order.start(epoch) for epoch in range(20)]
    assert len(set(starts)) > 15
    assert all(start % 100 == 0 for start in starts)
    for epoch in range(3):
        steps = np.diff(order.indices(np.arange(order.n), epoch)) % order.n
        assert (steps == 1).all()


def test_rotation_does_not_overflow_at_the_largest_size() -> None:
    order = PreShuffled(2**63 - 1, seed=3)
    last = order.indices([order.n - 1], 0)
    assert int(last[0]) == (order.start(0) - 1) % order.n


def test_a_shuffle_tells_where_an_index_comes() -> None:
    order = Shuffle(10**9, seed=3)
    indices = order.indices(np.arange(1000), 5)
    assert np.array_equal(order.positions(indices, 5), np.arange(1000))


@settings(steady, max_examples=40)
@given(order=orders, samples=st.integers(1, 60), epoch=st.integers(0, 5))
def test_repeat_goes_on_where_the_last_stretch_stopped(order: Order, samples: int, epoch: int) -> None:
    stream = np.concatenate([order.indices(np.arange(order.n), each) for each in range(1 + 6 * samples // order.n)])
    found = Repeat(order, samples).indices(np.arange(samples), epoch)
    assert np.array_equal(found, stream[epoch * samples : (epoch + 1) * samples])


def test_repeat_counts_beyond_64_bits_without_losing_its_place() -> None:
    stream = Repeat(Shuffle(10**6 + 3), 2**62)
    epochs, places = stream.locate([2**62 - 1], 1000)
    assert (int(epochs[0]), int(places[0])) == divmod(1001 * 2**62 - 1, 10**6 + 3)
    assert Repeat.for_steps(Shuffle(10), 7, 4).n == 28


def test_the_modes_are_those_of_the_golden_file() -> None:
    for case in json.loads(GOLDEN.read_text()):
        order = MODES[case["mode"]](**case["settings"])
        assert order.indices(case["positions"], case["epoch"]).tolist() == case["indices"], case


@pytest.mark.parametrize("order", [Sequential(0), Shuffle(0), PreShuffled(0), BlockShuffle(0)])
def test_an_empty_dataset_has_an_empty_order(order: Order) -> None:
    assert order.indices([], 0).tolist() == []
    with pytest.raises(ValueError, match="outside of an order of 0 samples"):
        order.indices([0], 0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Shuffle(-1), "n should be at least 0, but got -1"),
        (lambda: Shuffle(10, seed=-1), "seed should be from 0"),
        (lambda: Shuffle(10, seed=2**64), "seed should be from 0"),
        (lambda: BlockShuffle(10, block=0), "block should be at least 1"),
        (lambda: BlockShuffle(10, window=0), "window should be at least 1"),
        (lambda: BlockShuffle(10, inside="random"), "inside should be"),  # type: ignore[arg-type]
        (lambda: Shuffle(10).indices([0], -1), "epoch should be from 0"),
        (lambda: Repeat(Shuffle(0), 5), "nothing to repeat"),
        (lambda: BlockShuffle(10, block=5).blocks(1, 0), "window should be at most 0"),
    ],
)
def test_bad_settings_are_named(make: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()  # type: ignore[operator]


def test_a_seed_that_is_no_whole_number_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="seed should be a whole number"):
        Shuffle(10, seed=1.5)  # type: ignore[arg-type]
