"""Where samples come from.

Everything in this room answers one question: given an index, how does a worker get at that sample? It knows nothing of
order, batches or devices, and does not import torch.

`shared_list`  `SharedList`, a list that any number of workers read from one piece of shared memory, for the paths,
               labels and small records that a dataset keeps about its samples
`tagged`       small records as bytes: the items of such a list
`fetch`        how samples are got from a dataset: one by one, by runs, gathered, or awaited
"""

from __future__ import annotations

from stoker.sources.shared_list import SharedList

__all__ = ["SharedList"]
