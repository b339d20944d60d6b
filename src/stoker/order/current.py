"""`stoker.rng()`: the generator of the sample that is being loaded.

Inside a dataset or a transform it gives a NumPy generator keyed by (seed, epoch, position), so the same sample gets the
same draws whoever loads it and whenever, also after a resume. The loader says which run of samples is at hand; which
one of them follows from how far the run has come, so a dataset that never asks pays nothing.
"""

from __future__ import annotations

import numpy as np

from stoker.contracts import CURRENT_RUN, SampleRun
from stoker.order.mixer import as_word
from stoker.order.randomness import generator_from, sample_key


def rng(offset: int = 0) -> np.random.Generator:
    """A fresh generator for the sample at hand; for `__getitems__`, of the sample `offset` places into the run."""
    run = CURRENT_RUN.get()
    if run is None:
        return np.random.default_rng()
    return generator_from(key_in(run, offset))


def current_key(offset: int = 0) -> int | None:
    """The 128-bit key of the sample at hand; None outside a loader."""
    run = CURRENT_RUN.get()
    return None if run is None else key_in(run, offset)


def key_in(run: SampleRun, offset: int = 0) -> int:
    """The 128-bit key of the sample at hand in a run."""
    return sample_key(as_word(run.note.seed), run.note.epoch, run.position_at(offset))
