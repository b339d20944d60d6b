"""Clocks, trials, statistics and saved records: how Stoker's claims are measured.

A number in a table or in the documentation is the end of a short chain, and each link is a file here:

`datasets`           files to load, drawn by code; simulated loads   (something to measure)
`targets`            what a person names, from words                 (finding it)
`settings`, `plan`   one configuration; many, taking turns           (what, in which order)
`trial`              one pass over any loader, timed step by step    (measuring it)
`isolated`, `forked`  the same in a process of its own                (alone)
`process_tree`       memory and processor time of all its processes   (what it costs)
`spans`, `notes`     who loaded which batch when                     (for timelines)
`sweep`              a plan, turn by turn                            (all of it)
`runs`               one JSON line a trial                           (keeping it)
`records`            findings of a benchmark, machine facts in JSON  (keeping claims)
`whole_files`        written whole, or not at all                    (keeping either)
`statistics`         a series in a median, a spread                  (judging it)
`groups`             repeats of a setting put together               (judging settings)
`throughputs`        loader, model and both, side by side            (judging a training)
`rebuild`            a loader again, with other arguments            (trying changes)
`calls`              the call that builds a loader, as text          (telling them)
`blame`              whose line raised                               (when it fails)
`running`            loaders at work on this machine now             (for `stoker top`)

Nothing here knows a particular loader: whatever can be iterated can be timed, so that Stoker and its peers are
measured by the same code. Nothing here imports torch or Pillow before it is needed. `tuning` and `diagnosis` are built
on this room and do not know each other.
"""

from __future__ import annotations

from stoker.bench.groups import Group, group
from stoker.bench.plan import Plan
from stoker.bench.rebuild import RebuildError
from stoker.bench.records import CaseRecord, Finding, Record, load_record, save_record
from stoker.bench.runs import Run, TrialRecord
from stoker.bench.settings import Setting, Sweep
from stoker.bench.statistics import Summary, mean, median, quantile, standard_deviation, summarise
from stoker.bench.targets import TargetError
from stoker.bench.trial import Trial, measure

__all__ = [
    "CaseRecord",
    "Finding",
    "Group",
    "Plan",
    "RebuildError",
    "Record",
    "Run",
    "Setting",
    "Summary",
    "Sweep",
    "TargetError",
    "Trial",
    "TrialRecord",
    "group",
    "load_record",
    "mean",
    "measure",
    "median",
    "quantile",
    "save_record",
    "standard_deviation",
    "summarise",
]
