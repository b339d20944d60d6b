"""One item of the loader is one step: the same rows in the same order, whatever the mode and the number of workers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.poptorch.data import Broken, Numbers, Pairs, Stream, numbers_of
from torch.utils.data import BatchSampler, SequentialSampler, get_worker_info

import stoker.poptorch as poptorch

MODES = list(poptorch.DataLoaderMode)


def options_of(device_iterations: int = 1, replicas: int = 1, accumulation: int = 1) -> poptorch.Options:
    options = poptorch.Options().deviceIterations(device_iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    return options


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_step_has_the_combined_batch_in_the_datasets_order(mode: Any, num_workers: int) -> None:
    loader = poptorch.DataLoader(options_of(2, 3), Numbers(50), batch_size=2, num_workers=num_workers, mode=mode)
    assert (loader.combinedBatchSize, len(loader)) == (12, 4)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [list(range(at, at + 12)) for at in range(0, 48, 12)]


@pytest.mark.parametrize("mode", MODES)
def test_a_kept_tail_is_short_and_the_last(mode: Any) -> None:
    loader = poptorch.DataLoader(options_of(5), Numbers(13), batch_size=2, drop_last=False, mode=mode)
    assert len(loader) == 2
    assert [len(batch) for batch in loader] == [10, 3]


@pytest.mark.parametrize("mode", MODES)
def test_nested_samples_keep_their_structure(mode: Any) -> None:
    loader = poptorch.DataLoader(options_of(2), Pairs(8), batch_size=2, mode=mode)
    for number, batch in enumerate(loader):
        rows = [4 * number + row for row in range(4)]
        assert batch["image"].shape == (4, 2, 3)
        assert batch["target"][0].tolist() == rows
        assert batch["target"][1].tolist() == [[row] for row in rows]


@pytest.mark.parametrize(
    ("mode", "drop_last", "sizes"),
    [
        (poptorch.DataLoaderMode.Sync, True, [6] * 4),  # 16 and 15 samples: each worker drops a tail of its own
        (poptorch.DataLoaderMode.Sync, False, [3, 4, *[6] * 4]),
        (poptorch.DataLoaderMode.Async, True, [6] * 4),
        (poptorch.DataLoaderMode.Async, False, [1, *[6] * 5]),
        (poptorch.DataLoaderMode.AsyncRebatched, True, [6] * 5),
        (poptorch.DataLoaderMode.AsyncRebatched, False, [1, *[6] * 5]),
    ],
)
def test_tails_of_a_stream_are_one_a_worker_or_one_in_all(mode: Any, drop_last: bool, sizes: list[int]) -> None:
    options = poptorch.Options()
    loader = poptorch.DataLoader(options, Stream(31), batch_size=6, num_workers=2, drop_last=drop_last, mode=mode)
    for _ in range(2):
        batches = list(loader)
        assert sorted(len(batch) for batch in batches) == sizes
        seen = [int(number) for batch in batches for number in batch]
        assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("worker_size", [1, 2, 4, 7])
def test_smaller_batches_of_the_workers_make_the_same_steps(worker_size: int) -> None:
    loader = poptorch.DataLoader(
        options_of(7),
        Stream(30),
        num_workers=1,
        mode=poptorch.DataLoaderMode.AsyncRebatched,
        rebatched_worker_size=worker_size,
        async_options={"buffer_size": 2},
    )
    assert len(loader) == 4
    assert [batch.tolist() for batch in loader] == [list(range(at, at + 7)) for at in range(0, 28, 7)]


class Counted:
    """A `collate_fn` that notes how many samples it saw: one micro-batch at a time."""

    def __call__(self, samples: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack(samples), torch.tensor([len(samples)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("drop_last", "steps"), [(True, [6, 6, 6]), (False, [6, 6, 6, 4])])
def test_a_batch_samplers_batches_are_joined_to_steps(mode: Any, drop_last: bool, steps: list[int]) -> None:
    sampler = BatchSampler(SequentialSampler(Numbers(22)), batch_size=2, drop_last=False)
    for collate_fn in (None, Counted()):
        loader = poptorch.DataLoader(
            options_of(3), Numbers(22), batch_sampler=sampler, drop_last=drop_last, mode=mode, collate_fn=collate_fn
        )
        batches = [batch if collate_fn is None else batch[0] for batch in loader]
        assert [len(batch) for batch in batches] == steps
        assert torch.cat(batches).tolist() == list(range(sum(steps)))
        if collate_fn is not None:
            assert [batch[1].tolist() for batch in loader] == [[2] * (rows // 2) for rows in steps]


class Both:
    """A class of the user's own."""

    def __init__(self, rows: torch.Tensor, doubled: torch.Tensor) -> None:
        self.rows, self.doubled = rows, doubled


class BothParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct: Any) -> Any:
        yield struct.rows
        yield struct.doubled

    def reconstruct(self, original_structure: Any, tensor_iterator: Any) -> Any:
        return type(original_structure)(*tensor_iterator)


def make_both(samples: list[torch.Tensor]) -> Both:
    return Both(torch.stack(samples), 2 * torch.stack(samples))


def test_batches_of_a_registered_class_are_joined_too() -> None:
    poptorch.registerCustomArgParser(Both, BothParser())
    try:
        sampler = BatchSampler(SequentialSampler(Numbers(8)), batch_size=2, drop_last=False)
        loader = poptorch.DataLoader(options_of(2), Numbers(8), batch_sampler=sampler, collate_fn=make_both)
        assert [batch.doubled.tolist() for batch in loader] == [[0, 2, 4, 6], [8, 10, 12, 14]]
        with pytest.raises(poptorch.Error, match="must inherit"):
            poptorch.registerCustomArgParser(Both, object())  # type: ignore[arg-type]
    finally:
        poptorch.registerCustomArgParser(Both, None)


def test_samples_that_are_not_batched_come_one_by_one() -> None:
    for mode in MODES:
        loader = poptorch.DataLoader(options_of(), Numbers(5), batch_size=None, drop_last=False, mode=mode)
        assert loader.combinedBatchSize is None
        assert loader.options.device_iterations == 1
        assert [int(number) for number in loader] == list(range(5))


@pytest.mark.parametrize("mode", MODES)
def test_a_break_and_a_new_loop_begin_anew(mode: Any) -> None:
    loader = poptorch.DataLoader(options_of(), Numbers(12), batch_size=2, num_workers=1, mode=mode)
    for number, _ in enumerate(loader):
        if number == 3:
            break
    assert numbers_of(loader) == list(range(12))


@pytest.mark.parametrize("mode", MODES)
def test_steps_that_are_kept_never_change(mode: Any) -> None:
    loader = poptorch.DataLoader(options_of(), Numbers(40), batch_size=2, num_workers=1, mode=mode)
    kept = [*loader, *loader]
    assert [batch.tolist() for batch in kept] == [[at, at + 1] for at in range(0, 40, 2)] * 2


@pytest.mark.parametrize("preloads", [True, False])
def test_early_preload_fills_the_buffer_before_anyone_asks(preloads: bool) -> None:
    accessor = poptorch.AsynchronousDataAccessor(Numbers(20), buffer_size=5, early_preload=preloads)
    stats = accessor._prefetch.stats()
    assert 1 <= stats.ready <= (5 if preloads else 1)
    assert [int(number) for number in accessor] == list(range(20))


@pytest.mark.parametrize("dataset", [Numbers(9), Stream(9), [torch.tensor(number) for number in range(9)]])
def test_an_accessor_goes_over_anything(dataset: Any) -> None:
    accessor = poptorch.AsynchronousDataAccessor(dataset)
    assert len(accessor) == 9
    for _ in range(2):
        assert [int(number) for number in accessor] == list(range(9))


