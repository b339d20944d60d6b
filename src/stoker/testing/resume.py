"""The resume checker: stop a loader before every step, go on in a new one, and see whether anyone could tell.

    uninterrupted   s0 b0 s1 b1 s2 b2 s3 │ s4 b3 s5 …       a state before every step, at the end, between epochs
    resumed at s1         b1    b2       │    b3    …       in a new loader, compared batch by batch

One run is recorded twice, with and without saving, because asking for a state must change nothing. Every state then
goes through JSON (or pickle, where a dataset's own state is not JSON) into a new loader, and all that follows is
compared to the last bit, through the epoch after the last one saved in: a state at the end has to lead somewhere too.

Random numbers: a trainer that saves a loader also saves its process's generators, so the checker does the same
with Python's, NumPy's and torch's. torch's plain shuffle draws each epoch's order from the last of these. All three
are left as they were found.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from stoker.sampling.generators import Generators, generators_kept
from stoker.testing.difference import difference

MakeLoader = Callable[[], Any]
"""Makes a loader: something to iterate, with `state_dict` and `load_state_dict`, over a dataset of its own."""


def assert_resumes_everywhere(
    make_loader: MakeLoader, *, epochs: int = 1, others: Iterable[MakeLoader] = (), any_order: bool = False
) -> None:
    """Raise an AssertionError, unless a run can be resumed from every one of its steps as if it had not stopped.

    make_loader  makes the loader afresh for each resume; whatever it closes over must not remember earlier loaders
    epochs       how many epochs to stop in, at every step of each
    others       makers of loaders that must be able to go on as well: with other workers, lanes, another prefetch
    any_order    compare what is left of an epoch whatever its order, for loaders with in_order=False

    The time grows with the square of the number of steps: use few, of a tiny dataset.
    """
    with generators_kept():
        beginning = Generators.now()
        saved = _record(make_loader(), epochs, saving=True)
        beginning.restore()
        plain = _record(make_loader(), epochs, saving=False)
        comparison = _Comparison(saved, any_order)
        comparison.check(plain.epochs, 0, "the same run without asking for states")
        for number, make in enumerate((make_loader, *others)):
            for stop in saved.stops:
                comparison.check_resumed(make(), stop, f" by others[{number - 1}]" if number else "")


@dataclass(frozen=True)
class _Stop:
    """A state, and when it was saved: `step` batches of `epoch` had been handed over."""

    epoch: int
    step: int
    state: Any
    generators: Generators

    def __str__(self) -> str:
        return f"before step {self.step} of epoch {self.epoch}"


@dataclass(frozen=True)
class _Recording:
    epochs: list[list[Any]]
    stops: list[_Stop]


def _record(loader: Any, epochs: int, saving: bool) -> _Recording:
    """One run: `epochs` epochs to stop in, and one more to see where the last state leads."""
    recording = _Recording([], [])
    for epoch in range(epochs + 1):
        batches: list[Any] = []
        recording.epochs.append(batches)
        if saving:
            recording.stops.append(_stop(loader, epoch, 0))
        for batch in loader:
            batches.append(batch)
            if saving and epoch < epochs:
                recording.stops.append(_stop(loader, epoch, len(batches)))
    return recording


def _stop(loader: Any, epoch: int, step: int) -> _Stop:
    state = _stored(loader.state_dict())
    return _Stop(epoch, step, state, Generators.now())  # the generators after the state, which may draw ahead


def _stored(state: Any) -> Any:
    """The state as it comes out of a checkpoint: nothing in it is shared with the loader that gave it."""
    try:
        through_json = json.loads(json.dumps(state))
    except (TypeError, ValueError):  # a dataset's own state may hold tensors
        through_json = None
    return through_json if through_json == state else pickle.loads(pickle.dumps(state))


@dataclass(frozen=True)
class _Comparison:
    """Compares runs with the recorded one."""

    recording: _Recording
    any_order: bool

    def check_resumed(self, loader: Any, stop: _Stop, by_whom: str) -> None:
        stop.generators.restore()
        what = f"a run saved {stop} and resumed{by_whom}"
        try:
            loader.load_state_dict(_stored(stop.state))
            first = list(loader)
        except Exception as error:
            raise AssertionError(f"{what} cannot go on: {type(error).__name__}: {error}\n{_told(stop)}") from error
        later = (list(loader) for _ in self.recording.epochs[stop.epoch + 1 :])
        self.check([first, *later], stop.epoch, what, stop)

    def check(self, epochs: list[list[Any]], epoch: int, what: str, stop: _Stop | None = None) -> None:
        for number, got in enumerate(epochs, start=epoch):
            step = stop.step if stop is not None and number == epoch else 0
            expected = self.recording.epochs[number][step:]
            found = self._unordered(expected, got) if self.any_order else _in_order(expected, got, step)
            if found is not None:
                raise AssertionError(
                    f"{what} is not the uninterrupted run: in epoch {number}, {found}\n{_told(stop)}".rstrip()
                )

    @staticmethod
    def _unordered(expected: list[Any], got: list[Any]) -> str | None:
        left = list(got)
        for batch in expected:
            place = next((place for place, other in enumerate(left) if difference(batch, other) is None), None)
            if place is None:
                return f"a batch never came: {batch!r}"
            del left[place]
        return f"{len(left)} batches came that should not, such as {left[0]!r}" if left else None


def _in_order(expected: list[Any], got: list[Any], step: int) -> str | None:
    for place, (one, other) in enumerate(zip(expected, got, strict=False), start=step):
        found = difference(one, other)
        if found is not None:
            return f"step {place} differs: {found}"
    if len(expected) != len(got):
        return f"there are {len(got)} steps from step {step} on, expected {len(expected)}"
    return None


def _told(stop: _Stop | None) -> str:
    return "" if stop is None else f"  The state was {stop.state}"
