"""Batches are the same for any number of workers and lanes, any start method, and equal to torch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.comparing import outcomes
from tests.datasets import (
    Awaited,
    AwaitedOrNot,
    FillsNamedRows,
    FillsRows,
    InRuns,
    Made,
    RefusesSix,
    number,
    picture,
    ragged_every_fifth,
    record,
    text_or_number,
)
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import stoker
from stoker import Workers

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

DATASETS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda n: Made(n, number),
    "records": lambda n: Made(n, record),
    "pictures": lambda n: Made(n, picture),
    "sometimes ragged": lambda n: Made(n, ragged_every_fifth),
    "text": lambda n: Made(n, text_or_number),
    "runs": lambda n: InRuns(n, record),
    "tensors": lambda n: TensorDataset(torch.arange(n * 6.0).view(n, 2, 3), torch.arange(n)),
    "one tensor": lambda n: torch.arange(n * 3).view(n, 3).to(torch.bfloat16),
    "an array": lambda n: torch.arange(n * 3).view(n, 3).numpy(),
    "a list": lambda n: list(range(n)),
    "awaited or not": AwaitedOrNot,
}
CREWS = [
    Workers(),
    *(Workers(0, lanes) for lanes in (2, 4)),
    *(Workers(processes, lanes, "fork") for processes in (1, 2, 5) for lanes in (1, 4)),
    Workers(2, 1, "fork", "rows"),
    Workers(2, 4, "fork", "rows", rows_per_run=1),
    Workers(2, 4, "fork", "batches"),
    Workers(2, 1, "fork", prefetch_bytes=1),
]


class Backwards(Sampler[int]):
    """A sampler of the user's own, with numbers that are not plain ints."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.arange(self.length - 1, -1, -1))

    def __len__(self) -> int:
        return self.length


def _sampling(kind: str, length: int, seed: int, batch_size: int, drop_last: bool) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    whole: dict[str, Any] = {"batch_size": batch_size, "drop_last": drop_last, "generator": generator}
    some = range(0, length, 2)
    weights = [1.0 + index for index in range(length)]
    cases: dict[str, Callable[[], dict[str, Any]]] = {
        "in order": lambda: whole,
        "shuffled": lambda: {**whole, "shuffle": True},
        "sequential": lambda: {**whole, "sampler": SequentialSampler(range(length))},
        "with replacement": lambda: {
            **whole,
            "sampler": RandomSampler(range(length), True, 2 * length, generator=generator),
        },
        "more than all": lambda: {
            **whole,
            "sampler": RandomSampler(range(length), num_samples=2 * length + 1, generator=generator),
        },
        "a subset": lambda: {**whole, "sampler": SubsetRandomSampler(some, generator)},
        "weighted": lambda: {**whole, "sampler": WeightedRandomSampler(weights, 7, generator=generator)},
        "backwards": lambda: {**whole, "sampler": Backwards(length)},
        "own batches": lambda: {
            "batch_sampler": [list(some), *([index] for index in range(length)), list(range(length))],
            "generator": generator,
        },
        "batches of batches": lambda: {
            "batch_sampler": BatchSampler(SubsetRandomSampler(some, generator), batch_size, drop_last),
            "generator": generator,
        },
        "singles": lambda: {"batch_size": None, "generator": generator},
    }
    return cases[kind]()


SAMPLERS = ["in order", "shuffled", "sequential", "with replacement", "more than all", "a subset", "weighted",
            "backwards", "own batches", "batches of batches", "singles"]  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_batches_equal_torchs_for_any_dataset_sampler_and_crew(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(DATASETS)))
    length = data.draw(st.integers(1, 23))
    drawn = (
        data.draw(st.sampled_from(SAMPLERS)),
        length,
        data.draw(st.integers(0, 2**40)),
        data.draw(st.integers(1, 9)),
        data.draw(st.booleans()),
    )
    workers = data.draw(st.sampled_from(CREWS))
    dataset = DATASETS[name](length)
    expected = outcomes(DataLoader(dataset, **_sampling(*drawn)))
    assert outcomes(stoker.DataLoader(dataset, workers=workers, **_sampling(*drawn))) == expected


@pytest.mark.parametrize("workers", CREWS, ids=str)
def test_every_crew_gives_torchs_batches_of_records_and_pictures(workers: Workers) -> None:
    for make in (record, picture, ragged_every_fifth):
        dataset = Made(37, make)
        expected = outcomes(DataLoader(dataset, 8, shuffle=True, generator=torch.Generator().manual_seed(3)))
        loader = stoker.DataLoader(
            dataset, 8, shuffle=True, generator=torch.Generator().manual_seed(3), workers=workers
        )
        assert outcomes(loader) == expected


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_start_methods_give_torchs_batches(start_method: Any) -> None:
    dataset = Made(37, record)
    expected = outcomes(DataLoader(dataset, 8, shuffle=True, generator=torch.Generator().manual_seed(3)))
    loader = stoker.DataLoader(
        dataset, 8, shuffle=True, generator=torch.Generator().manual_seed(3), workers=Workers(2, 4, start_method)
    )
    assert outcomes(loader) == expected


@pytest.mark.parametrize("dataset", [Awaited(21), AwaitedOrNot(21)], ids=["only awaited", "awaited or not"])
@pytest.mark.parametrize("workers", CREWS, ids=str)
def test_awaited_samples_arrive_in_order(dataset: Any, workers: Workers) -> None:
    batches = list(stoker.DataLoader(dataset, 4, workers=workers))
    assert [batch[:, 0].tolist() for batch in batches] == [list(range(21))[at : at + 4] for at in range(0, 21, 4)]


@pytest.mark.parametrize("workers", CREWS, ids=str)
def test_rows_that_a_dataset_fills_itself_are_equal(workers: Workers) -> None:
    batches = list(stoker.DataLoader(FillsRows(40), 4, workers=workers))
    assert torch.cat([batch["label"] for batch in batches]).tolist() == list(range(40))
    assert torch.cat([batch["image"] for batch in batches])[:, 1, 1].tolist() == list(range(40))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2])
def test_rows_of_dtypes_unknown_to_numpy_are_loaded_the_ordinary_way(dtype: torch.dtype) -> None:
    loader = stoker.DataLoader(FillsRows(12, dtype), 4, num_workers=1, multiprocessing_context="fork")
    assert [batch["image"].dtype for batch in loader] == [dtype] * 3


@pytest.mark.parametrize("workers", [Workers(), Workers(0, 2), Workers(2, 1, "fork")], ids=str)
def test_a_dataset_fills_rows_itself_whoever_loads(workers: Workers) -> None:
    (*_, last) = stoker.DataLoader(FillsRows(40), 4, workers=workers)
    assert last["by"].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("processes", [0, 1])
def test_a_row_that_cannot_be_filled_is_a_bad_sample_as_any(processes: int) -> None:
    loader = stoker.DataLoader(RefusesSix(12), 4, num_workers=processes, on_error="drop")
    assert [batch["label"].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 7], [8, 9, 10, 11]]
    with pytest.raises(ValueError, match="six"):
        list(stoker.DataLoader(RefusesSix(12), 4, num_workers=processes))


@pytest.mark.parametrize("processes", [0, 1])
def test_rows_with_text_are_loaded_the_ordinary_way(processes: int) -> None:
    batches = list(stoker.DataLoader(FillsNamedRows(8), 4, num_workers=processes))
    assert [name for batch in batches for name in batch["name"]] == [f"sample {index}" for index in range(8)]


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("workers", [Workers(0, 4), Workers(2, 1, "fork"), Workers(2, 2, "fork", "batches")], ids=str)
def test_without_order_the_same_batches_come(in_order: bool, workers: Workers) -> None:
    loader = stoker.DataLoader(Made(60, record), 4, workers=workers, in_order=in_order)
    expected = outcomes(DataLoader(Made(60, record), 4))
    found = outcomes(loader)
    assert (found if in_order else sorted(found, key=repr)) == (expected if in_order else sorted(expected, key=repr))


@pytest.mark.parametrize("workers", [Workers(), Workers(0, 2), Workers(2, 2, "fork")], ids=str)
def test_a_batch_of_40960_samples_arrives(workers: Workers) -> None:
    (batch,) = stoker.DataLoader(list(range(40960)), 40960, workers=workers)
    assert batch.tolist() == list(range(40960))


@pytest.mark.parametrize("workers", [Workers(0, 3), Workers(2, 1, "fork"), Workers(2, 2, "fork", "rows")], ids=str)
@pytest.mark.parametrize("rows", [1, 7, 5000])
def test_any_length_of_run_gives_the_same(rows: int, workers: Workers) -> None:
    from dataclasses import replace

    loader = stoker.DataLoader(list(range(6000)), 3000, workers=replace(workers, rows_per_run=rows))
    assert torch.cat(list(loader)).tolist() == list(range(6000))
