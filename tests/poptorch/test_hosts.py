"""Host processes take disjoint blocks, and what an epoch leaves out comes in the next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.poptorch.data import loaders, numbers_of

import stoker.poptorch as poptorch
from stoker.poptorch.hosts import HostBlock


def blocks(length: int, hosts: int, per_step: int, drop_last: bool, seed: int | None) -> list[HostBlock]:
    return [HostBlock(length, host, hosts, per_step, drop_last, seed) for host in range(hosts)]


SIZES = (st.integers(1, 200), st.integers(1, 5), st.integers(1, 7), st.integers(0, 9))


@settings(max_examples=150, deadline=None)
@given(*SIZES, st.none() | st.integers(0, 2**40))
def test_whole_steps_are_disjoint_and_equal_on_all_hosts(
    length: int, hosts: int, per_step: int, epoch: int, seed: int | None
) -> None:
    assume(length >= hosts * per_step)
    parts = blocks(length, hosts, per_step, True, seed)
    taken = [part.indices(range(part.n), epoch).tolist() for part in parts]
    assert len({len(part) for part in taken}) == 1
    together = [index for part in taken for index in part]
    assert len(set(together)) == len(together) == length // (hosts * per_step) * hosts * per_step
    assert set(together) <= set(range(length))


@settings(max_examples=150, deadline=None)
@given(*SIZES, st.none() | st.integers(0, 2**40))
def test_with_the_tail_kept_every_sample_has_one_host(
    length: int, hosts: int, per_step: int, epoch: int, seed: int | None
) -> None:
    parts = blocks(length, hosts, per_step, False, seed)
    taken = [part.indices(range(part.n), epoch).tolist() for part in parts]
    assert sorted(index for part in taken for index in part) == list(range(length))
    assert max(map(len, taken)) - min(map(len, taken)) <= 1


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(1, 5), st.integers(1, 7), st.integers(0, 5), st.integers(0, 2**40))
def test_two_epochs_of_all_hosts_have_every_sample(
    length: int, hosts: int, per_step: int, pair: int, seed: int
) -> None:
    assume(length >= hosts * per_step)
    parts = blocks(length, hosts, per_step, True, seed)
    seen = {
        int(index)
        for part in parts
        for epoch in (2 * pair, 2 * pair + 1)
        for index in part.indices(range(part.n), epoch)
    }
    assert seen == set(range(length))


def test_unshuffled_blocks_follow_each_other() -> None:
    assert [numbers_of(loader) for loader in loaders(3)] == [list(range(at, at + 20)) for at in range(0, 60, 20)]


def test_a_shuffle_is_global_and_new_each_epoch() -> None:
    first = loaders(3, shuffle=True)[0]
    epochs = [sorted(numbers_of(first)) for _ in range(5)]
    assert all(one != other for place, one in enumerate(epochs) for other in epochs[place + 1 :])


@pytest.mark.parametrize("mode", list(poptorch.DataLoaderMode))
def test_the_order_is_the_same_in_every_mode_and_for_any_workers(mode: Any) -> None:
    reference = loaders(2, shuffle=True)[1]
    other = loaders(2, shuffle=True, mode=mode, num_workers=2)[1]
    assert [numbers_of(other) for _ in range(3)] == [numbers_of(reference) for _ in range(3)]


@pytest.mark.parametrize("mode", [poptorch.DataLoaderMode.Sync, poptorch.DataLoaderMode.Async])
def test_an_epoch_can_be_chosen(mode: Any) -> None:
    one, other = loaders(1, shuffle=True)[0], loaders(1, shuffle=True, mode=mode)[0]
    epochs = [numbers_of(one) for _ in range(4)]
    other.set_epoch(3)
    assert numbers_of(other) == epochs[3]
    other.set_epoch(1)
    assert numbers_of(other) == epochs[1]
