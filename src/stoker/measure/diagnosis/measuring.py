"""The three throughputs, and the look inside: everything that is measured before anything is changed."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stoker.measure.blame import failure_of
from stoker.measure.diagnosis.cost import crowding
from stoker.measure.diagnosis.facts import Facts
from stoker.measure.diagnosis.inside import look_inside
from stoker.measure.diagnosis.pace import NoBatch, pace_of
from stoker.measure.diagnosis.rig import DiagnosisError, Rig, Step
from stoker.measure.settings import GIVEN

Tell = Callable[[str], object]
_SHARES = {"inside": 0.4, "alone": 0.25, "model": 0.1, "together": 0.25}
_FEW_STEPS = 3


def measure_facts(rig: Rig, seconds: float, tell: Tell) -> Facts:
    """Measure for about so long; DiagnosisError if the loader or the step raises, or there is no batch."""
    loader, given = rig.loader, rig.given
    taken = {name: share * seconds for name, share in _SHARES.items()}
    inside = None
    if given.kind != GIVEN:
        tell("looking into the loader")
        inside = look_inside(loader, given, taken["inside"])
    tell("the loader without a model")
    kept: list[Any] = []
    with _blamed("the loader"):
        alone = pace_of(loader, given, taken["alone"], lambda batch: kept.__setitem__(slice(None), [batch]))
    crowded = crowding()
    if rig.step is None:
        return Facts(given, alone, inside=inside, crowding=crowded)
    tell("the model on a batch in memory")
    with _blamed("the step"):
        copy_s, model_s = _model_alone(rig, kept.pop(), taken["model"])
    tell("both together")
    with _blamed("the loader or the step"):
        together = rig.pace(loader, given, taken["together"])
    return Facts(given, alone, model_s, copy_s, together, inside, crowded)


def _model_alone(rig: Rig, batch: Any, seconds: float) -> tuple[float, float]:
    """Seconds for the copy to the device, and for a step on a batch that is there."""
    assert rig.step is not None
    copy_s = 0.0
    if rig.move is not None:
        move, held = rig.move, batch
        copy_s = _mean_s(lambda: move(held), 0.5 * seconds)
        batch = move(batch)
    step = rig.step
    copied_s = _copied_s(step, batch)
    return copy_s + copied_s, max(0.0, _mean_s(lambda: step(batch), seconds) - copied_s)


def _copied_s(step: Step, batch: Any) -> float:
    """What a step itself spends on bringing tensors to a device."""
    from stoker.measure.diagnosis.copies import Copies

    step(batch)  # the first one compiles, allocates, imports
    copies = Copies()
    try:
        with copies:
            for _ in range(_FEW_STEPS):
                step(batch)
    except Exception:  # it went well a moment ago: a step that cannot be looked over is not
        return 0.0
    return copies.seconds / _FEW_STEPS


def _mean_s(call: Callable[[], object], seconds: float) -> float:
    call()
    count, begun_at = 0, time.perf_counter()
    while count < _FEW_STEPS or time.perf_counter() - begun_at < seconds:
        call()
        count += 1
    return (time.perf_counter() - begun_at) / count


@contextmanager
def _blamed(what: str) -> Iterator[None]:
    """Say who raised, and where in the user's code."""
    try:
        yield
    except NoBatch as error:
        raise DiagnosisError(str(error)) from None
    except Exception as error:
        failure = failure_of(error)
        traceback.clear_frames(error.__traceback__)  # they hold the iterator, and that its workers
        place = f" at {failure.place}" if failure.place else ""
        raise DiagnosisError(f"{what} raised {failure.type}{place}: {failure.message}") from error
