"""The asynchronous accessor: any iterable, loaded ahead by a thread or a process of its own.

`prefetch`  `AsyncPrefetch` and its iterators
`ring`      the batches ahead: asked for, made, handed over
`filling`   what the filler does: walks the source, lap after lap;  `crew_of_one`  who it is;  `below`  its own children
`lap`       one walk, whose place is known at every batch;  `walking`  how any source is walked
`rebatch`   inner batches to combined ones;  `source_error`  how errors travel
`options`, `stats`   what is asked for, and what came of it
"""

from stoker.accessor.options import PrefetchOptions
from stoker.accessor.prefetch import AsyncPrefetch, PrefetchIterator
from stoker.accessor.stats import PrefetchStats

__all__ = ["AsyncPrefetch", "PrefetchIterator", "PrefetchOptions", "PrefetchStats"]
