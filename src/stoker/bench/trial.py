"""One pass over a loader, timed the way a training loop feels it.

    begin      iter(loader)                        start_s
    step 0     next() ── wait ── model(batch)      waits_s[0], models_s[0]
    step 1     next() ── wait ── model(batch)      waits_s[1], models_s[1]
    …
    end        next() ── StopIteration             end_s

`seconds` is the sum of all these and of nothing else: counting a batch's samples and bytes happens between two clock
readings that are thrown away, so a trial's own bookkeeping is not charged to the loader. The previous batch is held
while the next is waited for, as a `for` loop does; a loader that reuses memory meets the usual case.

The loader is anything that can be iterated. The clock is an argument, so tests use one that they turn by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from stoker.nested import is_array, leaves_of, open_container, size_of
from stoker.plan import StepBatch

Clock = Callable[[], float]


@dataclass(frozen=True)
class Trial:
    """What one pass over a loader took; times in seconds."""

    samples: int
    size_bytes: int
    start_s: float
    waits_s: tuple[float, ...]
    models_s: tuple[float, ...]
    end_s: float

    @property
    def batches(self) -> int:
        """How many steps the pass had."""
        return len(self.waits_s)

    @property
    def seconds(self) -> float:
        """The whole pass: begin, waits, model, end."""
        return self.waiting_s + sum(self.models_s)

    @property
    def waiting_s(self) -> float:
        """The part of the pass in which the training loop had nothing to do."""
        return self.start_s + sum(self.waits_s) + self.end_s

    @property
    def wait_share(self) -> float:
        """The waiting part of the pass, 0 to 1."""
        return self.waiting_s / self.seconds if self.seconds > 0 else 0.0

    @property
    def first_batch_s(self) -> float:
        """From asking for an iterator to holding the first batch."""
        if not self.waits_s:
            raise ValueError("the pass had no batch, so there is no time to the first one")
        return self.start_s + self.waits_s[0]

    @property
    def samples_per_s(self) -> float:
        """Samples per second over the whole pass."""
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second over the whole pass."""
        return self.size_bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def later_step_s(self) -> float:
        """The mean time of a step (wait and model) after the first batch was had: start-up left out."""
        if self.batches < 2:
            raise ValueError(f"a later step needs two batches or more, and the pass had {self.batches}")
        return (sum(self.waits_s[1:]) + sum(self.models_s[1:])) / (self.batches - 1)


def measure(
    loader: Iterable[Any],
    *,
    model: Callable[[Any], object] | None = None,
    clock: Clock = time.perf_counter,
    limit: int | None = None,
    ending: Callable[[], object] | None = None,
) -> Trial:
    """Time one pass over `loader`, calling `model` on each batch; stop after `limit` batches if given.

    `ending` is called after the last clock reading, while the iterator and the last batch are still held: the moment to
    look at memory and processes.
    """
    model = model or (lambda _batch: None)
    samples = size_bytes = 0
    waits_s: list[float] = []
    models_s: list[float] = []
    end_s = 0.0
    begun_at = clock()
    batches = iter(loader)
    start_s = clock() - begun_at
    while limit is None or len(waits_s) < limit:
        asked_at = clock()
        try:
            batch = next(batches)
        except StopIteration:
            end_s = clock() - asked_at
            break
        got_at = clock()
        model(batch)
        models_s.append(clock() - got_at)
        waits_s.append(got_at - asked_at)
        samples += count_samples(batch)
        size_bytes += count_bytes(batch)
    if ending is not None:
        ending()
    return Trial(samples, size_bytes, start_s, tuple(waits_s), tuple(models_s), end_s)


def count_samples(batch: Any) -> int:
    """How many samples a batch holds: the length of its first part that has a length; 1 for a bare value."""
    data = _data_of(batch)
    first = next(leaves_of(data), None)
    shape = getattr(first, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    if isinstance(data, list | tuple) and not any(is_array(part) or open_container(part) for part in data):
        return len(data)
    return 1 if first is not None else 0


def count_bytes(batch: Any) -> int:
    """The bytes of a batch's tensors and arrays; other values count nothing."""
    return size_of(_data_of(batch))


def _data_of(batch: Any) -> Any:
    return batch.data if isinstance(batch, StepBatch) else batch
