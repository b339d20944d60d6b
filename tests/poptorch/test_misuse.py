"""Combinations that fail with PopTorch: each has an error here that says what to do, or simply works.

Where PopTorch asserts, the error is an AssertionError too, for scripts that catch it, but never that alone.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.poptorch.data import Broken, Growing, Numbers, Pairs, Stream, numbers_of
from torch.utils.data import BatchSampler, SequentialSampler

import stoker.poptorch as poptorch

Sync, Async, AsyncRebatched = poptorch.DataLoaderMode


def on_host(host: int = 0, hosts: int = 2) -> poptorch.Options:
    options = poptorch.Options()
    options.Distributed.configureProcessId(host, hosts)
    return options


def batches_of(length: int) -> BatchSampler:
    return BatchSampler(SequentialSampler(Numbers(length)), batch_size=2, drop_last=False)


def refused(said: str, kind: type[BaseException] = poptorch.Error) -> Any:
    return pytest.raises(kind, match=said)


@pytest.mark.parametrize("other", [{"batch_size": 2}, {"shuffle": True}])
def test_a_batch_sampler_beside_a_batch_size_or_shuffle(other: dict[str, Any]) -> None:
    with refused("batch_size and shuffle cannot say it too: leave them out"):
        poptorch.DataLoader(poptorch.Options(), Numbers(8), batch_sampler=batches_of(8), **other)


def test_a_batch_sampler_on_several_hosts() -> None:
    with refused("cannot be split over 2 host processes.*auto_distributed_partitioning=False"):
        poptorch.DataLoader(on_host(), Numbers(8), batch_sampler=batches_of(8))
    loader = poptorch.DataLoader(
        on_host(), Numbers(8), batch_sampler=batches_of(8), auto_distributed_partitioning=False
    )
    assert numbers_of(loader) == list(range(8))


def test_a_stream_on_several_hosts() -> None:
    with refused("IterableDataset cannot be split over 2.*auto_distributed_partitioning=False", AssertionError):
        poptorch.DataLoader(on_host(), Stream(8))
    assert numbers_of(poptorch.DataLoader(on_host(), Stream(8), auto_distributed_partitioning=False)) == [*range(8)]


def test_shuffling_on_several_hosts_without_a_seed() -> None:
    with refused(r"must shuffle alike.*options.randomSeed\(n\)", AssertionError):
        poptorch.DataLoader(on_host(), Numbers(8), shuffle=True)


def test_no_batches_on_several_hosts() -> None:
    with refused("no step by which to split.*give a batch_size", AssertionError):
        poptorch.DataLoader(on_host(), Numbers(8), batch_size=None, drop_last=False)


@pytest.mark.parametrize("mode", [Sync, Async])
def test_fewer_samples_than_one_step_of_all_hosts(mode: Any) -> None:
    with refused(r"has 7 samples, but one step takes 8 \(4 rows × 2 hosts = 8 samples per step\).*drop_last=False"):
        poptorch.DataLoader(on_host(), Numbers(7), batch_size=4, mode=mode)
    assert len(poptorch.DataLoader(on_host(), Numbers(7), batch_size=4, drop_last=False)) == 1


def test_dropping_the_last_batch_where_there_are_none() -> None:
    with refused("pass drop_last=False with it", ValueError):
        poptorch.DataLoader(poptorch.Options(), Numbers(8), batch_size=None)


@pytest.mark.parametrize("size", [0, 9])
def test_workers_batches_larger_than_a_step(size: int) -> None:
    options = poptorch.Options().deviceIterations(4)
    with refused(f"from 1 to a step's 8 samples .*but got {size}", AssertionError):
        poptorch.DataLoader(options, Numbers(20), batch_size=2, mode=AsyncRebatched, rebatched_worker_size=size)


def test_workers_batches_where_there_are_no_steps() -> None:
    with refused("rebatched_worker_size=2 is a part of a step's batch.*leave it out", ValueError):
        poptorch.DataLoader(
            poptorch.Options(),
            Numbers(8),
            batch_size=None,
            drop_last=False,
            mode=AsyncRebatched,
            rebatched_worker_size=2,
        )


@pytest.mark.parametrize("dataset", [Numbers(5), Stream(5)])
def test_rebatching_to_single_samples_simply_works(dataset: Any) -> None:
    assert numbers_of(poptorch.DataLoader(poptorch.Options(), dataset, mode=AsyncRebatched)) == list(range(5))


def test_a_rebatched_size_among_the_async_options() -> None:
    with refused("mode=poptorch.DataLoaderMode.AsyncRebatched", AssertionError):
        poptorch.DataLoader(poptorch.Options(), Numbers(8), mode=Async, async_options={"rebatched_size": 4})


def test_an_accessor_around_a_loader_that_has_one() -> None:
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(8), mode=Async)
    with refused("is in mode Async and loads ahead already.*DataLoaderMode.Sync"):
        poptorch.AsynchronousDataAccessor(loader)


def test_an_accessor_around_a_loader_with_a_tail_simply_works() -> None:
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(7), batch_size=4, drop_last=False)
    assert [len(batch) for batch in poptorch.AsynchronousDataAccessor(loader)] == [4, 3]


@pytest.mark.parametrize("drop_last", [True, False])
def test_an_empty_dataset(drop_last: bool) -> None:
    with refused("worker thread failed to start: the dataset (is empty|has 0 samples)"):
        poptorch.DataLoader(poptorch.Options(), Numbers(0), drop_last=drop_last, mode=Async)
    with refused("worker thread failed to start: Stream does not give a single step"):
        poptorch.AsynchronousDataAccessor(Stream(0))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_first_item_that_cannot_be_loaded(num_workers: int) -> None:
    with refused("worker thread failed to start.*KeyError") as raised:
        poptorch.DataLoader(poptorch.Options(), Broken(8, bad=0), num_workers=num_workers, mode=Async)
    assert isinstance(raised.value.__cause__, KeyError)
    assert "no file for sample 0" in str(raised.value)


def test_a_first_item_of_an_iterable_that_cannot_be_loaded() -> None:
    with refused("worker thread failed to start.*KeyError") as raised:
        poptorch.AsynchronousDataAccessor(Broken(8, bad=0))
    assert isinstance(raised.value.__cause__, KeyError)


def test_fewer_samples_than_one_asynchronous_step() -> None:
    options = poptorch.Options().deviceIterations(10)
    with refused("has 8 samples, but one step takes 10 .*fewer samples a step"):
        poptorch.DataLoader(options, Numbers(8), mode=Async)


def test_a_later_item_that_cannot_be_loaded() -> None:
    for source in (
        poptorch.DataLoader(poptorch.Options(), Broken(8, bad=5), mode=Async),
        poptorch.AsynchronousDataAccessor(Broken(8, bad=5)),
    ):
        steps = iter(source)
        assert [int(next(steps)) for _ in range(5)] == list(range(5))
        with refused('step 5 of this pass.*no file for sample 5.*on_error="skip"', AssertionError) as raised:
            next(steps)
        assert isinstance(raised.value.__cause__, KeyError)


def test_a_bad_item_can_be_skipped() -> None:
    loader = poptorch.DataLoader(poptorch.Options(), Broken(8, bad=5), batch_size=4, mode=Async, on_error="skip")
    assert [len(batch) for batch in loader] == [4, 4]


def test_items_of_other_shapes_than_the_first_simply_work() -> None:
    assert [len(item) for item in poptorch.AsynchronousDataAccessor(Growing(4))] == [1, 2, 3, 4]
    with refused("(?s)worker thread failed to start.*stack expects each tensor to be equal size"):
        poptorch.DataLoader(poptorch.Options(), Growing(4), batch_size=4, mode=Async)


def test_nested_items_simply_work() -> None:
    (item, *_) = poptorch.AsynchronousDataAccessor(Pairs(3))
    assert item["target"][1].tolist() == [0]


@pytest.mark.parametrize("mode", [Async, AsyncRebatched])
def test_iterating_after_terminate(mode: Any) -> None:
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(8), mode=mode)
    steps = iter(loader)
    kept = next(steps)
    loader.terminate()
    loader.terminate()
    with refused("make a new loader or accessor", AssertionError):
        iter(loader)
    with refused(r"ended by terminate\(\)", AssertionError):
        next(steps)
    assert kept.tolist() == [0]


def test_terminating_a_synchronous_loader_changes_nothing() -> None:
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(3))
    loader.terminate()
    assert numbers_of(loader) == [0, 1, 2]


def test_a_batch_that_is_no_whole_number_of_micro_batches() -> None:
    options = poptorch.Options().deviceIterations(4).replicationFactor(2)
    options.inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive).Training.gradientAccumulation(3)
    model = poptorch.trainingModel(torch.nn.Linear(2, 1), options)
    said = r"30 rows.*12 = deviceIterations\(4\) × gradientAccumulation\(3\) × replicationFactor\(2\)"
    with refused(said, AssertionError):
        model(torch.zeros(30, 2))
    with refused(said, AssertionError):
        model.compile(torch.zeros(30, 2))


def test_gradient_accumulation_without_gradients() -> None:
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    with refused("no gradients to accumulate.*use deviceIterations"):
        poptorch.inferenceModel(torch.nn.Linear(2, 1), options)


def test_a_model_that_must_not_run() -> None:
    model = poptorch.inferenceModel(torch.nn.Linear(2, 1), poptorch.Options().useOfflineIpuTarget())
    with refused("ConnectionType.Never"):
        model(torch.zeros(1, 2))


@pytest.mark.parametrize("options", [None, {}, "options"])
def test_options_of_another_kind(options: Any) -> None:
    with refused("should be a poptorch.Options"):
        poptorch.DataLoader(options, Numbers(3))


def test_warnings_are_given_in_words(caplog: pytest.LogCaptureFixture) -> None:
    poptorch.DataLoader(poptorch.Options(), Numbers(7), batch_size=4, drop_last=False)
    assert "the last batch has 3 rows" in caplog.text
    poptorch.DataLoader(poptorch.Options(), Stream(7), num_workers=2)
    assert "every sample comes 2 times unless" in caplog.text
    sampler = batches_of(7)
    poptorch.DataLoader(poptorch.Options().deviceIterations(3), Numbers(7), batch_sampler=sampler, drop_last=False)
    assert "gives 4 batches, and a step takes 3: with drop_last=False the last one has only 1" in caplog.text
    endless = (list(range(2)) for _ in range(3))
    poptorch.DataLoader(poptorch.Options(), Numbers(7), batch_sampler=endless, drop_last=False)
    assert "has no len() and drop_last=False" in caplog.text
