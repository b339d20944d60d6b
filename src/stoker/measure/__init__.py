"""Clocks, trials, statistics and saved records: how Stoker's claims are measured.

A number in a table or in the documentation is the end of a short chain, and each link is a file here:

    faces       real JPEG files to load, drawn by code       (something to measure)
    trial       one pass over any loader, timed step by step (measuring it)
    statistics  many trials to a median, a spread            (judging it)
    records     findings, raw series, machine facts in JSON  (keeping it)

Nothing here knows a particular loader: whatever can be iterated can be timed, so that Stoker and its peers are
measured by the same code. Nothing here imports torch or Pillow before it is needed.
"""

from __future__ import annotations

from stoker.measure.records import CaseRecord, Finding, Record, load_record, save_record
from stoker.measure.statistics import Summary, mean, median, quantile, standard_deviation, summarise
from stoker.measure.trial import Trial, measure

__all__ = [
    "CaseRecord",
    "Finding",
    "Record",
    "Summary",
    "Trial",
    "load_record",
    "mean",
    "measure",
    "median",
    "quantile",
    "save_record",
    "standard_deviation",
    "summarise",
]
