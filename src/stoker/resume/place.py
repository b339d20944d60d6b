"""The state of a loader: a small dictionary that a person can read and JSON can hold.

    stoker_state   the format's version
    epoch          which epoch the place is in, from 0
    batches        batches handed over in it, by this rank
    position       samples of the epoch used up, over all ranks: with arithmetic order this is the whole place
    data, order    what the samples' order depends on, to refuse another dataset, seed or order
    told           the trainer's number of its epoch, where that is another one (see `epochs`)
    drawn          for torch's samplers: the seed, generator or epoch that the order was drawn from
    sampler        for samplers with a state of their own: that state
    base_seed      what the workers' seeds are made from
    workers        for datasets with a state, and iterable ones: each worker's place, and whose turn it is
    ahead          with in_order=False: batches handed over out of turn
    failures       how many samples have failed and how many were seen, for the budget of `on_error`
    joined         with a plan over an iterable dataset: steps made of the ends of its workers

Only the first four are always there. Broken or newer states are refused with what is wrong and what to do.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker.batches import check_told, opened
from stoker.errors import ResumeMismatch, StateError
from stoker.sampling.streams import Start
from stoker.whole_numbers import check_whole

VERSION = 1
_GENERATOR = 6744  # characters of a torch generator's state, 5056 bytes, in base 64
_COUNTS = ("epoch", "batches", "position")
_OPTIONAL: dict[str, type | tuple[type, ...]] = {
    "told": int,
    "data": dict,
    "order": dict,
    "drawn": dict,
    "sampler": dict,
    "base_seed": int,
    "workers": dict,
    "ahead": list,
    "failures": dict,
    "joined": int,
}


@dataclass
class Place:
    """Where a run is in its data."""

    epoch: int = 0
    batches: int = 0
    position: int = 0
    told: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    order: dict[str, Any] = field(default_factory=dict)
    drawn: dict[str, Any] = field(default_factory=dict)
    sampler: Any = None
    base_seed: int | None = None
    workers: dict[str, Any] | None = None
    ahead: list[int] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    joined: int | None = None  # steps of a plan that were made of the ends of an iterable's workers

    def start(self) -> Start:
        """Where the stream of keys begins."""
        return Start(self.epoch, self.position, self.batches, self.drawn or None, self.sampler)

    def is_in(self, epoch: int) -> bool:
        """Whether the place is in what a trainer calls this epoch."""
        return epoch == (self.epoch if self.told is None else self.told)

    def to_state(self) -> dict[str, Any]:
        """The state to save; StateError if the dataset or the sampler could not tell its part."""
        check_told(self.sampler)
        if self.workers is not None:
            self.workers = {**self.workers, "states": [opened(state) for state in self.workers["states"]]}
            for one in self.workers["states"]:
                check_told(one)
        state: dict[str, Any] = {"stoker_state": VERSION}
        state.update({name: getattr(self, name) for name in _COUNTS})
        for name in _OPTIONAL:
            value = getattr(self, name)
            if name == "told" and value == self.epoch:
                continue
            if value is not None and value not in ({}, []):
                state[name] = copy.deepcopy(value)
        return state

    @classmethod
    def from_state(cls, state: Any) -> Place:
        """Read a state; StateError says what is wrong with it."""
        if not isinstance(state, Mapping):
            raise StateError(f"a loader's state is a dictionary, but this is a {type(state).__name__}")
        _check_version(state)
        for name in _COUNTS:
            _check_count(state, name)
        for name, kind in _OPTIONAL.items():
            if name in state and not isinstance(state[name], kind):
                raise StateError(f"the state's {name!r} should be a {kind}, but is {state[name]!r}: it was damaged")
        known = {name: copy.deepcopy(state[name]) for name in (*_COUNTS, *_OPTIONAL) if name in state}
        place = cls(**known)
        _check_parts(place)
        return place


def skip(state: Mapping[str, Any], steps: int, samples_per_step: int | None = None) -> dict[str, Any]:
    """The same state `steps` steps further on: leaves out data after a loss spike, for example.

    With arithmetic order a step's size is known from the state; for torch's samplers it follows from the batches so
    far, or is given.
    """
    place = Place.from_state(state)
    steps = check_whole("steps", steps, least=0)
    if place.workers is not None or place.sampler is not None:
        raise StateError(
            "this state holds a sampler's or dataset's own state, which only that sampler or dataset can move on. "
            "Load the state and draw the batches that are to be left out."
        )
    size = samples_per_step or place.order.get("per_step") or _mean_step(place)
    end = _end_of_epoch(place)
    place.batches += steps
    place.position += steps * size
    if end is not None and place.position > end:
        raise ValueError(
            f"{steps} steps of {size} samples go {place.position - end} samples beyond the epoch's end. At most "
            f"{steps - -(-(place.position - end) // size)} steps can be skipped in this epoch."
        )
    return place.to_state()


def check_same_data(place: Place, now: Place) -> None:
    """Refuse a place that was saved over other data or in another order; shows only what differs."""
    differences = [
        (label, saved, current)
        for label, saved, current in (
            ("dataset length", place.data.get("length"), now.data.get("length")),
            *((f"order {key}", place.order.get(key), now.order.get(key)) for key in {**place.order, **now.order}),
        )
        if saved != current and not label.endswith("per_step")
    ]
    if not differences:
        return
    rows = "\n".join(f"  {label:<24}{saved!s:<24}{current!s}" for label, saved, current in differences)
    raise ResumeMismatch(
        f"this loader cannot continue the saved run.\n  {'':<24}{'saved':<24}now\n{rows}\n"
        "  The samples would come in another order than before. Load the state into a loader over the same dataset, "
        "with the same seed and order; or start a new run without it.",
        differences=differences,
    )


def check_step(place: Place, per_step: int | None) -> None:
    """Refuse a position that is in the middle of one of this loader's steps."""
    if not per_step or place.position % per_step == 0 or place.position == place.order.get("samples"):
        return
    saved = place.order.get("per_step")
    raise ResumeMismatch(
        f"the saved run has used {place.position} samples of its epoch, which is not a whole number of this loader's "
        f"steps of {per_step} samples (batch_size × ranks; it was {saved}). Choose batch_size so that batch_size × "
        f"ranks is {saved} again, or a divisor of {place.position}.",
        differences=[("samples per step", saved, per_step)],
    )


