"""Any iterable, loaded ahead by a thread or a process of its own: `stoker.prefetch`.

`prefetcher`  what it gives, and its iterators
`ring`      the batches ahead: asked for, made, handed over
`filling`   what the filler does: walks the source, lap after lap;  `crew_of_one`  who it is;  `below`  its own children
`lap`       one walk, whose place is known at every batch;  `walking`  how any source is walked
`rebatch`   inner batches to combined ones;  `source_error`  how errors travel
`options`, `stats`   what is asked for, and what came of it
"""

from stoker.prefetching.options import PrefetchOptions
from stoker.prefetching.prefetcher import Prefetcher, PrefetchIterator, prefetch
from stoker.prefetching.stats import PrefetchStats

__all__ = ["PrefetchIterator", "PrefetchOptions", "PrefetchStats", "Prefetcher", "prefetch"]
