"""Each suspected change, measured against the loader as it is.

Two rounds, the second backwards, so that a machine that slows down slows all alike and none always follows the same
other. What cannot be built or raises is noted as failed and left out. Loaders that keep workers are closed after their
turn; the given loader's own workers are the user's.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from stoker.measure.blame import failure_of
from stoker.measure.diagnosis.facts import Change, Facts, Tried
from stoker.measure.diagnosis.judge import is_held_up
from stoker.measure.diagnosis.measuring import Tell
from stoker.measure.diagnosis.rig import Rig, given_of
from stoker.measure.diagnosis.suspects import applied, suspects
from stoker.measure.rebuild import close, rebuild

_ROUNDS = 2


@dataclass
class _Contender:
    """A change and what its rounds took; None is the loader as it is."""

    change: Change | None
    took_s: list[float] = field(default_factory=list)
    failure: str = ""


def try_all(rig: Rig, facts: Facts, seconds: float, tell: Tell) -> tuple[Tried, ...]:
    """Try what the facts suggest; nothing, where the loader is not what holds the model up."""
    if not is_held_up(facts):
        return ()
    own = getattr(rig.loader, "workers", None)
    changes = [applied(change, own) for change in suspects(facts)]
    if not changes:
        return ()
    given = _Contender(None)
    contenders = [given, *(_Contender(change) for change in changes)]
    slice_s = seconds / (_ROUNDS * len(contenders))
    for number in range(_ROUNDS):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            tell(f"trying {contender.change}" if contender.change is not None else "the loader as it is")
            _take_turn(contender, rig, slice_s)
    return tuple(_tried(contender, given) for contender in contenders[1:] if contender.change is not None)


def build(loader: Any, change: Change) -> Any:
    """The loader with the change made."""
    return rebuild(loader, change.kind or None, **change.arguments)


def _take_turn(contender: _Contender, rig: Rig, seconds: float) -> None:
    if contender.failure:
        return
    if contender.change is None:
        pace = rig.pace(rig.loader, rig.given, seconds)
        contender.took_s.append(pace.per_sample(rig.given.batches))
        return
    try:
        loader = build(rig.loader, contender.change)
        try:
            given = replace(given_of(loader), batches=rig.given.batches)
            contender.took_s.append(rig.pace(loader, given, seconds).per_sample(given.batches))
        finally:
            close(loader)
    except Exception as error:  # a setting that this dataset cannot be loaded with
        failure = failure_of(error)
        contender.failure = f"{failure.type}: {failure.message}"


def _tried(contender: _Contender, given: _Contender) -> Tried:
    assert contender.change is not None
    if contender.failure:
        return Tried(contender.change, failure=contender.failure)
    return Tried(contender.change, tuple(given.took_s), tuple(contender.took_s))


@contextmanager
def quietly() -> Iterator[None]:
    """Without torch's warnings of more workers than cores: that is tried on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield
