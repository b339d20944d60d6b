"""A peak of memory is found also between two dear looks: with a clock and a memory that are turned by hand."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import pytest

from stoker.bench import process_tree as module
from stoker.bench.process_tree import ProcessTree


@dataclass
class Machine:
    """A process that holds so many bytes at a time; a look at it takes `look_s`, a glance nothing."""

    look_s: float
    held: dict[float, int]  # from when on, how much
    now_s: float = 0.0
    looks_at: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def resident(self, _process: Any) -> int:
        return next(held for since, held in reversed(self.held.items()) if since <= self.now_s)

    def proportional(self, process: Any) -> int:
        found = self.resident(process)
        self.looks_at.append(self.now_s)
        self.now_s += self.look_s
        return found


def watched(machine: Machine, monkeypatch: pytest.MonkeyPatch, until_s: float) -> ProcessTree:
    monkeypatch.setattr(module, "and_all_below", lambda root: [root])
    monkeypatch.setattr(module, "resident_bytes", machine.resident)
    monkeypatch.setattr(module, "proportional_bytes", machine.proportional)
    monkeypatch.setattr(module, "_shared_part", lambda process: 0)
    tree = ProcessTree(os.getpid(), machine.clock)
    tree.look()
    while machine.now_s < until_s:
        machine.now_s += tree.pause_s
        tree.glance()
    return tree


@pytest.mark.parametrize("look_s", [0.001, 0.02, 0.1])
def test_a_plateau_is_seen_however_dear_a_look_is(look_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Machine(look_s, {0.0: 100, 3.0: 476, 3.0 + 0.1 + 4 * look_s: 100})
    assert watched(short, monkeypatch, 10.0).peak_bytes == 476


def test_the_pause_between_two_looks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(0.1, {0.0: 100})
    tree = watched(machine, monkeypatch, 10.0)
    pauses = [later - earlier for earlier, later in zip(machine.looks_at, machine.looks_at[1:], strict=False)]
    assert max(pauses) < 0.75
    assert tree.looks == len(machine.looks_at) > 10


def test_memory_that_grows_all_the_time_is_not_looked_at_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(0.1, {0.1 * step: 100 + 10 * step for step in range(101)})
    tree = watched(machine, monkeypatch, 10.0)
    assert tree.looks * machine.look_s < 0.25 * machine.now_s
    assert tree.peak_bytes > 1000
