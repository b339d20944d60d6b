"""Whoever loads, and however often that changes, batches are the same.

A helmsman who changes his mind at every step stands where the loader's own steering is: from no workers to some, from
one lane to many, while workers die, samples fail, and passes are left and resumed.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.comparing import described

import stoker
from stoker.auto.size import Limits, Size
from stoker.auto.steering import Noted
from stoker.options import Workers

LENGTH, BATCH = 61, 7
FEW = Limits(0, 3, 1, 4)
RANGE: dict[str, Any] = {"processes": (0, 3), "threads": (0, 4)}


class Whims:
    """Steering by whim: another size at every look."""

    def __init__(self, seed: int, limits: Limits = FEW, first: Size | None = None) -> None:
        self._random, self._limits = random.Random(seed), limits
        self.size = first or self._any()
        self.is_due = True
        self.seen: list[Size] = [self.size]
        self.latest, self.refusals, self.workers = "", 0, Workers()

    @property
    def fixed(self) -> Workers:
        return self.workers.fixed_at(self.size.processes, self.size.lanes)

    def _any(self) -> Size:
        limits = self._limits
        processes = self._random.randint(limits.least_processes, limits.most_processes)
        return limits.holds(Size(processes, self._random.randint(1, limits.most_lanes), self._random.choice([1, 2, 4])))

    def look(self, counted: Any, pids: Any) -> Noted | None:
        size = self._any()
        if size == self.size:
            return None
        self.size = size
        self.seen.append(size)
        return Noted(0.0, size, "of a whim")

    def changed(self, counted: Any, pids: Any) -> None: ...

    def loaded(self, samples: int, busy_s: float, here_s: float = 0.0) -> None: ...

    def refused(self, size: Size, why: str) -> None:
        self.size = size
        self.refusals += 1

    def shown(self) -> dict[str, Any]:
        return {}

    def anew(self) -> Whims:
        return self


def steered(loader: stoker.DataLoader[Any], whims: Whims) -> stoker.DataLoader[Any]:
    assert loader._course.steering is not None, "this loader's workers are not to change"
    whims.workers = loader._course.steering.workers
    loader._course.steering = whims  # type: ignore[assignment]
    return loader


class Drawing:
    """Draws from everything there is to draw from."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "python": random.random(),
            "numpy": np.random.rand(3),
            "torch": torch.rand(2),
            "own": stoker.rng().random(4),
        }


