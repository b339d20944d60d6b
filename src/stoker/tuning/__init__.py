"""`tune`: the best setting of a loader for a dataset, on this machine, within some time and memory.

`aim`     what counts, and the limits
`space`   which settings there are, where to begin (the forecast of num_workers="auto"), what lies beside what
`search`  look, climb, finals: few trials, none of them exact
`awhile`  a trial: a fraction of a second of a loader, and what a whole epoch would take
`trials`  settings measured and written down: costs
`tuner`   joins them
`found`   the answer: a call to copy, a file, what was tried
"""

from __future__ import annotations

from stoker.tuning.aim import GOALS, Aim, Goal, TuneError
from stoker.tuning.found import TriedSetting, Tuning, call_of
from stoker.tuning.trials import Teller
from stoker.tuning.tuner import Means, tune

__all__ = ["GOALS", "Aim", "Goal", "Means", "Teller", "TriedSetting", "TuneError", "Tuning", "call_of", "tune"]
