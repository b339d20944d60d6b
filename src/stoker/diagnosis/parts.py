"""What a batch takes, divided by what it takes it for.

Costs measured on one sample, by one thread, become a batch's by dividing them by those who share them: waiting by all
lanes of all workers, computing by the processes that have a core (threads of one process only as far as they let the
GIL go). Collating and moving are measured together, with the workers as they are; without a collate_fn of the user's
own, collating in a worker is a way of moving. What then lies between the sum and what a batch really took is `rest`:
hands that stood idle, or were in each other's way.

Drawing the indices is the training process's own work, shared by nobody.

    batch  ├─ drawing ─┼─ waiting ─┼─ computing ─┼─ collating ─┼─ moving ─┼─ rest ─┤
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.diagnosis.facts import Facts, GivenLoader, Sample


@dataclass(frozen=True)
class Parts:
    """Seconds of a batch, by what they were spent for."""

    waiting_s: float
    computing_s: float
    collating_s: float
    moving_s: float
    rest_s: float
    drawing_s: float = 0.0

    @property
    def leading(self) -> str:
        """The largest part beside the rest: drawing, waiting, computing, collating or moving."""
        named = {
            "drawing": self.drawing_s,
            "waiting": self.waiting_s,
            "computing": self.computing_s,
            "collating": self.collating_s,
            "moving": self.moving_s,
        }
        return max(named, key=lambda name: named[name])


def parts_of(facts: Facts) -> Parts | None:
    """The parts of a batch; None for a loader that could not be looked into."""
    given, sample, rows = facts.given, facts.sample, facts.alone.rows
    if sample is None:
        return None
    collating_s, moving_s = _after_loading(facts)
    waiting_s = rows * sample.waiting_s / given.hands
    computing_s = rows * sample.computing_s / computers(given, sample)
    drawing_s = facts.inside.drawn_s
    rest_s = facts.alone.step_s - waiting_s - computing_s - collating_s - moving_s - drawing_s
    return Parts(waiting_s, computing_s, collating_s, moving_s, max(0.0, rest_s), drawing_s)


def computers(given: GivenLoader, sample: Sample) -> float:
    """How many samples can be computed at the same time, in mean."""
    processes = max(1, given.processes)
    threads = 1.0 + (max(1, given.lanes) - 1) * (1.0 - sample.gil_held)
    return max(1.0, min(float(given.cores), processes * threads))


def _after_loading(facts: Facts) -> tuple[float, float]:
    """Seconds for collating and for moving a batch, from what handing over takes in all."""
    collate_s, handed_s = facts.inside.collate_s or 0.0, facts.inside.handed_s
    if handed_s is None:
        return collate_s, 0.0
    if not facts.given.own_collate:
        return 0.0, handed_s
    return min(collate_s, handed_s), max(0.0, handed_s - collate_s)
