"""Rows become batches: what torch's `default_collate` would give, written once, straight into a slot.

`layout`, `rows`, `gather`, `read_into`  samples to rows of a slot, and rows to columns
`collate`       what torch would do with a value;  `packing`  batches that are not rows
`items`         walking an iterable dataset, and finding the place again
`inline`        batches made where they are asked for
`job`, `iterable_job`   tickets to reports;  `delivery`  reports to the batch the user gets
"""

from stoker.batches.collate import is_default_collate
from stoker.batches.delivery import Delivery
from stoker.batches.inline import DROPPED, InlineBatches
from stoker.batches.items import Items, take_next
from stoker.batches.iterable_job import IterableJob
from stoker.batches.job import MapJob, Payload, Style, has_state

__all__ = [
    "DROPPED",
    "Delivery",
    "InlineBatches",
    "Items",
    "IterableJob",
    "MapJob",
    "Payload",
    "Style",
    "has_state",
    "is_default_collate",
    "take_next",
]