def _check_parts(place: Place) -> None:
    """Refuse values that no loader writes, before anything is done with them."""
    problems = {
        "epoch": not _is_count(place.epoch),
        "told": place.told is not None and not _is_count(place.told),
        "base_seed": place.base_seed is not None and not _is_count(place.base_seed),
        "drawn": not _is_drawn(place.drawn),
        "sampler": place.sampler is not None and not _is_sampler(place.sampler),
        "workers": place.workers is not None and not _is_workers(place.workers),
        "joined": place.joined is not None and not _is_count(place.joined),
        "ahead": not all(type(batch) is int and batch >= place.batches for batch in place.ahead),
        "data": not isinstance(place.data.get("length"), int | None),
        "order": not all(isinstance(place.order.get(name), int | None) for name in ("samples", "per_step")),
        "position": place.position > (_end_of_epoch(place) or place.position),
        "failures": not all(type(place.failures.get(name, 0)) is int for name in ("count", "seen")),
    }
    for name, is_wrong in problems.items():
        if is_wrong:
            raise StateError(
                f"the state's {name!r} is nothing a loader would have saved: {getattr(place, name)!r:.200}. It was "
                "damaged or edited wrongly: use an earlier checkpoint, or put it right."
            )


def _end_of_epoch(place: Place) -> int | None:
    """How many samples an epoch has, where that is known: samplers may repeat samples, or leave some out."""
    end = place.order.get("samples")
    if end is None and place.order.get("sampler") == "SequentialSampler":
        end = place.data.get("length")
    return end if isinstance(end, int) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_sampler(place: dict[str, Any]) -> bool:
    return place.get("of") in ("iterator", "sampler") and "state" in place


def _is_drawn(drawn: dict[str, Any]) -> bool:
    if not drawn:
        return True
    if set(drawn) == {"seed"}:
        return type(drawn["seed"]) is int and -(2**63) <= drawn["seed"] < 2**64
    if "epoch" in drawn and not _is_count(drawn["epoch"]):
        return False
    generator = drawn.get("generator", "A" * _GENERATOR)
    return set(drawn) <= {"generator", "epoch"} and isinstance(generator, str) and len(generator) == _GENERATOR


def _is_workers(workers: dict[str, Any]) -> bool:
    if set(workers) != {"count", "turn", "states"} or not isinstance(workers["states"], list):
        return False
    count, turn, states = workers["count"], workers["turn"], workers["states"]
    if type(count) is not int or type(turn) is not int or not 0 <= turn <= max(0, count - 1):
        return False
    return len(states) == max(1, count) and all(isinstance(state, dict | None) for state in states)


def check_iterable_states(states: list[Any]) -> None:
    """Refuse places of an iterable dataset's iterators that no worker would have told."""
    for worker, state in enumerate(states):
        if state is None:
            continue
        whole = {"batches", "ended", "dataset", "iterator"} <= set(state)
        if not whole or type(state["batches"]) is not int or state["batches"] < 0 or type(state["ended"]) is not bool:
            raise StateError(
                f"the state's place of worker {worker} is nothing that a worker would have told: {state!r:.200}. It "
                "was damaged or edited wrongly: use an earlier checkpoint, or put it right."
            )


def _mean_step(place: Place) -> int:
    if not place.batches:
        raise StateError("how many samples a step takes is not known from this state: give samples_per_step=…")
    return -(-place.position // place.batches)


def _check_version(state: Mapping[str, Any]) -> None:
    version = state.get("stoker_state")
    if version is None:
        raise StateError(
            "this is not a state of a Stoker loader: it has no 'stoker_state'. Give load_state_dict what state_dict() "
            f"returned; this has the keys {sorted(map(str, state))[:8]}."
        )
    if type(version) is not int or version < 1:
        raise StateError(f"the state's version should be a whole number from 1, but is {version!r}: it was damaged")
    if version > VERSION:
        raise StateError(
            f"this state has version {version}, and this Stoker reads versions up to {VERSION}: it was saved by a "
            "newer Stoker. Upgrade Stoker to go on with the run."
        )


def _check_count(state: Mapping[str, Any], name: str) -> None:
    value = state.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        missing = "is missing" if value is None else f"is {value!r}"
        raise StateError(
            f"the state's {name!r} should be a whole number from 0, but {missing}: the state was cut short or edited "
            "wrongly. Use an earlier checkpoint, or put the number right."
        )
