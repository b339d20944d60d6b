"""Reading ahead of the training loop changes nothing but when things happen."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data
from tests.datasets import Made, Numbers, number, picture, record
from tests.programs import Nursery

import stoker
from stoker import Workers
from stoker.testing import assert_resumes_everywhere
from stoker.testing.difference import difference

EVERY: Any = pytest.mark.parametrize(
    "workers", [Workers(0), Workers(0, 2), Workers(2)], ids=["inline", "threads", "processes"]
)


def raise_at_5(index: int) -> int:
    if index == 5:
        raise KeyError("sample 5 is broken")
    return index


def draw(index: int) -> tuple[int, float]:
    return index, random.random()


class Gate:
    """A loader that counts what it is asked for, and lets a test wait until nothing more is asked for."""

    def __init__(self, batches: int) -> None:
        self.batches, self.asked = batches, 0
        self._reached = threading.Condition()

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in range(self.batches):
            with self._reached:
                self.asked += 1
                self._reached.notify_all()
            yield torch.tensor(batch)

    def wait_until_asked(self, times: int) -> None:
        with self._reached:
            assert self._reached.wait_for(lambda: self.asked >= times, timeout=30)


@EVERY
@pytest.mark.parametrize("make", [number, picture, record])
def test_batches_are_those_without_a_device(workers: Workers, make: Callable[[int], Any]) -> None:
    plain = list(stoker.DataLoader(Made(25, make), 4, workers=workers))
    ahead = list(stoker.DataLoader(Made(25, make), 4, workers=workers, device="cpu"))
    assert difference(plain, ahead) is None


def test_the_order_is_drawn_from_torchs_generator_as_without_a_device() -> None:
    def run(**more: Any) -> list[list[int]]:
        torch.manual_seed(3)
        loader = stoker.DataLoader(Made(12, number), 4, shuffle=True, **more)
        seen = []
        for _ in range(2):
            torch.rand(5)  # a model's draws between epochs
            seen += [batch.tolist() + torch.rand(1).tolist() for batch in loader]  # and in every step
        return seen

    assert run(device="cpu") == run()


def test_torchs_loader_and_generators_of_batches_read_ahead_too() -> None:
    theirs = torch.utils.data.DataLoader(Made(10, number), 4, num_workers=1)
    loader = stoker.to_device(theirs, "cpu")
    assert len(loader) == 3
    assert loader.batch_size == 4
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert not hasattr(loader, "state_dict")
    assert list(stoker.to_device(({"n": n} for n in range(3)), "cpu")) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_persistent_workers_of_torchs_loader_serve_one_pass_after_the_other() -> None:
    theirs = torch.utils.data.DataLoader(Made(40, number), 4, num_workers=1, persistent_workers=True)
    loader = stoker.to_device(theirs, "cpu", depth=3)
    kept = iter(loader)
    assert next(kept).tolist() == [0, 1, 2, 3]
    assert [batch[0].item() for batch in loader] == list(range(0, 40, 4))
    assert next(kept, None) is None


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_exactly_depth_batches_are_read_ahead(depth: int) -> None:
    gate = Gate(20)
    batches: Any = iter(stoker.to_device(gate, "cpu", depth=depth))
    for taken in range(1, 5):
        assert next(batches).item() == taken - 1
        gate.wait_until_asked(taken + depth)
    batches.close()
    assert gate.asked == 4 + depth


def test_nothing_is_read_before_the_first_batch_is_asked_for() -> None:
    gate = Gate(4)
    before = threading.active_count()
    batches: Any = iter(stoker.to_device(gate, "cpu"))
    assert (gate.asked, threading.active_count()) == (0, before)
    batches.close()


def test_with_depth_0_no_thread_reads() -> None:
    gate = Gate(4)
    before = threading.active_count()
    batches: Any = iter(stoker.to_device(gate, "cpu", depth=0))
    for taken in range(1, 5):
        next(batches)
        assert (gate.asked, threading.active_count()) == (taken, before)


def test_a_loader_that_seeds_the_generators_is_not_run_beside_the_training_loop() -> None:
    loader = stoker.DataLoader(Made(12, draw), 3, reseed="sample", seed=1, device="cpu")
    plain = list(stoker.DataLoader(Made(12, draw), 3, reseed="sample", seed=1))
    before = threading.active_count()
    for batch, expected in zip(loader, plain, strict=True):
        assert threading.active_count() == before
        assert difference(batch, expected) is None


@EVERY
def test_an_error_comes_where_its_batch_would_have_and_the_loop_may_go_on(workers: Workers) -> None:
    batches = iter(stoker.DataLoader(Made(12, raise_at_5), 2, workers=workers, device="cpu"))
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="sample 5 is broken"):
        next(batches)
    assert [batch.tolist() for batch in batches] == [[6, 7], [8, 9], [10, 11]]


def test_an_exit_raised_while_reading_is_the_end() -> None:
    def exits() -> Iterator[int]:
        yield 1
        yield 2
        raise SystemExit("enough")

    batches = iter(stoker.to_device(exits(), "cpu", depth=3))
    assert [next(batches), next(batches)] == [1, 2]
    with pytest.raises(SystemExit, match="enough"):
        next(batches)
    assert next(batches, None) is None


def test_a_pass_that_is_left_ends_its_thread() -> None:
    before = threading.active_count()
    for _ in stoker.DataLoader(Made(40, picture), 2, num_workers=1, device="cpu"):
        break
    assert threading.active_count() == before
    batches = iter(stoker.DataLoader(Made(40, picture), 2, device="cpu"))
    kept = next(batches)
    batches.close()
    assert threading.active_count() == before
    assert next(batches, None) is None
    assert kept[1].eq(1).all()


def test_a_pass_that_is_still_open_does_not_keep_the_interpreter_from_exiting(nursery: Nursery, tmp_path: Path) -> None:
    code = """
