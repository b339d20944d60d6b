"""Clocks, trials, statistics and saved records: how Stoker's claims are measured.

A number in a table or in the documentation is the end of a short chain, and each link is a file here:

    faces, datasets  files to load, drawn by code; simulated loads   (something to measure)
    targets          what a person names, from words                 (finding it)
    settings, plan   one configuration; many, taking turns           (what, in which order)
    trial            one pass over any loader, timed step by step    (measuring it)
    isolated, watch  the same in a process of its own: memory, CPU   (what it costs)
    spans            who loaded which batch when                     (for timelines)
    sweep            a plan, turn by turn                            (all of it)
    runs             one JSON line a trial                           (keeping it)
    records          findings of a benchmark, machine facts in JSON  (keeping claims)
    statistics       a series in a median, a spread                  (judging it)
    groups           repeats of a setting put together               (judging settings)
    tuning           the best setting, in few trials                 (finding it)
    rebuild          a loader again, with other arguments            (trying changes)
    diagnosis        where a training loop's time goes               (what to change)
    blame            whose line raised                               (when it fails)
    running          loaders at work on this machine now             (for `stoker top`)

Nothing here knows a particular loader: whatever can be iterated can be timed, so that Stoker and its peers are
measured by the same code. Nothing here imports torch or Pillow before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stoker.measure.diagnosis import Cause, Diagnosis, diagnose
from stoker.measure.groups import Group, group
from stoker.measure.plan import Plan
from stoker.measure.records import CaseRecord, Finding, Record, load_record, save_record
from stoker.measure.runs import Run, TrialRecord
from stoker.measure.settings import Setting, Sweep
from stoker.measure.statistics import Summary, mean, median, quantile, standard_deviation, summarise
from stoker.measure.trial import Trial, measure

if TYPE_CHECKING:
    from stoker.measure.tuning import Aim as Aim
    from stoker.measure.tuning import tune as tune

__all__ = [
    "Aim",
    "CaseRecord",
    "Cause",
    "Diagnosis",
    "Finding",
    "Group",
    "Plan",
    "Record",
    "Run",
    "Setting",
    "Summary",
    "Sweep",
    "Trial",
    "TrialRecord",
    "diagnose",
    "group",
    "load_record",
    "mean",
    "measure",
    "median",
    "quantile",
    "save_record",
    "standard_deviation",
    "summarise",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in ("Aim", "tune"):  # these bring torch
        raise AttributeError(f"module 'stoker.measure' has no attribute {name!r}")
    return getattr(importlib.import_module("stoker.measure.tuning"), name)
