"""What one epoch leaves out begins the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.order import LeftoversFirst, Sequential, Shuffle

GOLDEN = Path(__file__).parents[1] / "golden" / "order_leftovers.json"


@st.composite
def orders(draw: st.DrawFn) -> LeftoversFirst:
    n = draw(st.integers(1, 200))
    base = draw(st.sampled_from([Sequential(n), Shuffle(n, 3)]))
    return LeftoversFirst(base, draw(st.integers((n + 1) // 2, n)))


@given(orders(), st.integers(0, 2**40))
def test_every_epoch_is_a_permutation(order: LeftoversFirst, epoch: int) -> None:
    assert sorted(order.indices(range(order.n), epoch).tolist()) == list(range(order.n))


@given(orders(), st.integers(0, 2**40))
def test_a_pair_of_epochs_uses_every_sample(order: LeftoversFirst, pair: int) -> None:
    used = {
        *order.indices(range(order.used), 2 * pair).tolist(),
        *order.indices(range(order.used), 2 * pair + 1).tolist(),
    }
    assert used == set(range(order.n))


@given(orders(), st.integers(0, 2**40))
def test_even_epochs_are_the_orders_own(order: LeftoversFirst, pair: int) -> None:
    whole = range(order.n)
    assert order.indices(whole, 2 * pair).tolist() == order.order.indices(whole, 2 * pair).tolist()


def test_a_sequential_order_is_begun_where_it_stopped() -> None:
    assert LeftoversFirst(Sequential(7), 5).indices(range(7), 1).tolist() == [5, 6, 0, 1, 2, 3, 4]


def test_the_second_epoch_of_a_pair_is_shuffled_anew() -> None:
    order = LeftoversFirst(Shuffle(1000, 3), 990)
    first, second = (order.indices(range(990), epoch).tolist() for epoch in (0, 1))
    moved = [(place - first.index(index)) % 1000 for place, index in enumerate(second) if index in set(first)]
    assert len(set(moved)) > 500  # a mere rotation would have one


def test_its_description_says_what_it_leaves_over() -> None:
    assert LeftoversFirst(Shuffle(7, 3), 5).describe() == {"order": "shuffle", "n": 7, "seed": 3, "leftovers_first": 2}
    assert LeftoversFirst(Shuffle(7, 3), 7).describe() == Shuffle(7, 3).describe()


@pytest.mark.parametrize("used", [0, 3, 8, -1])
def test_less_than_half_or_more_than_all_cannot_be_used(used: int) -> None:
    with pytest.raises(ValueError, match="used should be at"):
        LeftoversFirst(Sequential(7), used)


def test_the_numbers_are_pinned() -> None:
    pinned: list[Any] = json.loads(GOLDEN.read_text())
    for case in pinned:
        order = LeftoversFirst(Shuffle(case["n"], case["seed"]), case["used"])
        assert order.indices(range(case["n"]), case["epoch"]).tolist() == case["indices"]
