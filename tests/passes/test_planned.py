"""Steps of a plan through the loader: the same samples for any factors, tails, hosts, replicas, user samplers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.datasets import Made, picture, record
from tests.plan.plans import factorisations
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, TensorDataset

from stoker import BatchPlan, DataLoader, StepBatch, rng
from stoker.order import Shuffle

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

PLAN = BatchPlan(2, gradient_accumulation=2, device_iterations=2)  # steps of 8


def numbers(length: int, **arguments: Any) -> Any:
    return DataLoader(range(length), **{"plan": PLAN, **arguments})  # type: ignore[arg-type]


def rows(loader: Any) -> list[list[int]]:
    return [batch.data.tolist() for batch in loader]


def real(loader: Any) -> list[list[int]]:
    """What the steps hold without their padding."""
    return [(batch.data if batch.mask is None else batch.data[batch.mask]).tolist() for batch in loader]


@settings(max_examples=40, deadline=None)
@given(plan=factorisations(24), other=factorisations(24), shuffle=st.booleans(), tail=st.sampled_from(["drop", "pad"]))
def test_any_factors_of_the_same_product_give_the_same_samples_in_the_same_order(
    plan: BatchPlan, other: BatchPlan, shuffle: bool, tail: Any
) -> None:
    loaders = [numbers(100, plan=each, shuffle=shuffle, seed=3, last=tail) for each in (plan, other)]
    for _ in range(3):
        first, second = (rows(loader) for loader in loaders)
        assert first == second
        assert {len(step) for step in first} == {24}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_without_a_seed_the_order_is_torchs(workers: int, shuffle: bool) -> None:
    torch.manual_seed(4)
    expected = list(torch.utils.data.DataLoader(range(35), 8, shuffle, num_workers=workers, drop_last=True))  # type: ignore[arg-type]
    torch.manual_seed(4)
    assert rows(numbers(35, shuffle=shuffle, num_workers=workers)) == [batch.tolist() for batch in expected]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_steps_rows_stay_in_their_slot(workers: int) -> None:
    batch = next(iter(DataLoader(Made(8, picture), plan=PLAN, num_workers=workers)))
    assert isinstance(batch, StepBatch)
    assert batch.grid().shape == (2, 2, 1, 2, 3, 64, 64)
    assert batch.grid().data_ptr() == batch.data.data_ptr()
    assert [piece[0, 0, 0, 0].item() for piece in batch.micro_batches()] == [0, 2, 4, 6]


@pytest.mark.parametrize("workers", [0, 1])
def test_every_kind_of_sample_has_views(workers: int) -> None:
    batch = next(iter(DataLoader(Made(8, record), plan=PLAN, num_workers=workers)))
    third = list(batch.micro_batches())[2]
    assert third["name"] == ["sample 4", "sample 5"]
    assert third["label"].tolist() == [1, 2]
    assert third["point"].x.tolist() == [4, 5]
    assert third["point"].y[1] == (b"4", b"5")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("tail", "last"), [("drop", []), ("keep", [[16, 17, 18]]), ("pad", [[16, 17, 18, 16, 17, 18, 16, 17]])]
)
def test_the_tail_is_dropped_kept_or_padded(tail: Any, last: Any, workers: int) -> None:
    loader = numbers(19, last=tail, num_workers=workers)
    assert rows(loader) == [list(range(8)), list(range(8, 16)), *last]
    assert len(loader) == len(iter(loader)) == 2 + len(last)


def test_a_padded_loader_masks_every_step() -> None:
    full, _, padded = list(numbers(19, last="pad"))
    assert full.mask.all()
    assert padded.mask.tolist() == [True] * 3 + [False] * 5
    assert [mask.tolist() for mask in padded.micro_masks()][1] == [True, False]
    assert [batch.mask for batch in numbers(19, last="keep")] == [None] * 3


def test_a_padded_step_repeats_rows_of_every_kind() -> None:
    last = list(DataLoader(Made(11, record), plan=PLAN, last="pad"))[-1]
    assert last["name"] == [f"sample {8 + row % 3}" for row in range(8)]
    assert last["pair"][0].shape == (8, 4)


def host(number: int, hosts: int, length: int, product: int = 24, **arguments: Any) -> Any:
    plan = BatchPlan(product // hosts // 2, device_iterations=2, hosts=hosts)
    return numbers(length, plan=plan, shard=(number, hosts), **{"seed": 5, "shuffle": True, **arguments})


@settings(max_examples=60, deadline=None)
@given(hosts=st.sampled_from([1, 2, 3, 4]), length=st.integers(24, 100), shuffle=st.booleans())
def test_hosts_are_disjoint_and_complete_over_two_epochs(hosts: int, length: int, shuffle: bool) -> None:
    loaders = [host(number, hosts, length, shuffle=shuffle) for number in range(hosts)]
    left_out: list[set[int]] = []
    for _ in range(4):
        parts = [rows(loader) for loader in loaders]
        seen = [index for part in parts for step in part for index in step]
        assert len(seen) == len(set(seen)) == length - length % 24
        assert {len(part) for part in parts} == {length // 24}
        left_out.append(set(range(length)) - set(seen))
    assert not left_out[0] & left_out[1]
    assert not left_out[2] & left_out[3]


@settings(max_examples=60, deadline=None)
@given(hosts=st.sampled_from([1, 2, 3, 4]), length=st.integers(1, 100), tail=st.sampled_from(["keep", "pad"]))
def test_real_rows_of_all_hosts_are_the_epoch_in_its_order(hosts: int, length: int, tail: Any) -> None:
    parts = [real(host(number, hosts, length, last=tail)) for number in range(hosts)]
    together = [index for step in zip(*parts, strict=True) for part in step for index in part]
    assert together == Shuffle(length, 5).indices(range(length), 0).tolist()
    sizes = [[len(step) for step in rows(host(number, hosts, length, last=tail))] for number in range(hosts)]
    assert all(each == sizes[0] for each in sizes)
    assert tail == "keep" or set(sizes[0]) == {24 // hosts}


def test_hosts_in_the_same_epoch_are_disjoint_whatever_they_did_before() -> None:
    straight, restless = host(0, 2, 100), host(1, 2, 100)
    for _ in range(3):
        next(iter(restless))  # three epochs begun and left
    restless.sampler.set_epoch(0)
    for _ in range(2):
        seen = [index for loader in (straight, restless) for step in rows(loader) for index in step]
        assert len(seen) == len(set(seen)) == 96


def test_leftovers_come_first_in_the_next_epoch_and_the_order_returns() -> None:
    loader = numbers(19, seed=1)
    assert rows(loader) == [list(range(8)), list(range(8, 16))]
    assert rows(loader) == [[16, 17, 18, 0, 1, 2, 3, 4], list(range(5, 13))]
    assert rows(loader)[0] == list(range(8))


@pytest.mark.parametrize("group", [1, 2])
def test_a_rank_can_be_a_replica(group: int) -> None:
    plan = BatchPlan(
        2, gradient_accumulation=2, replicas=4, device_iterations=2, input_group_size=group, input_grouping="orthogonal"
    )
    whole = list(numbers(100, plan=plan, shuffle=True, seed=2, shard=(0, 1)))
    for replica in range(4):
        loader = numbers(100, plan=plan, shuffle=True, seed=2, shard=(replica, 4))
        mine = list(loader)
        assert len(mine) == len(whole) == len(loader)
        for part, step in zip(mine, whole, strict=True):
            assert torch.equal(part.grid()[:, :, 0], step.replica(replica))
        assert mine[0].plan == plan.one_replica


def test_ranks_of_two_hosts_are_replicas_of_theirs() -> None:
    plan = BatchPlan(2, replicas=2, hosts=2)
    whole = [rows(numbers(16, plan=plan, shard=(number, 2))) for number in range(2)]
    ranks = [rows(numbers(16, plan=plan, shard=(number, 4))) for number in range(4)]
    assert whole == [[[0, 1, 2, 3], [8, 9, 10, 11]], [[4, 5, 6, 7], [12, 13, 14, 15]]]
    assert ranks == [[[0, 1], [8, 9]], [[2, 3], [10, 11]], [[4, 5], [12, 13]], [[6, 7], [14, 15]]]


@pytest.mark.parametrize("tail", ["keep", "pad"])
def test_replicas_share_a_last_partial_step_evenly(tail: Any) -> None:
    plan = BatchPlan(2, replicas=3, device_iterations=2)
    parts = [real(numbers(19, plan=plan, shard=(number, 3), last=tail)) for number in range(3)]
    assert [part[-1] for part in parts] == [[12, 13, 14], [15, 16, 17], [18]]


def test_torchruns_environment_says_which_host_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert rows(numbers(16, plan=BatchPlan(4, hosts=2))) == [[4, 5, 6, 7], [12, 13, 14, 15]]
    assert rows(numbers(16, plan=BatchPlan(4), shard=(0, 1)))[0] == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", [None, torch.tensor])
@pytest.mark.parametrize("tail", ["drop", "keep", "pad"])
def test_batches_of_a_batch_sampler_are_put_together(workers: int, collate: Any, tail: Any) -> None:
    batches = BatchSampler(SequentialSampler(range(19)), 2, drop_last=False)
    expected = rows(numbers(19, last=tail))
    for sampler in (batches, [*batches]):
        loader = numbers(19, last=tail, batch_sampler=sampler, collate_fn=collate, num_workers=workers)
        assert rows(loader) == expected
        assert len(loader) == len(iter(loader)) == len(expected)


def test_a_batch_samplers_own_drop_last_is_kept() -> None:
    batches = BatchSampler(SequentialSampler(range(21)), 2, drop_last=True)
    assert rows(numbers(21, last="keep", batch_sampler=batches))[-1] == [16, 17, 18, 19]


def widen(samples: list[int]) -> torch.Tensor:
    """Pads what a batch sampler left short."""
    return torch.tensor(samples + [-1] * (2 - len(samples)))


def test_a_collate_function_sees_the_batch_samplers_batches() -> None:
    growing = [[0], [1, 2], [3], [4, 5], [6], [7, 8]]
    loader = numbers(9, batch_sampler=growing, collate_fn=widen, last="keep")
    assert rows(loader) == [[0, -1, 1, 2, 3, -1, 4, 5], [6, -1, 7, 8]]


def test_a_sampler_chooses_the_samples() -> None:
    assert rows(numbers(30, sampler=range(29, 5, -1))) == [[*range(29 - start, 21 - start, -1)] for start in (0, 8, 16)]


def test_a_collate_function_sees_the_whole_step() -> None:
    loader = numbers(16, collate_fn=lambda samples: {"rows": torch.tensor(samples), "count": len(samples)})
    assert [batch["count"] for batch in loader] == [8, 8]


def test_tensors_in_memory_are_gathered() -> None:
    images, labels = torch.rand(32, 5), torch.arange(32)
    for step, (image, label) in enumerate(DataLoader(TensorDataset(images, labels), plan=PLAN, num_workers=2)):
        assert torch.equal(image, images[step * 8 : step * 8 + 8])
        assert torch.equal(label, labels[step * 8 : step * 8 + 8])


@pytest.mark.parametrize("sampler", [None, "random"])
def test_persistent_workers_make_steps_again_and_again(sampler: Any) -> None:
    chosen = RandomSampler(range(40), generator=torch.Generator().manual_seed(1)) if sampler else None
    loader = numbers(40, sampler=chosen, num_workers=2, persistent_workers=True)
    for _ in range(2):
        assert sorted(index for step in rows(loader) for index in step) == list(range(40))
    loader._iterator._shutdown_workers()


class Drawn(torch.utils.data.Dataset[Any]):
    """A sample's index and what its own generator gives."""

    def __len__(self) -> int:
        return 45

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 7:
            raise OSError("cannot be read")
        return torch.tensor([index, rng().random()], dtype=torch.float64)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_replica_that_is_a_rank_draws_what_the_sample_draws(workers: int) -> None:
    plan = BatchPlan(2, gradient_accumulation=2, replicas=2, device_iterations=2)

    def made(rank: int, ranks: int, processes: int) -> Any:
        arguments: dict[str, Any] = {"plan": plan, "seed": 2, "shuffle": True, "last": "keep", "on_error": "skip"}
        return DataLoader(Drawn(), shard=(rank, ranks), num_workers=processes, **arguments)

    alone = made(0, 1, 0)
    whole = list(alone)
    assert [failure.index for failure in alone.failures] == [7]
    expected = dict(tuple(row) for batch in whole for row in batch.data.tolist())
    seen: list[list[float]] = []
    for rank in range(2):
        loader = made(rank, 2, workers)
        batches = list(loader)
        for part, step in zip(batches[:2], whole[:2], strict=True):
            assert torch.equal(part.grid()[:, :, 0], step.replica(rank))
        seen += [row for batch in batches for row in batch.data.tolist()]
        for failure in loader.failures:
            assert (failure.index, failure.position) == (7, alone.failures[0].position)
    real = [row for row in seen if row[0] in expected]
    assert {index for index, _ in real} == set(expected)
    assert sum(expected[index] == draw for index, draw in real) >= 44  # one doubled sample has draws of its own
