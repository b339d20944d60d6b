"""The pool against a perfect twin: random takes, leases, views, drops and forks, and nothing held ever changes."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from stoker.slots import Arena, SlotPool

MOST_LEASED = 4


class PoolTwin(RuleBasedStateMachine):
    """Every slot has one owner in the twin; the pool must never hand it out while that owner lives."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = SlotPool(Arena(), most_leased=MOST_LEASED)
        self.pool.arena.pids_that_map = lambda: {1}  # type: ignore[method-assign] # the children live on
        self.free: list[int] = []  # as a stack: the most recently freed is on top
        self.under_way: set[int] = set()
        self.held: dict[int, tuple[int, int, list[Any]]] = {}  # key -> (slot, value, views)
        self.retired: set[int] = set()
        self.made = 0
        self.value = 0

    taken = Bundle("taken")
    batches = Bundle("batches")

    @rule(target=taken)
    def take(self) -> int:
        slot = self.pool.take()
        if self.free:
            assert slot == self.free.pop()
        else:
            assert slot == self.made
            self.made += 1
        assert slot not in self.under_way
        assert slot not in {owner for owner, _, _ in self.held.values()}
        self.under_way.add(slot)
        return slot

    @rule(slot=consumes(taken))
    def give_back(self, slot: int) -> None:
        self.pool.give_back(slot)
        self.under_way.discard(slot)
        self.free.append(slot)

    @rule(target=batches, slot=consumes(taken), size=st.sampled_from([1, 100, 5000, 300_000]))
    def lease(self, slot: int, size: int) -> int:
        self.value += 1
        value = self.value % 251
        self.pool.arena.rows(slot, size)[:] = value
        self.under_way.discard(slot)
        owner = self.pool.lease(slot, size)
        assert (owner is None) == (len(self.held) >= MOST_LEASED)
        if owner is None:
            self.pool.give_back(slot)
            self.free.append(slot)
            return 0
        self.held[self.value] = (slot, value, [owner])
        return self.value

    @rule(key=batches, kind=st.sampled_from(["slice", "tensor", "reshaped", "memoryview"]))
    def add_view(self, key: int, kind: str) -> None:
        if key in self.held:
            view = self.held[key][2][0]
            self.held[key][2].append(_viewed(view, kind))

    @rule(key=batches, at=st.integers(0, 5))
    def drop_view(self, key: int, at: int) -> None:
        if key not in self.held:
            return
        slot, _, views = self.held[key]
        views.pop(at % len(views))
        if not views:
            del self.held[key]
            if slot not in self.retired:
                self.free.append(slot)

    @precondition(lambda self: self.held)
    @rule()
    def fork(self) -> None:
        self.pool.retire_leased()
        self.retired |= {slot for slot, _, _ in self.held.values()}

    @invariant()
    def nothing_held_has_changed(self) -> None:
        for _, value, views in self.held.values():
            for view in views:
                assert (np.asarray(view) == value).all()

    @invariant()
    def counts_agree(self) -> None:
        assert self.pool.made == self.made
        assert self.pool.leased == len(self.held)

    def teardown(self) -> None:
        self.held.clear()
        self.pool.arena.close()


def _viewed(view: Any, kind: str) -> Any:
    array = np.asarray(view)
    if kind == "slice":
        return array[len(array) // 2 :]
    if kind == "tensor":
        return torch.from_numpy(array)[len(array) - 1 :]
    if kind == "reshaped":
        return array.reshape(1, -1).T
    return memoryview(array)[:1]


PoolTwin.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPoolTwin = PoolTwin.TestCase


@pytest.fixture
def pool() -> Any:
    made = SlotPool(Arena())
    yield made
    made.arena.close()


def test_a_slot_is_free_when_its_last_view_dies_in_another_thread(pool: SlotPool) -> None:
    slot = pool.take()
    views = [pool.lease(slot, 50_000)]
    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()
    assert pool.take() == slot


def test_a_view_in_a_reference_cycle_frees_its_slot_when_collected(pool: SlotPool) -> None:
    slot = pool.take()
    cycle: list[Any] = [pool.lease(slot, 50_000)]
    cycle.append(cycle)
    assert pool.take() != slot
    del cycle
    gc.collect()
    assert pool.leased == 0
    assert pool.take() == slot


def test_leases_are_bounded_by_bytes() -> None:
    pool = SlotPool(Arena(), most_leased=1000, most_leased_bytes=10_000_000)
    kept = [pool.lease(pool.take(), 1_000_000) for _ in range(40)]
    leased_bytes = sum(owner.nbytes for owner in kept if owner is not None)
    del kept
    pool.arena.close()
    assert 10_000_000 <= leased_bytes <= 12_000_000


def test_a_slot_that_grows_leaves_older_views_where_they_are(pool: SlotPool) -> None:
    slot = pool.take()
    small = pool.arena.rows(slot, 100)
    small[:] = 7
    large = pool.arena.rows(slot, 10_000_000)
    assert (large[:100] == 7).all()  # the same memory
    large[:] = 9
    assert (small == 9).all()
    pool.give_back(slot)


def test_views_outlive_the_pool_and_the_arena() -> None:
    pool = SlotPool(Arena())
    owner = pool.lease(pool.take(), 100_000)
    assert owner is not None
    owner[:] = 5
    tensor = torch.from_numpy(owner[1000:])
    del owner
    pool.arena.close()
    del pool
    assert tensor.eq(5).all()
