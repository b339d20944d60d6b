"""The three throughputs, and the look inside: everything that is measured before anything is changed.

Every stage has a share of the time and a limit that it does not pass (`bound`), whatever the loader does. A stage that
got nothing in its time is left out and named in `hurried`; only a step is waited for, and then made as seldom as
possible.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from stoker.bench.blame import trouble_of
from stoker.bench.settings import GIVEN
from stoker.bench.statistics import median
from stoker.diagnosis.bound import Deadline, be_patient
from stoker.diagnosis.cost import crowding
from stoker.diagnosis.crowd import load_per_core, share_taken, swapped_bytes
from stoker.diagnosis.facts import Facts, Inside, Pace
from stoker.diagnosis.ground import Ground
from stoker.diagnosis.inside import look_inside
from stoker.diagnosis.noted import noting, with_notes
from stoker.diagnosis.pace import Bounds, NoBatch, TooSlow
from stoker.diagnosis.rig import DiagnosisError, Rig, Step

Tell = Callable[[str], object]
_SHARES = {"crowd": 0.05, "inside": 0.16, "alone": 0.1, "model": 0.04, "together": 0.1}
_LIMITS = {"inside": 0.25, "alone": 0.3, "together": 0.25}
_LEAST_LIMIT_S = 2.0
_CROWD_S = (0.1, 0.3)
_FEW_STEPS = 3
_LOOKED_AT_ONCE = 32  # of a large batch, the look takes so many samples


def measure_facts(rig: Rig, ground: Ground, deadline: Deadline, tell: Tell) -> Facts:
    """Measure for about half of the time; DiagnosisError if the loader or the step raises, or there is no batch."""
    facts = Facts(rig.given, Pace(0.0, 0.0, 0.0, 1.0, 0))
    load, slowed, swapped = load_per_core(), [crowding()], swapped_bytes()
    taken = share_taken(min(_CROWD_S[1], max(_CROWD_S[0], deadline.share(_SHARES["crowd"]))))
    facts = replace(facts, load=load, taken=taken)
    if rig.given.kind != GIVEN:
        tell("looking into the loader")
        facts = replace(facts, inside=_look(rig, ground, deadline))
        be_patient(_batch_s(facts))
    slowed.append(crowding())
    tell("the loader without a model")
    kept: list[Any] = []
    with _blamed("the loader"):
        facts = _alone(facts, rig, ground, deadline, kept)
    slowed.append(crowding())
    facts = replace(facts, crowding=median(slowed))
    if rig.step is not None and kept:
        facts = _with_model(facts, rig, ground, deadline, kept.pop(), tell)
    return replace(facts, rereads=ground.rereads, swapped_bytes=swapped_bytes() - swapped)


def _batch_s(facts: Facts) -> float:
    """What a worker takes for a batch, as far as is known."""
    sample = facts.sample
    return 0.0 if sample is None else sample.seconds * (facts.given.batch_size or 1) * max(1, facts.given.processes)


def _look(rig: Rig, ground: Ground, deadline: Deadline) -> Inside:
    limit_s = max(_LEAST_LIMIT_S, deadline.share(_LIMITS["inside"]))
    inside = look_inside(rig.loader, rig.given, deadline.share(_SHARES["inside"]), limit_s)
    ground.drawn_s = inside.drawn_s
    if inside.sample is not None:
        ground.take_samples(inside.sample.count + 1, min(_LOOKED_AT_ONCE, rig.given.batch_size or 1))
        ground.once = inside.sample.is_remembered
    return inside


def _alone(facts: Facts, rig: Rig, ground: Ground, deadline: Deadline, kept: list[Any]) -> Facts:
    starts = 2 if rig.given.keeps_workers else 1  # the second is the one that counts
    limit_s = deadline.share(min(0.45, starts * _LIMITS["alone"]))
    bounds = Bounds(deadline.share(_SHARES["alone"]), max(1.0, limit_s))
    if ground.once:
        bounds = replace(bounds, most=_part(ground, 6))
    try:
        with _noted(rig, facts) as seen:
            alone = ground.pace(bounds, model=lambda batch: kept.__setitem__(slice(None), [batch]))
        return replace(facts, alone=replace(alone, model_s=0.0), inside=seen[0])
    except TooSlow as error:
        if facts.sample is None:
            raise DiagnosisError(f"{error}: give it more time (--seconds), or smaller batches to diagnose") from None
        # A batch takes longer than this, and that is all that is known of it.
        waited = Pace(error.seconds, error.seconds, 0.0, float(rig.given.batch_size or 1), 0, start_known=False)
        return replace(facts, alone=waited, hurried=f"no batch came within {error.seconds:.1f} s")


@contextmanager
def _noted(rig: Rig, facts: Facts) -> Iterator[list[Inside]]:
    """Every sample of a pass is noted; gives the look inside, afterwards with what was noted."""
    seen, sample = [facts.inside], facts.sample
    with noting(rig.loader, rig.given, sample) as notes:
        yield seen
        if notes is not None and sample is not None:
            seen[0] = replace(facts.inside, sample=with_notes(sample, notes))


def _part(ground: Ground, parts: int) -> int | None:
    """A part of the batches that nobody has read yet."""
    left = ground.left()
    return None if left is None else max(1, left // parts)


def _with_model(facts: Facts, rig: Rig, ground: Ground, deadline: Deadline, batch: Any, tell: Tell) -> Facts:
    tell("the model on a batch in memory")
    with _blamed("the step"):
        copy_s, model_s, copies = _model_alone(rig, batch, deadline.share(_SHARES["model"]))
    del batch
    facts = replace(facts, model_s=model_s, copy_s=copy_s, copies=copies)
    limit_s = deadline.share(_LIMITS["together"])
    if limit_s < facts.alone.step_s + model_s:
        return replace(facts, hurried="there was no time to measure loader and model together")
    tell("both together")
    bounds = Bounds(deadline.share(_SHARES["together"]), max(1.0, limit_s))
    if ground.once:
        bounds = replace(bounds, most=_part(ground, 5))
    with _blamed("the loader or the step"):
        try:
            with _noted(rig, facts) as seen:
                together = ground.pace(bounds, model=rig.model, started=facts.alone)
            return replace(facts, together=together, inside=seen[0])
        except TooSlow as error:
            return replace(facts, hurried=f"together with the model no batch came within {error.seconds:.1f} s")


def _model_alone(rig: Rig, batch: Any, seconds: float) -> tuple[float, float, tuple[tuple[str, float], ...]]:
    """Seconds for the copy to the device, for a step on a batch that is there, and what the step copies itself."""
    assert rig.step is not None
    copy_s = 0.0
    if rig.move is not None:
        move, held = rig.move, batch
        copy_s = _mean_s(lambda: move(held), 0.5 * seconds)
        batch = move(batch)
    step = rig.step
    begun_at = time.perf_counter()
    step(batch)  # the first one compiles, allocates, imports
    first_s = time.perf_counter() - begun_at
    copies = _copies_of(step, batch, _FEW_STEPS if _FEW_STEPS * first_s < seconds else 1)
    copied_s = sum(took_s for _, took_s in copies)
    if first_s > seconds:  # one more, under the eyes of `copies`, was enough
        return copy_s + copied_s, max(0.0, first_s - copied_s), copies
    return copy_s + copied_s, max(0.0, _mean_s(lambda: step(batch), seconds) - copied_s), copies


def _copies_of(step: Step, batch: Any, steps: int) -> tuple[tuple[str, float], ...]:
    """What a step itself copies and converts, and how long that takes."""
    from stoker.diagnosis.copies import StepCopies

    copies = StepCopies()
    try:
        with copies:
            for _ in range(steps):
                step(batch)
    except Exception:  # it went well a moment ago: a step that cannot be looked over is not
        return ()
    found = sorted(copies.by_name.items(), key=lambda pair: -pair[1])
    return tuple((name, seconds / steps) for name, seconds in found)


def _mean_s(call: Callable[[], object], seconds: float) -> float:
    begun_at = time.perf_counter()
    call()
    first_s = time.perf_counter() - begun_at
    if first_s > seconds:
        return first_s
    count, begun_at = 0, time.perf_counter()
    while (count < _FEW_STEPS and count * first_s < seconds) or time.perf_counter() - begun_at < seconds:
        call()
        count += 1
    return (time.perf_counter() - begun_at) / max(1, count)


@contextmanager
def _blamed(what: str) -> Iterator[None]:
    """Say who raised, and where in the user's code."""
    try:
        yield
    except (DiagnosisError, TooSlow):
        raise
    except NoBatch as error:
        raise DiagnosisError(str(error)) from None
    except Exception as error:
        failure = trouble_of(error)
        traceback.clear_frames(error.__traceback__)  # they hold the iterator, and that its workers
        raise DiagnosisError(f"{what} raised {failure}") from error
