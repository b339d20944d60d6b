"""Rows become batches: what torch's `default_collate` would give, written once, straight into a slot.

`layout`, `rows`, `gather`, `read_into`  samples to rows of a slot, and rows to columns
`collate`       what torch would do with a value;  `packing`  batches that are not rows
`job`, `iterable_job`   tickets to reports;  `delivery`  reports to the batch the user gets
"""

from stoker.batches.collate import is_default_collate
from stoker.batches.delivery import Delivery
from stoker.batches.iterable_job import IterableJob
from stoker.batches.job import MapJob, Style

__all__ = ["Delivery", "IterableJob", "MapJob", "Style", "is_default_collate"]