class Plain:
    """Draws from its own generator alone, so that it may be loaded by several lanes."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[int, Any]:
        return index, stoker.rng().random(4)


class Troubled(Plain):
    """Some samples are bad; some kill the process that loads them, the first time and if it is a worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, index: int) -> tuple[int, Any]:
        if index % 13 == 5:
            raise ValueError(f"sample {index} is bad")
        if index % 17 == 3 and torch.utils.data.get_worker_info() is not None:
            try:
                os.close(os.open(self._folder / f"killed-{index}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class ByRuns(Plain):
    def __getitems__(self, indices: list[int]) -> list[tuple[int, Any]]:
        return [(index, np.full(4, index)) for index in indices]


def own_collate(samples: list[Any]) -> dict[str, Any]:
    return {"indices": [index for index, _ in samples], "sum": torch.tensor([float(x.sum()) for _, x in samples])}


def assert_same(batches: Any, expected: Any) -> None:
    assert described(batches) == described(expected)


def epochs_of(loader: Any, epochs: int) -> Iterator[Any]:
    for epoch in range(epochs):
        for batch in loader:
            yield epoch, batch


changing = settings(
    deadline=None, derandomize=True, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SEEDS = st.integers(0, 2**32)


@changing
@given(SEEDS)
@pytest.mark.parametrize("dataset", [Drawing, Plain, ByRuns])
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_are_those_of_any_fixed_loader(dataset: type, persistent: bool, seed: int) -> None:
    common: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": seed}
    fixed = stoker.DataLoader(dataset(), **common, reseed="sample" if dataset is Drawing else None)
    auto = stoker.DataLoader(dataset(), **common, workers=Workers(**RANGE), persistent_workers=persistent)
    limits = Limits(0, 3, 1, 1) if dataset is Drawing else FEW
    whims = Whims(seed, limits)
    steered(auto, whims)
    for (_, expected), (_, batch) in zip(epochs_of(fixed, 3), epochs_of(auto, 3), strict=True):
        assert_same(batch, expected)
    assert len(set(whims.seen)) > 2
    auto._iterator = None


@changing
@given(SEEDS)
@pytest.mark.parametrize(
    "options", [{"collate_fn": own_collate}, {"batch_size": None}, {"drop_last": True}, {"generator": True}]
)
def test_they_are_so_with_every_way_of_making_batches(options: dict[str, Any], seed: int) -> None:
    def made(**more: Any) -> Any:
        generator = torch.Generator().manual_seed(seed) if options.get("generator") else None
        given = {"batch_size": BATCH, "shuffle": True, **options, "generator": generator}
        return stoker.DataLoader(Plain(), **given, **more)

    torch.manual_seed(seed)
    expected = [*epochs_of(made(), 2)]
    torch.manual_seed(seed)
    auto = made(workers=Workers(**RANGE))
    batches = [*epochs_of(steered(auto, Whims(seed)), 2)]
    assert_same(batches, expected)


@changing
@given(seed=SEEDS)
def test_they_are_so_while_workers_die_and_samples_fail(seed: int, tmp_path: Path) -> None:
    def made(folder: Path, **more: Any) -> Any:
        folder.mkdir(parents=True, exist_ok=True)
        return stoker.DataLoader(Troubled(folder), batch_size=BATCH, shuffle=True, seed=seed, on_error="skip", **more)

    expected = made(tmp_path / "fixed")
    auto = made(tmp_path / f"auto-{seed}", workers=Workers(**RANGE, on_death="restart"))
    whims = Whims(seed)
    for (_, one), (_, other) in zip(epochs_of(expected, 2), epochs_of(steered(auto, whims), 2), strict=True):
        assert_same(other, one)
    assert [(one.index, one.position) for one in auto.failures] == [
        (one.index, one.position) for one in expected.failures
    ]


@changing
@given(SEEDS, st.integers(0, 8))
def test_states_load_anywhere(seed: int, steps: int) -> None:
    common: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": seed}
    expected = [*stoker.DataLoader(Plain(), **common)]
    first = steered(stoker.DataLoader(Plain(), **common, workers=Workers(**RANGE)), Whims(seed))
    batches = iter(first)
    taken = [next(batches) for _ in range(steps)]
    state = first.state_dict()
    for more in ({}, {"num_workers": 2}, {"workers": Workers(**RANGE)}):
        other = stoker.DataLoader(Plain(), **common, **more)
        other.load_state_dict(state)
        if "workers" in more:
            steered(other, Whims(seed + 1))
        assert_same([*taken, *other], expected)


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_they_are_so_in_every_start_method(start_method: Any) -> None:
    common: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": 3}
    auto = stoker.DataLoader(Plain(), **common, workers=Workers(**RANGE, start_method=start_method))
    whims = Whims(5, Limits(0, 2, 1, 2))
    assert_same([*steered(auto, whims)], [*stoker.DataLoader(Plain(), **common)])


def test_a_pass_that_is_left_leaves_nobody_behind() -> None:
    auto = stoker.DataLoader(Plain(), batch_size=BATCH, workers=Workers(**RANGE))
    steered(auto, Whims(2))
    for _ in range(5):
        batches = iter(auto)
        for _ in range(4):
            next(batches)
        del batches


def test_kept_batches_do_not_change(tmp_path: Path) -> None:
    class Large(Plain):
        def __getitem__(self, index: int) -> Any:
            return torch.full((5000,), index)

    auto = steered(stoker.DataLoader(Large(), batch_size=4, workers=Workers(**RANGE)), Whims(8))
    kept = [*auto]
    assert [batch[:, 0].tolist() for batch in kept] == [list(range(n, min(n + 4, LENGTH))) for n in range(0, LENGTH, 4)]
    assert all(bool((row == row[0]).all()) for batch in kept for row in batch)


def test_where_no_process_can_be_started_loading_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("out of descriptors")

    auto = steered(stoker.DataLoader(Plain(), batch_size=BATCH, workers=Workers(**RANGE)), Whims(1, first=Size(0)))
    monkeypatch.setattr("stoker.workers.seats.check_descriptors", refuse)
    assert [index for batch, _ in auto for index in batch.tolist()] == list(range(LENGTH))
    assert auto._course.steering.refusals > 0  # type: ignore[union-attr]


class Script(Whims):
    """One size after the other, and then the last for ever."""

    def __init__(self, *sizes: Size | None) -> None:
        super().__init__(0, first=sizes[0])
        self.left = list(sizes[1:])

    def look(self, counted: Any, pids: Any) -> Noted | None:
        size = self.left.pop(0) if self.left else None
        if size is None or size == self.size:
            return None
        self.size = size
        return Noted(0.0, size, "it is in the script")


@pytest.mark.parametrize("first", [Size(0), Size(2), Size(1, 2)])
@pytest.mark.parametrize("then", [Size(0), Size(1), Size(3), Size(1, 4)])
def test_a_pass_that_is_over_stays_so_whatever_is_wanted_then(first: Size, then: Size) -> None:
    script = Script(first)
    batches = iter(steered(stoker.DataLoader(Plain(), batch_size=30, workers=Workers(**RANGE)), script))
    assert len(list(batches)) == 3
    for _ in range(3):
        script.left = [then]
        with pytest.raises(StopIteration):
            next(batches)


def test_a_pass_without_workers_goes_on_by_itself_in_a_forked_child() -> None:
    class Large(Plain):
        def __getitem__(self, index: int) -> Any:
            return torch.full((5000,), index)

    script = Script(Size(0))
    batches = iter(steered(stoker.DataLoader(Large(), batch_size=4, workers=Workers(**RANGE)), script))
    kept = next(batches)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        kept.fill_(-1)
        for batch in batches:
            batch.fill_(-1)
        os.write(write, b".")
        os._exit(0)
    assert os.read(read, 1) == b"."
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)
    rest = [kept, *batches]
    assert [index for batch in rest for index in batch[:, 0].tolist()] == list(range(LENGTH))


def test_an_error_of_the_sampler_is_not_taken_for_one_of_starting() -> None:
    class Breaking:
        def __iter__(self) -> Iterator[int]:
            yield from range(2 * BATCH)
            raise FileNotFoundError("the list of samples is gone")

        def __len__(self) -> int:
            return LENGTH

    loader = stoker.DataLoader(Plain(), sampler=Breaking(), batch_size=BATCH, workers=Workers(**RANGE))
    batches = iter(steered(loader, Script(Size(0), None, Size(2))))
    assert len([next(batches), next(batches)]) == 2
    with pytest.raises(FileNotFoundError, match="the list of samples is gone"):
        next(batches)


def test_in_a_process_that_may_not_have_children_nothing_changes() -> None:
    class Nested(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            loader = stoker.DataLoader(Plain(), batch_size=BATCH, num_workers="auto")
            return sum(len(indices) for indices, _ in loader) if loader._course.steering is None else -1

    assert [batch.tolist() for batch in stoker.DataLoader(Nested(), num_workers=1)] == [[LENGTH]]


def test_what_a_crew_before_had_in_its_outbox_is_nobodys(tmp_path: Path) -> None:
    """Samples that travel beside the slots, in crews that come and go in the same pass."""

    class Texts(Plain):
        def __getitem__(self, index: int) -> str:  # type: ignore[override]
            return f"{index:04}"

    for seed in range(3):
        loader = stoker.DataLoader(Texts(), batch_size=None, workers=Workers(**RANGE), persistent_workers=True)
        steered(loader, Whims(seed))
        for _ in range(3):
            assert list(loader) == [f"{index:04}" for index in range(LENGTH)]
        loader._iterator = None


def test_epochs_that_are_left_while_the_crew_is_let_go_leave_nothing_behind() -> None:
    loader = stoker.DataLoader(Plain(), batch_size=2, workers=Workers(**RANGE), persistent_workers=True)
    script = Script(Size(2))
    steered(loader, script)
    under_way = []
    for _ in range(6):
        batches = iter(loader)
        next(batches)
        script.left = [Size(0)]
        next(batches)  # the crew is to go when its batches are out
        batches = iter(loader)  # and the epoch is left before they are
        next(batches)
        script.left = [Size(2)]
        next(batches)
        under_way.append(len(batches._under_way))
    assert max(under_way[3:]) <= max(under_way[:3])
    del batches
    loader._iterator = None


def test_states_of_batches_out_of_order_load_where_batches_are_made_in_turn() -> None:
    class Uneven(Plain):
        def __getitem__(self, index: int) -> tuple[int, Any]:
            if index % 3 == 0:
                sum(range(50_000))
            return super().__getitem__(index)

    common: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": 3}
    expected = sorted(str(described(batch)) for batch in stoker.DataLoader(Plain(), **common))
    for who in ({"num_workers": 2}, {"workers": Workers(**RANGE)}):
        loader = stoker.DataLoader(Uneven(), **common, in_order=False, **who)
        if "workers" in who:
            steered(loader, Whims(4))
        taken: list[str] = []
        for batch in loader:
            taken.append(str(described(batch)))
            other = stoker.DataLoader(Plain(), **common)
            other.load_state_dict(loader.state_dict())
            assert sorted([*taken, *(str(described(rest)) for rest in other)]) == expected


@changing
@given(SEEDS)
@pytest.mark.parametrize("options", [{"device": "cpu"}, {"in_order": False}, {"on_error": "drop"}, {"plan": True}])
def test_they_are_so_with_what_only_this_loader_has(options: dict[str, Any], seed: int) -> None:
    def made(**more: Any) -> Any:
        given = {"batch_size": BATCH, "shuffle": True, "seed": seed, **options}
        if options.get("plan"):
            given = {
                "shuffle": True,
                "seed": seed,
                "plan": stoker.BatchPlan(3, gradient_accumulation=2),
                "last": "keep",
            }
        return stoker.DataLoader(Plain(), **given, **more)

    def said(loader: Any) -> list[str]:
        steps = [list(step.micro_batches()) if options.get("plan") else step for _, step in epochs_of(loader, 2)]
        return [str(described(step)) for step in steps]

    expected = said(made())
    batches = said(steered(made(workers=Workers(**RANGE)), Whims(seed)))
    assert (sorted(batches) == sorted(expected)) if "in_order" in options else (batches == expected)
