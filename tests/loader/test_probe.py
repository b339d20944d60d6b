"""What a few samples say of a dataset. Clocks are handed in: nothing here depends on how fast the machine is."""

from __future__ import annotations

import itertools
import random
import threading
from typing import Any

import pytest
import torch

from stoker.auto import probe as module
from stoker.auto.choice import choose
from stoker.auto.probe import probe


class Noted:
    """Samples that note which threads ask for them, and draw from the global generators."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        name = threading.current_thread().name
        self.asked[name] = self.asked.get(name, 0) + 1
        return torch.rand(3) + random.random()


class Clock:
    """Time that passes only while samples are loaded."""

    def __init__(self) -> None:
        self.now, self._lock = 0.0, threading.Lock()

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


class Slow(Noted):
    """Each sample takes so long, the first one longer; as if the GIL were held, since time passes for one at a time."""

    def __init__(self, clock: Clock, sample_s: float, first_s: float = 0.0) -> None:
        super().__init__()
        self.clock, self.sample_s, self.left = clock, sample_s, first_s

    def __getitem__(self, index: int) -> torch.Tensor:
        self.clock.advance(self.sample_s + self.left)
        self.left = 0.0
        return super().__getitem__(index)

    @property
    def loads(self) -> int:
        return sum(self.asked.values())


def probed(monkeypatch: pytest.MonkeyPatch, alone: tuple[float, float], together_s: float) -> tuple[Any, Noted]:
    """A probe that is told how long loading alone took, of that computing, and how long all threads took together."""
    dataset, at_once = Noted(), module._at_once
    monkeypatch.setattr(module, "_BUDGET_S", 100.0)
    monkeypatch.setattr(module, "_alone", lambda *_: module._Alone([0, 1, 2, 3], *alone, waited=True))
    monkeypatch.setattr(module, "_at_once", lambda *given: at_once(*given) * 0 + together_s)
    return probe(dataset, clock=lambda: 0.0), dataset


@pytest.mark.parametrize(("computing", "threads"), [(1.0, 2), (0.5, 4), (0.2, 10), (0.125, 16), (0.001, 16), (0.0, 16)])
def test_so_many_threads_load_at_once_that_two_compute(
    computing: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, dataset = probed(monkeypatch, (1.0, computing), 1.0)
    loaded = {name: count for name, count in dataset.asked.items() if name.startswith("stoker-probe-")}
    assert loaded == {f"stoker-probe-{number}": 4 for number in range(threads)}


@pytest.mark.parametrize(("together_s", "held"), [(0.9, 0.0), (1.0, 0.0), (1.3, 0.3), (2.0, 1.0), (5.0, 1.0)])
def test_what_takes_longer_together_holds_the_lock(
    together_s: float, held: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, _ = probed(monkeypatch, (1.0, 0.2), together_s)
    assert measured.gil_held == pytest.approx(held)
    assert (measured.seconds, measured.waiting) == (0.25, pytest.approx(0.8))
    assert (measured.samples, measured.length, measured.sample_bytes) == (4, 64, 12)


def test_a_thread_that_lost_its_core_was_not_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_voluntary_switches", lambda: 0)
    clock = Clock()
    assert probe(Slow(clock, 0.005), clock).waiting == 0.0


def test_probing_draws_nothing_from_anybodys_generators() -> None:
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(1), random.random()
    torch.manual_seed(3)
    random.seed(3)
    probe(Noted())
    assert (torch.rand(1), random.random()) == expected


def test_one_slow_sample_is_all_that_is_loaded() -> None:
    clock = Clock()
    dataset = Slow(clock, 2.0)
    measured = probe(dataset, clock)
    assert (dataset.loads, clock.now) == (1, 2.0)
    assert (measured.samples, measured.seconds, measured.gil_held, measured.sample_bytes) == (1, 2.0, 1.0, 12)


@pytest.mark.parametrize("sample_s", [1e-6, 1e-4, 1e-3, 0.005, 0.02, 0.08, 0.15, 0.24, 0.3, 0.49])
@pytest.mark.parametrize("switches", [0, 1])
def test_the_time_is_kept_however_long_samples_take(
    sample_s: float, switches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = itertools.count(step=100 * switches)
    monkeypatch.setattr(module, "_voluntary_switches", lambda: next(counted))
    clock = Clock()
    dataset = Slow(clock, sample_s)
    measured = probe(dataset, clock)
    assert clock.now <= module._BUDGET_S * (1 if not switches else 9)  # waiting, of which 16 would pass at once
    assert dataset.loads <= 100
    assert measured.seconds == pytest.approx(sample_s)


def test_a_first_sample_that_opens_things_does_not_count() -> None:
    clock = Clock()
    assert probe(Slow(clock, 0.001, first_s=0.2), clock).seconds == pytest.approx(0.001)


def test_choosing_workers_loads_a_slow_sample_once() -> None:
    clock = Clock()
    dataset = Slow(clock, 2.0)
    choose(dataset, "fork", lambda given: probe(given, clock))
    assert dataset.loads == 1
