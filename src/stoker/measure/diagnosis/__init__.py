"""Where the time of a training loop goes, and what to change: `diagnose(loader, step)`.

    rig        a loader, a step, a device                                              what is diagnosed
    measuring  the loader alone, the model alone on a batch in memory, both together   three throughputs  (pace, cost)
    inside     one sample, collating, handing over, seen from another process          costs              (aside)
    suspects   changes worth a trial                                                   questions          (parts)
    trials     each change, taking turns with the loader as it is                      answers
    judge      one cause, a pure function of facts and trials                          the answer
    words      one sentence, and the numbers behind it

Nothing is proposed from a rule of thumb: a change is named with what it gave when it was tried, and the promise is the
lesser of its rounds. The loader is iterated and the step is called as in training, so a model is really trained by it.
"""

from __future__ import annotations

from typing import Any

from stoker.measure.diagnosis.facts import Cause, Change, Diagnosis, Tried, diagnosis_from_json
from stoker.measure.diagnosis.judge import judge
from stoker.measure.diagnosis.measuring import Tell, measure_facts
from stoker.measure.diagnosis.rig import DiagnosisError, Step, rig_of
from stoker.measure.diagnosis.trials import quietly, try_all

__all__ = ["Cause", "Change", "Diagnosis", "DiagnosisError", "Tried", "diagnose", "diagnosis_from_json"]


def diagnose(
    loader: Any,
    step: Step | float | None = None,
    *,
    device: Any = None,
    seconds: float = 30.0,
    tell: Tell = lambda text: None,
) -> Diagnosis:
    """Measure where the time goes, for about so many seconds.

    step     what the model does with a batch: a function, or the seconds it would take; None: no model
    device   batches are brought there before each step, which is timed apart; None: the step does that itself
    tell     is told what is being measured, as it goes along
    """
    from stoker.measure.diagnosis.words import (
        ADVICE,
        numbers,
        verdict,
    )  # imports torch, as whoever has a loader has done

    rig = rig_of(loader, step, device)
    with quietly():
        facts = measure_facts(rig, 0.4 * seconds, tell)
        tried = try_all(rig, facts, 0.6 * seconds, tell)
    cause = judge(facts, tried)
    return Diagnosis(cause, verdict(facts, cause), facts, tried, numbers(facts), ADVICE[cause])
