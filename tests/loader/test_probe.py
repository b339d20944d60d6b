"""What a few samples say of a dataset. Clocks are handed in: nothing here depends on how fast the machine is."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import torch

from stoker.loader import probe as module
from stoker.loader.probe import probe


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


def probed(monkeypatch: pytest.MonkeyPatch, alone: tuple[float, float], together_s: float) -> tuple[Any, Noted]:
    """A probe that is told how long loading alone took, of that computing, and how long all threads took together."""
    dataset, times, switches = Noted(), iter((0.0, together_s)), iter((0, 100))
    monkeypatch.setattr(module, "_alone", lambda *_: ([0, 1, 2, 3], *alone))
    monkeypatch.setattr(module, "_voluntary_switches", lambda: next(switches))
    return probe(dataset, clock=lambda: next(times)), dataset


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
    monkeypatch.setattr(module, "_alone", lambda *_: ([0, 1, 2, 3], 1.0, 0.2))
    monkeypatch.setattr(module, "_voluntary_switches", lambda: 0)
    assert probe(Noted()).waiting == 0.0


def test_probing_draws_nothing_from_anybodys_generators() -> None:
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(1), random.random()
    torch.manual_seed(3)
    random.seed(3)
    probe(Noted())
    assert (torch.rand(1), random.random()) == expected
