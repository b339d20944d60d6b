"""Where the time of a training loop goes, and what to change: `diagnose(loader, step)`.

`rig`        a loader, a step, a device                                              (what is diagnosed)
`measuring`  the loader alone, the model alone on a batch in memory, both together   (three throughputs)
`pace`       short passes, and what they say of a long one;  `cost`  computing, waiting for a core, waiting otherwise
`copies`     what a step does with the bytes of its batch before it computes
`ground`     every pass over samples that no other has read;  `bounded`  a stream with a short first epoch, for that
`bound`      a deadline that every stage keeps to
`crowd`      whether other programs need the machine                                 (doubts)
`inside`     one sample, drawing, collating, handing over                            (costs)
`aside`      from a process of its own;  `canned`  with samples in memory;  `noted`  all samples of a pass
`streams`    how an IterableDataset is split over workers
`facts`      all that was measured, and what was concluded: values that can be saved
`parts`      what a batch takes, by what it takes it for
`suspects`   changes worth a trial                                                   (questions)
`trials`     each change, taking turns with the loader as it is                      (answers)
`judge`      one cause, a pure function of facts and trials                          (the answer)
`words`      one sentence, and the numbers behind it

Nothing is proposed from a rule of thumb: a change is named with what it gave when it was tried, and the promise is the
lesser of its rounds. The loader is iterated and the step is called as in training, so a model is really trained by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stoker.diagnosis.bound import Deadline, briefly
from stoker.diagnosis.facts import Cause, Change, Diagnosis, TriedChange, diagnosis_from_json
from stoker.diagnosis.ground import Ground
from stoker.diagnosis.judge import judge
from stoker.diagnosis.measuring import Tell, measure_facts
from stoker.diagnosis.rig import DiagnosisError, Step, auto_says, rig_of
from stoker.diagnosis.trials import try_all
from stoker.diagnosis.words import advice, numbers, verdict

__all__ = ["Cause", "Change", "Diagnosis", "DiagnosisError", "TriedChange", "diagnose", "diagnosis_from_json"]


_LEAST_S = 3.0  # in less time there is nothing to be seen


def diagnose(
    loader: Any,
    step: Step | float | None = None,
    *,
    device: Any = None,
    seconds: float = 30.0,
    tell: Tell = lambda text: None,
) -> Diagnosis:
    """Measure where the time goes, for so many seconds at most (three at least); only a step under way is waited for.

    step     what the model does with a batch: a function, or the seconds it would take; None: no model
    device   batches are brought there before each step, which is timed apart; None: the step does that itself
    tell     is told what is being measured, as it goes along
    """
    rig = rig_of(loader, step, device)
    deadline, ground = Deadline(max(seconds, _LEAST_S)), Ground(loader, rig.given)
    with briefly():
        facts = measure_facts(rig, ground, deadline, tell)
        tried = try_all(rig, facts, ground, deadline, tell)
    facts = replace(facts, rereads=ground.rereads, auto=auto_says(loader))
    cause = judge(facts, tried)
    return Diagnosis(cause, verdict(facts, cause), facts, tried, numbers(facts), advice(facts, cause, tried))