import stoker
def forever():
    while True:
        yield 1
batches = iter(stoker.to_device(forever(), "cpu"))
print(next(batches))
"""
    program = tmp_path / "open_pass.py"
    program.write_text(code)
    done = nursery.run(program, timeout_s=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@EVERY
@pytest.mark.parametrize("more", [{"seed": 7}, {}], ids=["arithmetic", "torch's"])
def test_a_run_resumes_from_every_step(workers: Workers, more: dict[str, Any]) -> None:
    def make(**other: Any) -> Any:
        return stoker.DataLoader(
            Made(12, number), 4, shuffle=True, **{"workers": workers, "device": "cpu"} | more | other
        )

    assert_resumes_everywhere(
        make, others=[lambda: make(device=None), lambda: stoker.to_device(make(device=None), "cpu")]
    )


def test_a_run_with_persistent_workers_resumes_from_every_step() -> None:
    assert_resumes_everywhere(
        lambda: stoker.DataLoader(Made(8, number), 4, seed=1, num_workers=1, persistent_workers=True, device="cpu"),
        epochs=2,
    )


def test_a_run_over_an_iterable_dataset_resumes_from_every_step() -> None:
    assert_resumes_everywhere(lambda: stoker.DataLoader(Numbers(16), 4, device="cpu"))


def test_a_state_tells_what_was_handed_over_in_the_middle_after_a_break_and_at_the_end() -> None:
    loader = stoker.DataLoader(Made(40, number), 4, seed=1, device="cpu")
    assert loader.state_dict()["batches"] == 0
    for step, _ in enumerate(loader, start=1):
        assert loader.state_dict()["batches"] == step
        if step == 6:
            break
    assert loader.state_dict()["batches"] == 6
    assert len(list(loader)) == 10
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (2, 0)


def test_a_pass_that_is_closed_leaves_the_state_where_the_loop_was() -> None:
    loader = stoker.DataLoader(Made(40, number), 4, seed=1, device="cpu")
    batches = iter(loader)
    next(batches)
    batches.close()
    assert next(batches, None) is None
    assert loader.state_dict()["batches"] == 1


def test_a_loader_that_cannot_tell_its_state_only_fails_when_asked() -> None:
    class Stateless:
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

        def state_dict(self) -> dict[str, Any]:
            raise NotImplementedError("no state here")

    loader = stoker.to_device(Stateless(), "cpu")
    for _ in loader:
        with pytest.raises(NotImplementedError, match="no state here"):
            loader.state_dict()


def test_waits_are_those_of_the_training_loop() -> None:
    for loader in (
        stoker.DataLoader(Made(40, number), 4, num_workers=1, device="cpu"),
        stoker.DataLoader(Made(40, number), 4, num_workers=1),
    ):
        wrapped = loader if loader.device is not None else stoker.to_device(loader, "cpu")
        batches = iter(wrapped)
        for taken in range(1, 4):
            next(batches)
            assert loader.stats().steps == taken  # and not those that were read ahead
        batches.close()


@pytest.mark.parametrize(("depth", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_a_depth_that_is_no_number_of_batches_is_refused(depth: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="depth should be"):
        stoker.to_device([], "cpu", depth=depth)


def test_a_loader_with_a_pass_under_way_can_be_copied_and_sent_to_another_process() -> None:
    loader = stoker.to_device([torch.zeros(1), torch.ones(1)], "cpu", depth=1)
    batches: Any = iter(loader)
    next(batches)
    for other in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert [batch.item() for batch in other] == [0, 1]
    assert [batch.item() for batch in batches] == [1]


def test_a_device_that_torch_does_not_know_is_refused_at_once() -> None:
    with pytest.raises(RuntimeError, match="device"):
        stoker.DataLoader(Made(4, number), device="no such thing")
