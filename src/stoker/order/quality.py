"""How good an order is for training, and what it costs to read: two numbers that pull against each other.

**Quality.** Training wants each batch to stand for the whole dataset. So a batch's indices, divided by n, are compared
with the uniform distribution on [0, 1]: ω² is the mean squared difference of the two distribution functions
(Cramér–von Mises). m independent draws have ω² = 1/6m on average; m neighbours are as bad as one draw, 1/6. With
d = √(mean ω² over batches), the quality is where d lies between the two,

    quality = (d_sorted - d) / (d_sorted - d_uniform),   cut to 0 … 1

where d_sorted is measured on the same batches of the sorted order, and d_uniform is the expectation for m draws without
replacement. 0: batches are what reading front to back gives. 1: as good as drawn at random. `effective_batch` says the
same in samples: how many independent draws are as representative as one of these batches.

What it does not see: a regular order whose every batch is spread over the whole set (each hundredth sample, say)
counts as good, and whether epochs resemble each other is not asked.

**Cost.** A reader that fetches whole blocks and holds the `held` last used ones walks through the order.
`sequential_reads` counts its fetches, and how many of them did not simply go on to the next block on the storage: those
are the reads that wait for a disk or a network.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoker.order.block_shuffle import BlockShuffle
from stoker.order.permutation import Numbers
from stoker.order.protocol import Order, check_count

_STRETCH = 1 << 18  # positions followed for the cost: 0.1 s; a guess at what shows more than the first window
_FEWEST_BATCHES = 8  # with fewer, one batch is so much of the set that even a sorted one represents it


@dataclass(frozen=True)
class ReadCost:
    """What a reader of whole blocks pays for an order."""

    samples: int
    blocks_fetched: int
    reads: int  # fetches that did not go on with the next block: each a wait for the storage
    reads_per_sample: float
    sequential_share: float  # of the samples, those that cost no such read
    fetched_per_sample: float  # samples moved for one that is used; 1.0 is the least when all are


@dataclass(frozen=True)
class ShuffleQuality:
    """A number from 0 (sorted) to 1 (uniform), and its price."""

    quality: float
    effective_batch: float
    batch: int
    cost: ReadCost

    @property
    def sequential_share(self) -> float:
        """Share of samples that come without a new read."""
        return self.cost.sequential_share

    @property
    def reads_per_sample(self) -> float:
        """Separate reads for one sample."""
        return self.cost.reads_per_sample


def shuffle_quality(
    order: Order | npt.ArrayLike,
    *,
    epoch: int = 0,
    batch: int = 256,
    batches: int = 256,
    block: int | None = None,
    held: int | None = None,
) -> ShuffleQuality:
    """Measure an order, or the indices of one whole epoch.

    At most `batches` batches, spread over the epoch, are looked at, so it takes as long for a billion samples as for a
    million. The batch is made smaller where the epoch has fewer than eight. `block` and `held` are the reader's: a
    `BlockShuffle` brings its own, else blocks of 1024, 16 of them held.
    """
    source = order if isinstance(order, Order) else _Listed(np.asarray(order, dtype=np.int64))
    n = source.n
    batch = min(check_count("batch", batch, least=2), n // _FEWEST_BATCHES)
    if batch < 2:
        raise ValueError(f"{n} samples are too few to judge an order by: it takes at least {2 * _FEWEST_BATCHES}")
    block, held = _reader_of(order, block, held)
    positions = _spread_batches(n, batch, check_count("batches", batches, least=1))
    effective, quality = _judge(source.indices(positions, epoch), positions, n)
    stretch = np.arange(min(n, _STRETCH), dtype=np.int64)
    return ShuffleQuality(quality, effective, batch, sequential_reads(source.indices(stretch, epoch), block, held))


def sequential_reads(indices: npt.ArrayLike, block: int, held: int = 1) -> ReadCost:
    """What a reader that fetches `block` samples at a time, and holds `held` such blocks, pays for these indices."""
    check_count("block", block, least=1)
    check_count("held", held, least=1)
    blocks = np.asarray(indices, dtype=np.int64).reshape(-1) // block
    fetched = _fetches(blocks[_changes(blocks)].tolist(), held)
    reads = sum(after != before + 1 for before, after in zip([-2, *fetched], fetched, strict=False))
    samples = max(1, blocks.size)
    return ReadCost(
        samples=blocks.size,
        blocks_fetched=len(fetched),
        reads=reads,
        reads_per_sample=reads / samples,
        sequential_share=1 - reads / samples,
        fetched_per_sample=len(fetched) * block / samples,
    )


@dataclass(frozen=True, eq=False)
class _Listed:
    """A list of indices with the one method that is needed of an order."""

    listed: Numbers

    @property
    def n(self) -> int:
        return self.listed.size

    def indices(self, positions: Numbers, epoch: int) -> Numbers:
        return self.listed[positions]


def _judge(drawn: Numbers, positions: Numbers, n: int) -> tuple[float, float]:
    """(effective batch, quality) of batches, one a row."""
    size: int = positions.shape[1]
    found, in_order = _mean_distance(drawn, n), _mean_distance(positions, n)
    uniform = (n - size) / (n - 1) / (6 * size)
    quality = (math.sqrt(in_order) - math.sqrt(found)) / (math.sqrt(in_order) - math.sqrt(uniform))
    return min(1 / (6 * found), float(size)), min(1.0, max(0.0, float(quality)))


def _mean_distance(batches: Numbers, n: int) -> float:
    """ω² between each row and the uniform distribution, averaged over the rows."""
    size: int = batches.shape[1]
    found = (np.sort(batches, axis=1) + 0.5) / n
    wanted = (np.arange(size) + 0.5) / size
    return float(np.mean((found - wanted) ** 2)) + 1 / (12 * size * size)


def _spread_batches(n: int, batch: int, batches: int) -> Numbers:
    whole = n // batch
    chosen = np.unique(np.linspace(0, whole - 1, min(batches, whole)).astype(np.int64))
    return chosen[:, None] * batch + np.arange(batch, dtype=np.int64)


def _reader_of(order: object, block: int | None, held: int | None) -> tuple[int, int]:
    own = (order.block, order.window) if isinstance(order, BlockShuffle) else (1024, 16)
    return own[0] if block is None else block, own[1] if held is None else held


def _changes(blocks: Numbers) -> npt.NDArray[np.bool_]:
    """Where a block differs from the one before it: staying in a block costs nothing."""
    changed = np.ones(blocks.size, dtype=np.bool_)
    np.not_equal(blocks[1:], blocks[:-1], out=changed[1:])
    return changed


def _fetches(blocks: Iterable[int], held: int) -> list[int]:
    """The blocks that were not held when they were needed, the least recently used one making room."""
    fetched = []
    recent: OrderedDict[int, None] = OrderedDict()
    for block in blocks:
        if block not in recent:
            fetched.append(block)
        recent[block] = None
        recent.move_to_end(block)
        if len(recent) > held:
            recent.popitem(last=False)
    return fetched
