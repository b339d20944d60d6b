"""What to tune for, and what it may take: checked once, so that a search meets no nonsense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stoker.errors import StokerError

Goal = Literal["throughput", "step", "cpu"]
GOALS: tuple[Goal, ...] = ("throughput", "step", "cpu")


class TuneError(StokerError, ValueError):
    """Nothing could be tuned: a goal that does not exist, or no setting that works within the limits."""


@dataclass(frozen=True)
class Aim:
    """What to look for, and what it may take.

    steps_s      what the model takes for a step, one for each batch size; a single one belongs to the first batch size
                 and grows with it; empty: no model, loading alone is measured
    max_bytes    peak memory of all processes together (proportional set size), as `stoker bench` shows it
    processes, lanes, prefetch, start_methods   what to try; empty: what this machine and this dataset suggest
    """

    goal: Goal = "throughput"
    batch_sizes: tuple[int, ...] = ()
    steps_s: tuple[float, ...] = ()
    budget_s: float = 60.0
    max_bytes: int | None = None
    processes: tuple[int, ...] = ()
    lanes: tuple[int, ...] = ()
    prefetch: tuple[int, ...] = ()
    start_methods: tuple[str, ...] = ()
    shuffle: bool = True

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise TuneError(f"goal should be one of {', '.join(GOALS)}, but is {self.goal!r}")
        if not self.budget_s > 0:
            raise TuneError(f"budget_s should be above 0, but is {self.budget_s:g}")
        for name, least in (("batch_sizes", 1), ("processes", 0), ("lanes", 1), ("prefetch", 1)):
            if any(value < least for value in getattr(self, name)):
                raise TuneError(f"{name} should be whole numbers from {least}, but are {getattr(self, name)}")
        if len(self.steps_s) > 1 and len(self.steps_s) != len(self.batch_sizes):
            raise TuneError(
                f"{len(self.steps_s)} step times for {len(self.batch_sizes)} batch sizes: give one for each, or one "
                "for the first batch size"
            )

    def step_s(self, batch_size: int | None) -> float:
        """The model's time for a step of this size; 0 without a model."""
        if not self.steps_s or batch_size not in self.batch_sizes:
            return self.steps_s[0] if self.steps_s else 0.0
        if len(self.steps_s) > 1:
            return self.steps_s[self.batch_sizes.index(batch_size)]
        return self.steps_s[0] * batch_size / self.batch_sizes[0]
