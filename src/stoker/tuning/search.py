"""Finds a cheap setting among many with few trials, each of which may be off by a little.

    look      the settings that a forecast likes, one of each kind, once; again those that may be the best
    climb     from the best along one axis at a time (more lanes, fewer, …), as long as it gets cheaper
    finals    the few that may be the best, in turns, until each was measured often enough to be believed

It knows neither loaders nor clocks: a setting is anything hashable, a measurement a function that gives a cost (lower
is better, infinite for what failed or is not allowed). So tests run it on surfaces whose minimum is known. What it
relies on: along one axis, costs fall and then rise (or do not change). What it cannot do is to jump over a ridge: a
good setting that the forecast does not think of, behind bad ones, is not found.

A measurement of a busy machine is too slow, hardly ever too quick. So a setting's cost is the lowest of its
measurements, and whoever is to be compared closely has been measured equally often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)
Axis = Sequence[P]
"""The settings along one axis through a setting, itself among them, in the axis's order."""

_CONTENDER = 1.25  # a single measurement this far above the best may yet turn out to be the best: a guess
_CLOSE = 1.1  # measured twice, this far
_BETTER = 0.97  # a step along an axis has to bring more than noise
_LEVEL = 1.04  # neither better nor worse
_FINALISTS = 3
_FINAL_READINGS = 5  # if there is time: trials of a fraction of a second differ by a fifth


@dataclass(frozen=True)
class Effort:
    """What a search may spend: trials, and whatever `goes_on` measures (time)."""

    most_trials: int = 40
    goes_on: Callable[[float], bool] = lambda share: True
    """Whether less than this share of the time has been used."""
    climbing_share: float = 0.75  # the rest is for the finals


@dataclass
class Search(Generic[P]):
    """One search; `costs` holds what was measured so far."""

    measure: Callable[[P], float]
    axes: Callable[[P], Iterable[Axis[P]]]
    effort: Effort = field(default_factory=Effort)
    costs: dict[P, list[float]] = field(default_factory=dict)

    @property
    def trials(self) -> int:
        return sum(map(len, self.costs.values()))

    def cost(self, setting: P) -> float:
        """The lowest measurement; infinite if there is none."""
        return min(self.costs.get(setting, [math.inf]))

    @property
    def best(self) -> P:
        """The cheapest so far; of equals the one that was looked at first."""
        return min(self.costs, key=self.cost)

    def run(self, first: Sequence[P]) -> P:
        """Search from these settings; the best that was found."""
        self._take_turns(first, self.effort.climbing_share)
        self._take_turns([one for one in reversed(first) if self._is_within(one, _CONTENDER)], 0.5)
        self._climb()
        self._finals()
        return self.best

    def contenders(self, within: float) -> list[P]:
        """Those whose cost is at most this many times the best, the cheapest first."""
        return sorted((one for one in self.costs if self._is_within(one, within)), key=self.cost)

    def _is_within(self, setting: P, factor: float) -> bool:
        cost = self.cost(setting)
        return math.isfinite(cost) and cost <= factor * self.cost(self.best)

    def _climb(self) -> None:
        """Along every axis in turn, until none leads anywhere better."""
        walked: set[tuple[P, ...]] = set()
        while True:
            ahead = [axis for axis in map(tuple, self.axes(self.best)) if axis not in walked]
            if not ahead or not self._may_go_on(self.effort.climbing_share):
                return
            walked.add(ahead[0])
            self._walk(ahead[0])

    def _walk(self, axis: Axis[P]) -> None:
        """From the best to both sides; where one side goes downhill, the other is left alone."""
        here = axis.index(self.best)
        if not self._walk_on(axis[here + 1 :]):
            self._walk_on(axis[:here][::-1])

    def _walk_on(self, ahead: Axis[P]) -> bool:
        """On while it gets better, and once beyond what is no worse: a gentle slope is lost in noise step by step."""
        came_down, level = False, 0
        for setting in ahead:
            if not self._may_go_on(self.effort.climbing_share):
                break
            if self._is_better(setting):
                came_down, level = True, 0
            elif level or not self._is_within(setting, _LEVEL):
                break
            else:
                level += 1
        return came_down

    def _is_better(self, setting: P) -> bool:
        """Whether this one beats the best so far; a narrow result is measured once more, both ways."""
        rival, before = self.best, self.cost(self.best)
        if setting in self.costs:
            return False  # it was compared already, and is not the best
        self._measure(setting)
        if self.cost(setting) >= _CLOSE * before:
            return False
        if len(self.costs[rival]) < 2:
            self._measure(rival)
        self._measure(setting)
        return self.cost(setting) < _BETTER * self.cost(rival)

    def _finals(self) -> None:
        finalists = self.contenders(_CONTENDER)[:_FINALISTS]
        for readings in range(2, _FINAL_READINGS + 1):
            due = [one for one in finalists if len(self.costs[one]) < readings]
            self._take_turns(due if readings % 2 else due[::-1], 1.0)

    def _take_turns(self, settings: Iterable[P], share: float) -> None:
        for setting in settings:
            if self.trials and not self._may_go_on(share):
                return
            self._measure(setting)

    def _may_go_on(self, share: float) -> bool:
        return self.trials < self.effort.most_trials and self.effort.goes_on(share)

    def _measure(self, setting: P) -> None:
        self.costs.setdefault(setting, []).append(self.measure(setting))