def test_an_accessor_around_a_loader_leaves_the_loader_alone() -> None:
    loader = poptorch.DataLoader(options_of(2), Numbers(12), batch_size=2, num_workers=1)
    accessor = poptorch.AsynchronousDataAccessor(loader)
    assert len(accessor) == 3
    theirs, ours = iter(accessor), iter(loader)
    assert [next(theirs).tolist(), next(ours).tolist(), next(ours).tolist(), next(theirs).tolist()] == [
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [4, 5, 6, 7],
    ]


def test_an_accessor_cuts_batches_anew() -> None:
    loader = poptorch.DataLoader(options_of(), Numbers(10), batch_size=3, drop_last=False)
    accessor = poptorch.AsynchronousDataAccessor(loader, rebatched_size=4)
    assert len(accessor) == 3
    assert [len(batch) for batch in accessor] == [4, 4, 2]


class WhereAmI(Numbers):
    """Sample i says how many workers there are."""

    def __getitem__(self, index: int) -> torch.Tensor:
        seat = get_worker_info()
        return torch.tensor(-1 if seat is None else seat.num_workers)


def test_an_asynchronous_loader_without_workers_has_a_process_all_the_same() -> None:
    loader = poptorch.DataLoader(options_of(), WhereAmI(2), mode=poptorch.DataLoaderMode.Async)
    assert (loader.num_workers, numbers_of(loader)) == (0, [1, 1])


@pytest.mark.parametrize("strategy", [poptorch.SharingStrategy.Fork, poptorch.SharingStrategy.ForkServer])
def test_every_sharing_strategy_gives_the_same_steps(strategy: Any) -> None:
    loader = poptorch.DataLoader(
        options_of(),
        Numbers(6),
        batch_size=3,
        mode=poptorch.DataLoaderMode.Async,
        async_options={"sharing_strategy": strategy},
    )
    assert numbers_of(loader) == list(range(6))


@pytest.mark.parametrize("mode", MODES)
def test_a_saved_place_is_gone_on_from(mode: Any) -> None:
    def loader() -> poptorch.DataLoader:
        options = poptorch.Options().randomSeed(5)
        return poptorch.DataLoader(options, Numbers(24), batch_size=2, shuffle=True, num_workers=1, mode=mode)

    whole = numbers_of(loader())
    first = loader()
    steps = iter(first)
    begun = [next(steps).tolist() for _ in range(5)]
    second = loader()
    second.load_state_dict(first.state_dict())
    assert [number for batch in begun for number in batch] + numbers_of(second) == whole


def test_statistics_and_failures_are_those_of_the_loader_that_loads() -> None:
    options, mode = options_of(), poptorch.DataLoaderMode.Async
    loader = poptorch.DataLoader(options, Broken(8, bad=3), batch_size=2, mode=mode, on_error="skip")
    assert len(numbers_of(loader)) == 8
    assert loader.stats().samples >= 8
    assert 3 in {failure.index for failure in loader.failures}


def test_an_accessor_gives_its_next_step_when_asked_itself() -> None:
    accessor = poptorch.AsynchronousDataAccessor(Numbers(4))
    assert [int(next(accessor)) for _ in range(4)] == [0, 1, 2, 3]
    assert next(accessor, None) is None
    assert int(next(iter(accessor))) == 0


def test_a_seed_orders_alike_in_every_mode_and_anew_each_epoch() -> None:
    orders = []
    for mode in MODES:
        options = poptorch.Options().randomSeed(11)
        loader = poptorch.DataLoader(options, Numbers(40), batch_size=4, shuffle=True, mode=mode)
        orders.append([numbers_of(loader) for _ in range(3)])
    assert orders[0] == orders[1] == orders[2]
    assert all(sorted(epoch) == list(range(40)) for epoch in orders[0])
    assert all(one != other for one, other in pairwise(orders[0]))
