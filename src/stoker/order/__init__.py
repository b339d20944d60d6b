"""Which sample is next. Pure arithmetic: no input or output, no clock, no torch, no state.

    position in an epoch ──► index in the dataset          a pure function of the settings and the epoch
    step, rank           ──► positions                     a pure function of the step's size and the world's

Walk it in this order.

`mixer`          a few whole numbers to chance;  `permutation`  chance to a shuffle without a table
`protocol`       what an order can do; then one file a mode:
`sequential`     as the data lie, or rotated, for data that were shuffled when they were packed
`shuffle`, `block_shuffle`  any sample anywhere; or near its neighbours, for disks
`mix`            several datasets in proportions;  `turns`  which keeps them
`repeat`         counting in steps, without epochs;  `leftovers`  what one epoch dropped begins the next
`sharding`       an epoch cut into steps, and steps into ranks;  `spread`  where a rank's rows are no neighbours
`randomness`     a generator for each sample;  `current`  the one of the sample at hand: `stoker.rng()`
`quality`        how good an order is, and what it costs to read

Because nothing here remembers anything, the place of a run in its data is a seed, an epoch and a step. That is the
whole of a checkpoint, it fits any number of ranks, and finding the place again takes microseconds. In return the
functions are pinned: a golden file holds their values, and a change to one would silently reorder every run under way.
"""

from __future__ import annotations

from stoker.order.block_shuffle import BlockShuffle
from stoker.order.leftovers import LeftoversFirst
from stoker.order.mix import Mix
from stoker.order.mixer import Key, Purpose
from stoker.order.permutation import permute, unpermute
from stoker.order.protocol import Order
from stoker.order.quality import ReadCost, ShuffleQuality, sequential_reads, shuffle_quality
from stoker.order.randomness import generator_for, generator_from, reserve_number, sample_key
from stoker.order.repeat import Repeat
from stoker.order.sequential import PreShuffled, Sequential
from stoker.order.sharding import (
    LastStep,
    Shard,
    check_division,
    rank_positions,
    step_positions,
    steps_per_epoch,
)
from stoker.order.shuffle import Shuffle
from stoker.order.spread import Spread

__all__ = [
    "BlockShuffle",
    "Key",
    "LastStep",
    "LeftoversFirst",
    "Mix",
    "Order",
    "PreShuffled",
    "Purpose",
    "ReadCost",
    "Repeat",
    "Sequential",
    "Shard",
    "Shuffle",
    "ShuffleQuality",
    "Spread",
    "check_division",
    "generator_for",
    "generator_from",
    "permute",
    "rank_positions",
    "reserve_number",
    "sample_key",
    "sequential_reads",
    "shuffle_quality",
    "step_positions",
    "steps_per_epoch",
    "unpermute",
]
