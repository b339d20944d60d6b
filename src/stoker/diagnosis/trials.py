"""Trying changes: each against the loader as it is.

Two rounds, the second backwards, so that a machine that slows down slows all alike and none always follows the same
other. What cannot be built or raises is noted as failed and left out. Every turn is over a loader of its own, which
begins where nobody has read yet (`ground`); the given loader's own workers are the user's.

The time is divided among the turns, and no turn passes its share. Where a loader is so slow that two turns of it would
take too much, what was measured of it before stands for them; where there is no time for one change, none is tried.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stoker.bench.blame import trouble_of
from stoker.bench.calls import call_of
from stoker.bench.rebuild import rebuild, setup_of
from stoker.bench.settings import STOKER
from stoker.diagnosis.bound import Deadline
from stoker.diagnosis.facts import Change, Facts, TriedChange
from stoker.diagnosis.ground import Ground
from stoker.diagnosis.judge import is_held_up
from stoker.diagnosis.measuring import Tell
from stoker.diagnosis.pace import Bounds, TooSlow
from stoker.diagnosis.rig import Rig
from stoker.diagnosis.suspects import applied, suspects

_ROUNDS = 2
_LEAST_TURN_S = 0.02
_LEAST_GUESSED_S = 0.5
_USED = 0.6  # of a turn's time for the pass; the rest for starting and letting go


@dataclass
class _Contender:
    """A change and what its rounds took; None is the loader as it is."""

    change: Change | None
    took_s: list[float] = field(default_factory=list)
    failure: str = ""


def try_all(rig: Rig, facts: Facts, ground: Ground, deadline: Deadline, tell: Tell) -> tuple[TriedChange, ...]:
    """Try what the facts suggest; nothing, where the loader is not what holds the model up."""
    if not is_held_up(facts) or not facts.alone.batches:
        return ()
    own = setup_of(rig.loader).workers if rig.given.kind == STOKER else None
    changes = [applied(change, own) for change in suspects(facts)]
    given, contenders = _that_fit(facts, changes, deadline.left_s)
    turns = _ROUNDS * len(contenders)
    for number in range(_ROUNDS):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            tell(f"trying {contender.change}" if contender.change is not None else "the loader as it is")
            if deadline.left_s > 0.0:
                _take_turn(contender, rig, ground, deadline.left_s / turns, turns)
            elif contender.change is None:  # what was measured of it before stands for the turn
                contender.took_s.append(facts.whole.per_sample(facts.given.batches))
            else:  # who went before took longer to let go of its workers than there was time
                contender.failure = contender.failure or "there was no time for it"
            turns -= 1
    return tuple(_tried(one, given, rig.loader) for one in contenders if one.change is not None)


def _that_fit(facts: Facts, changes: list[Change], left_s: float) -> tuple[_Contender, list[_Contender]]:
    """The given loader, and all that take turns: as many changes as there is time for."""
    usual_s = max(_LEAST_TURN_S, facts.whole.first_s + 2 * facts.whole.step_s)  # the least that a turn takes
    given = _Contender(None)
    for count in range(len(changes), 0, -1):
        if left_s >= _ROUNDS * (count + 1) * usual_s:
            return given, [given, *map(_Contender, changes[:count])]
    given.took_s = [facts.whole.per_sample(facts.given.batches)] * _ROUNDS
    # A change that is worth it is quicker, maybe by far, so it may do with a tenth of the time.
    count = int(left_s / (_ROUNDS * max(_LEAST_GUESSED_S, 0.1 * usual_s)))
    return given, [_Contender(change) for change in changes[:count]]


def build(loader: Any, change: Change) -> Any:
    """The loader with the change made."""
    return rebuild(loader, change.kind or None, **change.arguments)


def _take_turn(contender: _Contender, rig: Rig, ground: Ground, seconds: float, turns: int) -> None:
    if contender.failure:
        return
    left = ground.left()
    most = max(1, left // turns) if ground.once and left is not None else None
    bounds = Bounds(_USED * seconds, max(0.5, seconds), most)
    change = contender.change if contender.change is not None else Change({})
    try:
        pace = ground.pace(bounds, change, rig.as_in_training)
        contender.took_s.append(pace.per_sample(rig.given.batches))
    except TooSlow as error:
        contender.failure = f"no batch within {error.seconds:.1f} s"
    except Exception as error:  # a setting that this dataset cannot be loaded with
        if contender.change is None:
            raise
        failure = trouble_of(error)
        contender.failure = f"{failure.type}: {failure.message}"


def _tried(contender: _Contender, given: _Contender, loader: Any) -> TriedChange:
    change = contender.change
    assert change is not None
    call = call_of(loader, change.kind, change.arguments)
    failure = contender.failure or (given.failure and f"the loader as it is: {given.failure}")
    if failure:
        return TriedChange(change, failure=failure, call=call)
    return TriedChange(change, tuple(given.took_s), tuple(contender.took_s), call=call)
