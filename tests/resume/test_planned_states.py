"""Steps of a plan stop and go on: with other factors of the same product, from every step, for streams as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, get_worker_info

from stoker import BatchPlan, DataLoader, ResumeMismatch, StateError
from stoker.testing import assert_resumes_everywhere

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

PLAN = BatchPlan(2, gradient_accumulation=2, device_iterations=2)  # steps of 8


class Ends(IterableDataset[int]):
    """Streams of 11, 5 and 16 samples: two workers end with a short batch, one before its first full one."""

    def __init__(self, lengths: tuple[int, ...] = (11, 5, 16)) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker = info.id if info is not None else 0
        return iter(range(100 * worker, 100 * worker + self.lengths[worker]))


class SizedEnds(Ends):
    def __len__(self) -> int:
        return sum(self.lengths)


def rows(loader: Any) -> list[list[int]]:
    return [batch.data.tolist() for batch in loader]


def resumed_everywhere(make: Any, *others: Any) -> None:
    """Save before every step, go on in a new loader of each kind, and compare all that follows."""
    expected = rows(make())
    for stop in range(len(expected) + 1):
        loader = make()
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = loader.state_dict()
        for other in (make, *others):
            resumed = other()
            resumed.load_state_dict(state)
            assert rows(resumed) == expected[stop:], f"resumed before step {stop}"
        del batches


@pytest.mark.parametrize("tail", ["drop", "keep", "pad"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_state_loads_with_other_factors_of_the_same_product(tail: Any, shuffle: bool) -> None:
    def made(**factors: Any) -> Any:
        plan = BatchPlan(**factors)
        return lambda: DataLoader(range(35), plan=plan, seed=3, shuffle=shuffle, last=tail)  # type: ignore[arg-type]

    resumed_everywhere(
        made(micro_batch=2, gradient_accumulation=2, device_iterations=2),
        made(micro_batch=8),
        made(micro_batch=1, replicas=4, device_iterations=2),
    )


def test_a_state_goes_from_one_host_to_two_and_from_replicas_to_ranks() -> None:
    one = BatchPlan(4, replicas=2)
    alone = DataLoader(range(35), plan=one, seed=3, shuffle=True, shard=(0, 1))  # type: ignore[arg-type]
    batches = iter(alone)
    next(batches)
    state, following = alone.state_dict(), next(batches)
    for plan in (one, BatchPlan(4, hosts=2)):
        parts = []
        for rank in range(2):
            loader = DataLoader(range(35), plan=plan, seed=3, shuffle=True, shard=(rank, 2))  # type: ignore[arg-type]
            loader.load_state_dict(state)
            parts.append(next(iter(loader)).data)
        assert torch.equal(torch.cat(parts), following.data)


def test_a_state_of_another_product_is_refused_where_the_order_depends_on_it() -> None:
    def made(length: int, plan: BatchPlan) -> Any:
        return DataLoader(range(length), plan=plan, seed=3)  # type: ignore[arg-type]

    states = {}
    for length in (35, 38):
        loader = made(length, PLAN)
        next(iter(loader))
        states[length] = loader.state_dict()
    made(35, BatchPlan(4)).load_state_dict(states[35])  # 4 × 8 + 3 and 8 × 4 + 3: the same samples are left over
    with pytest.raises(ResumeMismatch, match="leftovers_first"):
        made(38, BatchPlan(4)).load_state_dict(states[38])


def widened(samples: list[int]) -> torch.Tensor:
    return torch.tensor(samples)


@pytest.mark.parametrize("collate", [None, widened])
@pytest.mark.parametrize("kind", ["torch's", "drawn", "list"])
def test_batch_samplers_go_on(collate: Any, kind: str) -> None:
    def make() -> Any:
        drawn = RandomSampler(range(19), generator=torch.Generator().manual_seed(3))
        sampler: Any = BatchSampler(drawn, 2, drop_last=kind == "drawn")
        sampler = [[number, number + 1] for number in range(0, 19, 2)][:9] if kind == "list" else sampler
        return DataLoader(range(19), plan=PLAN, batch_sampler=sampler, collate_fn=collate, last="keep")  # type: ignore[arg-type]

    resumed_everywhere(make)


def test_a_state_of_other_groups_of_batches_is_refused() -> None:
    batches = [[number] for number in range(16)]
    loader = DataLoader(range(16), plan=BatchPlan(1, replicas=4), batch_sampler=batches)  # type: ignore[arg-type]
    next(iter(loader))
    other = DataLoader(range(16), plan=BatchPlan(1, replicas=8), batch_sampler=batches)  # type: ignore[arg-type]
    with pytest.raises(ResumeMismatch, match=r"4 × list.*8 × list"):
        other.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("tail", "last"),
    [("drop", []), ("keep", [[8, 9, 10, *range(100, 105)]]), ("pad", [[8, 9, 10, *range(100, 105)]])],
)
def test_the_ends_of_all_workers_make_one_tail(workers: int, tail: Any, last: Any) -> None:
    loader = DataLoader(SizedEnds((11, 5, 16)[:workers]), plan=PLAN, num_workers=workers, last=tail)
    if workers == 1:
        expected = [[*range(8)], *{"drop": [], "keep": [[8, 9, 10]], "pad": [[8, 9, 10, 8, 9, 10, 8, 9]]}[tail]]
    else:  # 3 + 5 samples at the ends are one full step, whatever the tail
        expected = [[*range(8)], [*range(200, 208)], [*range(208, 216)], [8, 9, 10, *range(100, 105)]]
    assert rows(loader) == expected
    assert len(loader) == len(expected)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_streams_epochs_are_alike(persistent: bool) -> None:
    loader = DataLoader(Ends((11, 6)), plan=PLAN, num_workers=2, last="pad", persistent_workers=persistent)
    assert rows(loader) == rows(loader)
    if persistent:
        loader._iterator._shutdown_workers()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("lengths", "tail"),
    [((19,), "drop"), ((19,), "keep"), ((19,), "pad"), ((11, 5, 16), "keep"), ((7, 6, 13), "drop"), ((7, 6), "pad")],
)
def test_a_stream_goes_on_from_every_step(lengths: tuple[int, ...], tail: Any) -> None:
    workers = len(lengths) if len(lengths) > 1 else 0
    resumed_everywhere(lambda: DataLoader(Ends(lengths), plan=PLAN, num_workers=workers, last=tail))


def test_a_damaged_count_of_joined_steps_is_refused() -> None:
    loader = DataLoader(Ends((11,)), plan=PLAN, last="keep")
    with pytest.raises(StateError, match="joined"):
        loader.load_state_dict({**loader.state_dict(), "joined": -1})


class Failing(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(4)
        raise OSError("the stream broke")


def test_a_stream_that_breaks_says_so() -> None:
    with pytest.raises(OSError, match="the stream broke"):
        list(DataLoader(Failing(), plan=PLAN))


def test_the_public_checker_resumes_steps_everywhere() -> None:
    def made(plan: BatchPlan) -> Any:
        return lambda: DataLoader(range(35), plan=plan, shuffle=True, seed=3, last="pad")  # type: ignore[arg-type]

    assert_resumes_everywhere(made(PLAN))
