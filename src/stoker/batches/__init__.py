"""Rows become batches: what torch's `default_collate` would give, written once, straight into a slot.

`layout`, `rows`, `gather`, `read_into`  samples to rows of a slot, and rows to columns
`collate`       what torch would do with a value;  `packing`  batches that are not rows
`inline`        batches made where they are asked for
`job`, `iterable_job`   tickets to reports;  `delivery`  reports to the batch the user gets
"""

from stoker.batches.collate import is_default_collate
from stoker.batches.delivery import Delivery
from stoker.batches.inline import InlineBatches
from stoker.batches.iterable_job import IterableJob
from stoker.batches.job import MapJob, Style

__all__ = ["Delivery", "InlineBatches", "IterableJob", "MapJob", "Style", "is_default_collate"]
