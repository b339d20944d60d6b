"""The controller against simulated machines: it finds a size that is nearly the best, stays there, and moves on when
the machine, the samples or the model change. No clock but the simulation's, and noise from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.auto.controller import Controller, Decision, Reading
from stoker.auto.size import Limits, Size

steady = settings(deadline=None, derandomize=True, max_examples=60)
LIMITS = Limits(0, 2, 1, 32)
TICK_S = 0.5
GRID = [Size(0), *(Size(processes, lanes) for processes in (1, 2) for lanes in (1, 2, 4, 8, 16, 32))]


@dataclass(frozen=True)
class Machine:
    """What a loop of these samples and this model makes of a size; times of one sample."""

    waits_s: float
    computes_s: float
    model_s: float
    cores: float = 2.0
    hand_over_s: float = 12e-6

    def rate(self, size: Size) -> float:
        if not size.processes:
            return 1 / (self.waits_s + self.computes_s + self.model_s)
        computing = self.computes_s + self.hand_over_s
        by_hands = size.hands / (self.waits_s + computing)
        by_cores = min(self.cores, size.processes) / computing
        return min(by_hands, by_cores, 1 / max(self.model_s, self.hand_over_s))

    @property
    def best(self) -> float:
        return max(map(self.rate, GRID))


class Training:
    """Drives a controller through simulated time."""

    def __init__(self, machine: Machine, first: Size, seed: int = 0, limits: Limits = LIMITS) -> None:
        self.machine, self.now_s = machine, 0.0
        self.controller = Controller(limits, first, lambda: 2.0)
        self.decisions: list[tuple[float, Decision]] = []
        self._noise = random.Random(seed)
        self._samples = self._wait_s = self._busy_s = self._processor_s = 0.0

    def go_on(self, seconds: float) -> Training:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self._tick()
        return self

    def _tick(self) -> None:
        size, machine = self.controller.size, self.machine
        rate = machine.rate(size) * self._noise.uniform(0.97, 1.03)
        self.now_s += TICK_S
        self._samples += rate * TICK_S
        self._wait_s += max(0.0, 1 - machine.model_s * rate) * TICK_S
        at_a_time = machine.waits_s + machine.computes_s
        is_held_up_by_model = size.processes > 0 and rate * machine.model_s > 0.9
        # Hands that no core is free for are busy all the same.
        self._busy_s += (rate * at_a_time if is_held_up_by_model or not size.processes else size.hands) * TICK_S
        self._processor_s += rate * machine.computes_s * TICK_S
        reading = self.reading()
        if self.controller.is_changing:
            self.controller.changed(reading)
        decision = self.controller.look(reading)
        if decision is not None:
            self.decisions.append((self.now_s, decision))

    def reading(self) -> Reading:
        samples = round(self._samples)
        return Reading(self.now_s, samples, samples, self._wait_s, self._busy_s, self._processor_s)

    @property
    def share_of_best(self) -> float:
        return self.machine.rate(self.controller.size) / self.machine.best

    def changes_since(self, begin_s: float) -> int:
        return sum(at_s > begin_s for at_s, _ in self.decisions)


TIMES = st.floats(5e-6, 0.05)
MACHINES = st.builds(Machine, waits_s=st.one_of(st.just(0.0), TIMES), computes_s=TIMES, model_s=st.floats(1e-6, 0.02))
SIZES = st.sampled_from(GRID)


@steady
@given(MACHINES, SIZES, st.integers(0, 100))
def test_after_twenty_seconds_the_loop_is_nearly_as_quick_as_it_can_be(
    machine: Machine, first: Size, seed: int
) -> None:
    training = Training(machine, first, seed).go_on(20)
    assert machine.rate(training.controller.settled) > 0.9 * machine.best


@steady
@given(MACHINES, SIZES, st.integers(0, 100))
def test_steady_training_is_left_alone(machine: Machine, first: Size, seed: int) -> None:
    training = Training(machine, first, seed).go_on(60).go_on(600)
    assert training.changes_since(60) <= 3


CHANGES = [
    pytest.param(Machine(0.002, 1e-4, 1e-4), Machine(0.02, 1e-4, 1e-4), id="storage becomes ten times slower"),
    pytest.param(Machine(0.0, 1e-3, 2e-3), Machine(0.0, 1e-3, 4e-4), id="the model becomes five times quicker"),
    pytest.param(Machine(0.02, 1e-4, 1e-4), Machine(0.0, 1e-4, 1e-4), id="a cache has become warm"),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize("first", [Size(0), Size(1), Size(2), Size(2, 8)])
def test_a_change_in_mid_run_is_followed_within_fifteen_seconds(before: Machine, after: Machine, first: Size) -> None:
    training = Training(before, first).go_on(120)
    training.machine = after
    training.go_on(15)
    assert training.share_of_best > 0.9


def test_a_loop_that_does_not_wait_is_left_alone() -> None:
    training = Training(Machine(0.0, 1e-5, 1e-2), Size(2)).go_on(300)
    assert len(training.decisions) <= 2


def test_what_gains_nothing_is_taken_back_with_its_reason() -> None:
    training = Training(Machine(0.0, 1e-3, 1e-4, cores=1.0), Size(1)).go_on(20)
    assert training.controller.size == Size(1)
    taken_back = [decision for _, decision in training.decisions if "gives" in decision.reason]
    assert taken_back
    assert "2 processes gave" in taken_back[0].reason


def test_sizes_stay_within_their_limits() -> None:
    limits = Limits(1, 2, 2, 4)
    training = Training(Machine(0.05, 1e-5, 1e-6), Size(0), limits=limits).go_on(60)
    for _, decision in training.decisions:
        assert limits.holds(decision.size) == decision.size
    assert training.controller.size == Size(2, 4)


def test_what_cannot_be_had_is_not_asked_for_again() -> None:
    training = Training(Machine(0.0, 1e-3, 1e-6), Size(1))
    while not training.decisions:
        training.go_on(TICK_S)
    training.controller.refused(Size(1))
    training.go_on(60)
    assert all(decision.size.processes <= 1 for _, decision in training.decisions[1:])


def test_a_size_speaks_for_itself() -> None:
    assert str(Size(0)) == "no workers"
    assert str(Size(1)) == "1 process"
    assert str(replace(Size(2, 8), ahead=4)) == "2 processes × 8 threads, 4 times as many batches ahead"
