"""Rows become batches: what torch's `default_collate` would give, written once, straight into a slot.

`layout`, `rows`, `gather`, `read_into`  samples to rows of a slot, and rows to columns;  `row_writer`  which way
`large`         large rows, copied past the caches
`collate`       what torch would do with a value;  `packing`  batches that are not rows
`items`         walking an iterable dataset, and finding the place again
`own_state`     states of the user's own datasets and samplers
`careful`       samples one by one, with each allowed to fail
`inline`        batches made where they are asked for
`job`, `iterable_job`   tickets to reports;  `delivery`  reports to the batch the user gets
"""

from stoker.batches.collate import is_default_collate
from stoker.batches.delivery import Delivery
from stoker.batches.inline import DROPPED, InlineBatches
from stoker.batches.items import Items, take_next, walk_again
from stoker.batches.iterable_job import IterableJob
from stoker.batches.job import MapJob, Payload, Style
from stoker.batches.own_state import check_told, has_state, opened, restore, state_of

__all__ = [
    "DROPPED",
    "Delivery",
    "InlineBatches",
    "Items",
    "IterableJob",
    "MapJob",
    "Payload",
    "Style",
    "check_told",
    "has_state",
    "is_default_collate",
    "opened",
    "restore",
    "state_of",
    "take_next",
    "walk_again",
]
