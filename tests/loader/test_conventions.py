"""What code written for torch's loader can observe: worker ids, seeds, init functions, order, prefetch, persistence."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.comparing import outcomes
from tests.datasets import Made, Numbers, SizedNumbers, number
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import stoker
from stoker import Workers

BOTH: Any = pytest.mark.parametrize("kind", [DataLoader, stoker.DataLoader], ids=["torch", "stoker"])
FORK: dict[str, Any] = {"multiprocessing_context": "fork"}
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class WhoAmI:
    """Samples say who made them."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Any]:
        info = get_worker_info()
        if info is None:
            return {"id": -1}
        return {"id": info.id, "of": info.num_workers, "seed": info.seed, "same": info.dataset is self}


class Draws:
    """Samples are what the global generators give, after their seeds: what a worker starts from."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[float, int, int, int]:
        return random.random(), int(np.random.randint(2**31)), int(torch.randint(2**62, ())), torch.initial_seed()


def prepared(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.prepared = (worker, torch.initial_seed() - info.seed)


class Prepared(Made):
    prepared: Any = (-1, -1)

    def __getitem__(self, index: int) -> Any:
        return self.prepared


@BOTH
def test_the_training_process_is_not_a_worker(kind: Any) -> None:
    assert next(iter(kind(WhoAmI(), 12)))["id"].tolist() == [-1] * 12
    assert get_worker_info() is None


@BOTH
def test_workers_know_who_they_are(kind: Any) -> None:
    generator = torch.Generator().manual_seed(5)
    base = int(torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(5)))
    (*batches,) = kind(WhoAmI(), 3, num_workers=3, generator=generator, **FORK)
    ids = torch.cat([batch["id"] for batch in batches])
    assert set(ids.tolist()) == {0, 1, 2}
    assert torch.cat([batch["of"] for batch in batches]).tolist() == [3] * 12
    assert (torch.cat([batch["seed"] for batch in batches]) - ids).tolist() == [base] * 12
    assert torch.cat([batch["same"] for batch in batches]).all()


def test_threads_are_not_workers() -> None:
    assert set(next(iter(stoker.DataLoader(WhoAmI(), 12, workers=Workers(0, 4))))["id"].tolist()) == {-1}


def test_generators_of_workers_start_where_torchs_do() -> None:
    found = []
    for kind in (DataLoader, stoker.DataLoader):
        loader: Any = kind(Draws(), 1, num_workers=2, generator=torch.Generator().manual_seed(9), **FORK)
        found.append(outcomes(loader))
    assert found[0] == found[1]


def test_the_global_generator_is_drawn_from_as_often_as_by_torch() -> None:
    states = []
    for kind in (DataLoader, stoker.DataLoader):
        torch.manual_seed(3)
        for workers in (0, 2):
            loader: Any = kind(Made(10, number), 3, shuffle=True, num_workers=workers)
            for _ in range(2):
                list(loader)
        states.append(torch.get_rng_state())
    assert torch.equal(states[0], states[1])


@pytest.mark.parametrize("length", [9, 10])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("taken", range(5))
def test_after_any_batch_the_generator_stands_where_torchs_does(length: int, drop_last: bool, taken: int) -> None:
    states = []
    for kind in (DataLoader, stoker.DataLoader):
        generator = torch.Generator().manual_seed(3)
        loader: Any = kind(Made(length, number), 3, shuffle=True, generator=generator, drop_last=drop_last)
        iterator = iter(loader)
        for _ in range(min(taken, len(loader))):
            next(iterator)
        states.append(generator.get_state())
    assert torch.equal(states[0], states[1])


def test_epochs_shuffle_like_torchs() -> None:
    orders = []
    for kind in (DataLoader, stoker.DataLoader):
        generator = torch.Generator().manual_seed(3)
        loader: Any = kind(Made(20, number), 3, shuffle=True, generator=generator, num_workers=2, **FORK)
        orders.append([torch.cat(list(loader)).tolist() for _ in range(3)])
    assert orders[0] == orders[1]


@BOTH
def test_init_functions_run_in_each_worker_after_seeding(kind: Any) -> None:
    loader = kind(Prepared(8, number), 1, num_workers=2, worker_init_fn=prepared, **FORK)
    assert [tuple(map(int, batch)) for batch in loader] == [(0, 0), (1, 0)] * 4


@pytest.mark.parametrize("more", [{"worker_init_fn": prepared}, {"workers": Workers(2, 1, "fork", "batches")}])
def test_whole_batches_go_round_like_torchs(more: dict[str, Any]) -> None:
    more = more if "workers" in more else {**more, "num_workers": 2, **FORK}
    batches = [batch["id"].tolist() for batch in stoker.DataLoader(WhoAmI(), 3, **more)]
    assert batches == [[0] * 3, [1] * 3] * 2


def test_batches_of_one_go_round_like_torchs() -> None:
    loader = stoker.DataLoader(WhoAmI(), 1, num_workers=3, **FORK)
    assert [int(batch["id"]) for batch in loader] == [0, 1, 2] * 4


class Tracked(Made):
    """Counts how many samples have been asked for."""

    def __init__(self, length: int) -> None:
        super().__init__(length, number)
        self.asked = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __getitem__(self, index: int) -> int:
        self.asked[0] = max(int(self.asked[0]), index + 1)
        return index


@pytest.mark.parametrize("prefetch", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 4])
@BOTH
def test_workers_never_run_further_ahead_than_prefetch_allows(kind: Any, prefetch: int, batch_size: int) -> None:
    dataset = Tracked(60)
    loader = kind(dataset, batch_size, num_workers=2, prefetch_factor=prefetch, **FORK)
    for taken, _ in enumerate(loader, 1):
        assert int(dataset.asked[0]) <= batch_size * (taken + 2 * prefetch)


class Pids(Made):
    def __getitem__(self, index: int) -> tuple[int, int]:
        import os

        return os.getpid(), index


def test_persistent_workers_stay_and_epochs_left_early_do_not_disturb() -> None:
    loader = stoker.DataLoader(Pids(40, number), 4, num_workers=2, persistent_workers=True, **FORK)
    seen = set()
    for epoch in range(6):
        for taken, (pids, indices) in enumerate(loader):
            assert indices.tolist() == list(range(4 * taken, 4 * taken + 4))
            seen |= set(pids.tolist())
            if epoch % 2 == 0 and taken == epoch:
                break
        else:
            assert taken == 9
    assert len(seen) == 2
    del loader


class Shorter(IterableDataset[int]):
    """A first epoch of two samples a worker, later ones of twenty; says when the first has ended."""

    def __init__(self) -> None:
        self.ended = torch.multiprocessing.get_context("fork").Semaphore(0)
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        info = get_worker_info()
        assert info is not None
        yield from range(info.id * 100, info.id * 100 + (2 if self.epoch == 1 else 20))
        if self.epoch == 1:
            self.ended.release()


def test_the_end_of_an_iterable_in_an_epoch_left_early_does_not_end_the_next_epoch() -> None:
    dataset = Shorter()
    loader = stoker.DataLoader(dataset, 1, num_workers=2, persistent_workers=True, prefetch_factor=4, **FORK)
    next(iter(loader))
    dataset.ended.acquire()
    dataset.ended.acquire()
    assert [int(batch) for batch in loader] == [value for at in range(20) for value in (at, 100 + at)]
    del loader


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("batch_size", [None, 1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_iterables_that_end_at_different_times_come_in_torchs_order(
    workers: int, batch_size: int | None, drop_last: bool
) -> None:
    if batch_size is None and drop_last:
        pytest.skip("torch refuses that combination")
    arguments: dict[str, Any] = {"batch_size": batch_size, "drop_last": drop_last, "num_workers": workers, **FORK}
    expected = outcomes(DataLoader(Numbers(23), **arguments))
    assert outcomes(stoker.DataLoader(Numbers(23), **arguments)) == expected


def test_iterables_out_of_order_lose_nothing() -> None:
    loader = stoker.DataLoader(Numbers(40), 3, num_workers=3, in_order=False, **FORK)
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(40))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_wrong_length_is_warned_about_in_torchs_words(workers: int) -> None:
    texts = []
    dataset = SizedNumbers(20, told=4)
    for kind in (DataLoader, stoker.DataLoader):
        loader: Any = kind(dataset, 2, num_workers=workers)
        assert len(loader) == 2
        with pytest.warns(UserWarning, match="Length of IterableDataset") as caught:
            list(loader)
        texts.append([str(warning.message) for warning in caught])
    assert texts[0] == texts[1]


@BOTH
def test_two_iterators_of_one_loader_do_not_mix(kind: Any) -> None:
    loader = kind(Made(20, number), 4, num_workers=2, **FORK)
    one, other = iter(loader), iter(loader)
    assert next(one).tolist() == next(other).tolist() == [0, 1, 2, 3]
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in other]


@pytest.mark.parametrize("workers", [Workers(), Workers(0, 3), Workers(2, 2, "fork")], ids=str)
def test_threads_that_share_an_iterator_get_every_batch_once(workers: Workers) -> None:
    import threading

    iterator = iter(stoker.DataLoader(Made(400, number), 4, workers=workers))
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.extend(int(b[0]) for b in iterator)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(0, 400, 4))


class Nested(Made):
    def __getitem__(self, index: int) -> torch.Tensor:
        inner = stoker.DataLoader(Made(6, number), 2, workers=Workers(0, 2))
        return torch.cat(list(inner)) + index


@pytest.mark.parametrize("workers", [Workers(), Workers(0, 3), Workers(2, 2, "fork")], ids=str)
def test_a_dataset_may_use_a_loader_with_threads(workers: Workers) -> None:
    batches = list(stoker.DataLoader(Nested(6, number), 3, workers=workers))
    assert batches[1].tolist() == [[3, 4, 5, 6, 7, 8], [4, 5, 6, 7, 8, 9], [5, 6, 7, 8, 9, 10]]


def test_num_workers_may_be_changed_after_making_the_loader() -> None:
    loader = stoker.DataLoader(WhoAmI(), 3, num_workers=1, **FORK)
    loader.num_workers = 3
    assert {int(who) for batch in loader for who in batch["id"]} == {0, 1, 2}


@BOTH
def test_workers_go_when_the_pass_is_over_even_if_the_iterator_is_kept(kind: Any) -> None:
    iterator = iter(kind(Made(8, number), 4, num_workers=2, **FORK))
    workers = list(iterator._workers)
    assert len(list(iterator)) == 2
    assert [worker.is_alive() for worker in workers] == [False, False]
    assert next(iterator, None) is None


class Queried(Made):
    """Gives runs; notes how many samples each call asked for, where other processes see it."""

    def __init__(self, length: int) -> None:
        super().__init__(length, number)
        self.calls = torch.zeros(length + 1, dtype=torch.int64).share_memory_()  # by the number of samples

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.calls[len(indices)] += 1
        return indices


HANDS: Any = pytest.mark.parametrize(
    "hands",
    [
        {},
        {"num_workers": 1},
        {"num_workers": 2},
        {"workers": Workers(1, threads=2)},
        {"workers": Workers(0, threads=3)},
    ],
)


@HANDS
@pytest.mark.parametrize("order", [{}, {"shuffle": True, "seed": 1}, {"in_order": False}])
def test_a_dataset_that_gives_runs_is_asked_once_for_each_batch(hands: dict[str, Any], order: dict[str, Any]) -> None:
    dataset = Queried(34)
    for options in ({}, {"on_error": "skip"}):
        dataset.calls.zero_()
        loader = stoker.DataLoader(dataset, 8, **hands, **order, **options)
        assert sorted(torch.cat(list(loader)).tolist()) == list(range(34))
        assert (int(dataset.calls[8]), int(dataset.calls[2]), int(dataset.calls.sum())) == (4, 1, 5)


def test_a_subset_of_it_is_asked_once_too() -> None:
    dataset = Queried(34)
    list(stoker.DataLoader(torch.utils.data.Subset(dataset, range(1, 33)), 8, num_workers=2))
    assert int(dataset.calls[8]) == int(dataset.calls.sum()) == 4


def test_who_asks_for_parts_gets_parts() -> None:
    dataset = Queried(32)
    list(stoker.DataLoader(dataset, 8, workers=Workers(2, share="parts")))
    assert int(dataset.calls[4]) == int(dataset.calls.sum()) == 8
