"""Changes how many load, one step at a time, by what the training loop itself makes of it.

Pure: readings in, sizes out.

            the loop waits, and there is something to try
    AT REST ─────────────────────────────────────────────► TRYING a neighbour of the size
       ▲                                                      │ the loop has become quicker: it is kept
       └──────────────────────────────────────────────────────┘ it has not: back, and not tried again in this weather

What counts is samples per second of the training loop, over spans of a second or so, the first moments after a change
left out. What is tried next follows from what samples are like: lanes where they wait, processes where they compute,
more batches ahead where hands are idle though the loop waits. When the neighbours were tried, or the loop does not
wait, nothing is changed any more until the weather does: samples that take longer, a model that is quicker, a slower
loop. A change of weather has to last; and each time that nothing came of it, it has to last twice as long. So steady
training is left alone.

The first size is a guess (`choice`). Whatever is changed here, the batches are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from stoker.auto.size import Limits, Size
from stoker.watch.stats import duration

SPAN_S = 1.0  # a look at the loop; a guess: long enough for a machine's noise, short enough to converge in seconds
_SAMPLES_OF_A_SPAN = 2  # for every hand
_LONGEST_SPAN_S = 5.0
_CLEARLY_WORSE, _SHORTEST_SPAN_S = 0.6, 0.4
_DOUBTFUL = 0.12  # a trial that makes less difference than this is looked at for longer
_SPANS_IN_DOUBT = 3
_WORTH_KEEPING = 1.04  # what more hands have to gain
_NO_LOSS = 0.98  # what fewer hands may lose
_FREE = 0.05  # a loop that waits for less than this is left alone
_STARVED = 0.2
_JOSTLING, _MOSTLY_WAITING, _ALL_WAITING = 0.1, 0.4, 0.9
_AT_WORK = 0.65  # hands that are busy for this share hold the loop up
_IDLE = 0.35
_TINY_S, _CHEAP_S = 40e-6, 150e-6  # samples that a process should, or may as well, not be asked for
_CHANGED_LOAD, _SLOWER, _WAITS_MORE = 1.5, 0.8, 0.1
_LASTING, _LONGEST_LASTING = 3, 96  # spans


@dataclass(frozen=True)
class Reading:
    """What has been counted so far: by the loop, by whoever loads, by the machine."""

    at_s: float  # of passes, not of what is between them
    loaded: int  # samples
    taken: int  # those of them that the training loop has got
    wait_s: float  # of the training loop
    busy_s: float  # of all hands: with samples, whether they waited or computed
    processor_s: float  # of all hands


@dataclass(frozen=True)
class Span:
    """What happened between two readings, with one size."""

    seconds: float
    loaded: int
    taken: int
    wait_s: float
    busy_s: float
    processor_s: float

    @classmethod
    def between(cls, earlier: Reading, later: Reading) -> Span:
        return cls(
            later.at_s - earlier.at_s,
            later.loaded - earlier.loaded,
            later.taken - earlier.taken,
            later.wait_s - earlier.wait_s,
            later.busy_s - earlier.busy_s,
            later.processor_s - earlier.processor_s,
        )

    @property
    def rate(self) -> float:
        """Samples per second of the loop. One that waits takes what is loaded, which is counted more finely."""
        samples = self.loaded if self.wait_share > _STARVED else self.taken
        return samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def wait_share(self) -> float:
        return min(1.0, max(0.0, self.wait_s / self.seconds)) if self.seconds > 0 else 0.0

    @property
    def sample_s(self) -> float:
        """How long a hand is busy with a sample."""
        return self.busy_s / self.loaded if self.loaded else 0.0

    def is_cheaper_than(self, seconds: float, lanes: int) -> bool:
        """Whether a sample takes less than that, seen with so many lanes, which wait for each other too."""
        return self.processor_s < seconds * self.loaded and self.sample_s < seconds * lanes

    @property
    def waiting(self) -> float:
        """The share of a hand's time in which it does not compute."""
        return min(1.0, max(0.0, 1 - self.processor_s / self.busy_s)) if self.busy_s > 0 else 0.0

    def busy_share(self, size: Size) -> float:
        return self.busy_s / (self.seconds * size.hands) if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Decision:
    """A change of size, and why."""

    size: Size
    reason: str


@dataclass
class _Trial:
    base: Size
    base_rate: float
    spans: int = 0


class Controller:
    """Finds the size for one loader, over all its passes."""

    def __init__(self, limits: Limits, first: Size, free_cores: Callable[[], float]) -> None:
        self.size = limits.holds(first)
        self._limits, self._free_cores = limits, free_cores
        self._begun: Reading | None = None  # of the span at hand
        self.is_changing = False  # a size was asked for, and nobody has said that it is there
        self._trial: _Trial | None = None
        self._tried: dict[Size, float] = {}  # in this weather: what each gave
        self._usual: Span | None = None  # what the loop is like since the last change that was kept
        self._unusual = 0  # spans in a row that are not like that
        self._lasting = _LASTING

    @property
    def settled(self) -> Size:
        """The best size so far: while another one is tried, the one it is compared with."""
        return self.size if self._trial is None else self._trial.base

    def look(self, now: Reading) -> Decision | None:
        """Called now and then. If this gives a size, it is to be used from now on; then `changed` is called."""
        if self._begun is None or self.is_changing:
            self._begun = now
            return None
        span = Span.between(self._begun, now)
        if not self._is_long_enough(span) and not self._is_hopeless(span):
            return None
        if self._trial is not None:
            return self._judge(self._trial, span, now)
        self._begun = now
        return self._next_trial(span) if self._may_try(span) else None

    def changed(self, now: Reading) -> None:
        """Hands of another number are at work: what happened before does not count."""
        self._begun, self.is_changing = now, False

    def refused(self, size: Size) -> None:
        """The size that was asked for cannot be had: this one stays."""
        self.size, self._trial, self.is_changing = size, None, False
        self._limits = replace(self._limits, most_processes=max(size.processes, self._limits.least_processes))

    def _is_long_enough(self, span: Span) -> bool:
        enough = span.loaded >= _SAMPLES_OF_A_SPAN * self.size.hands
        return span.seconds >= (SPAN_S if enough else _LONGEST_SPAN_S)

    def _is_hopeless(self, span: Span) -> bool:
        """Whether the size that is tried is so much worse that it is not worth another moment."""
        enough = span.loaded >= self.size.hands and span.seconds >= _SHORTEST_SPAN_S
        return self._trial is not None and enough and span.rate < _CLEARLY_WORSE * self._trial.base_rate

    # At rest.

    def _may_try(self, span: Span) -> bool:
        """Whether something should be changed: not in the weather that it was settled in."""
        if self._usual is None:
            self._usual = span
            return True
        if not _is_unusual(span, self._usual):
            self._unusual = 0
            return False
        self._unusual += 1
        if self._unusual < self._lasting:
            return False
        self._tried.clear()
        self._usual, self._unusual = span, 0
        self._lasting = min(_LONGEST_LASTING, 2 * self._lasting)
        return True

    def _next_trial(self, span: Span) -> Decision | None:
        for size, reason in self._candidates(span):
            if size != self.size and size not in self._tried:
                self._trial = _Trial(self.size, span.rate)
                return self._take(size, reason)
        return None

    def _take(self, size: Size, reason: str) -> Decision:
        self.size, self.is_changing = size, True
        return Decision(size, reason)

    # A trial.

    def _judge(self, trial: _Trial, span: Span, now: Reading) -> Decision | None:
        trial.spans += 1
        gain = span.rate / trial.base_rate if trial.base_rate else math.inf
        if abs(gain - 1) < _DOUBTFUL and trial.spans < _SPANS_IN_DOUBT and span.seconds < _LONGEST_SPAN_S:
            return None  # the span goes on
        self._trial, self._begun = None, now
        self._tried[trial.base] = trial.base_rate
        self._tried[self.size] = span.rate
        fewer = self.size.hands <= trial.base.hands and self.size.ahead <= trial.base.ahead
        if gain >= (_NO_LOSS if fewer else _WORTH_KEEPING):
            self._usual, self._lasting = span, _LASTING
            return self._next_trial(span)
        self._usual = None  # looked at again with the old size, so that the next trial is compared with today's
        return self._take(trial.base, f"{self.size} gave {gain:.2f} of what {trial.base} gives")

    def _candidates(self, span: Span) -> Iterator[tuple[Size, str]]:
        """What to try next, the most promising first."""
        if span.wait_share > _FREE:
            for size, reason in self._more(span):
                yield self._limits.holds(size), f"the loop waits {span.wait_share:.0%} of its time{reason}"
        elif self.size.processes and span.busy_share(self.size) < _IDLE:
            for size in self._fewer():
                yield self._limits.holds(size), f"the loop does not wait, and hands are {_idle(span, self.size)} idle"

    def _more(self, span: Span) -> Iterator[tuple[Size, str]]:
        now, most = self.size, max(1, math.floor(self._free_cores()))
        each = f", a sample takes {duration(span.sample_s)}, {span.waiting:.0%} of it waiting"
        if not now.processes:
            yield Size(most, self._lanes_for(span)), each
            yield Size(1, self._lanes_for(span)), each
            return
        if span.is_cheaper_than(_TINY_S, now.lanes):
            yield Size(0), each
        is_limit = span.busy_share(now) >= _AT_WORK
        further = Size(min(most, 2 * now.processes), now.lanes, now.ahead)
        if is_limit and span.waiting > _MOSTLY_WAITING:
            times = 4 if span.waiting > _ALL_WAITING else 2
            yield Size(now.processes, times * now.lanes, now.ahead), each
            yield Size(now.processes, 2 * now.lanes, now.ahead), each
            yield further, each
        elif is_limit and now.processes < most:
            yield further, each
            yield Size(now.processes + 1, now.lanes, now.ahead), each
        if not is_limit or span.waiting > _MOSTLY_WAITING:
            idle = f", though hands are {_idle(span, now)} idle" if not is_limit else each
            yield Size(now.processes, now.lanes, 2 * now.ahead), idle
        yield further, each
        yield from self._aside(span, each)

    def _aside(self, span: Span, each: str) -> Iterator[tuple[Size, str]]:
        """Where more hands do not help, fewer may: they get in each other's way, or in the model's."""
        now, busy = self.size, span.busy_share(self.size)
        if span.is_cheaper_than(_CHEAP_S, now.lanes):
            yield Size(0), each
        if now.processes > 1 and (busy < _AT_WORK or _JOSTLING < span.waiting < _MOSTLY_WAITING):
            yield Size(now.processes - 1, now.lanes, now.ahead), ", and hands may be too many"
        if now.lanes > 2 and busy < _AT_WORK:
            yield Size(now.processes, now.lanes // 2, now.ahead), ", and hands may be too many"

    def _fewer(self) -> Iterator[Size]:
        now = self.size
        if now.processes > 1:
            yield Size(now.processes // 2, now.lanes, now.ahead)
        elif now.lanes > 1:
            yield Size(now.processes, now.lanes // 2, now.ahead)

    def _lanes_for(self, span: Span) -> int:
        """Lanes of a process for what was loaded by one: enough for one of them to compute at any time."""
        if span.waiting <= _MOSTLY_WAITING:
            return 1
        wanted = 1 / max(1 - span.waiting, 1 / 16)
        return 1 << math.ceil(math.log2(wanted))


def _is_unusual(span: Span, usual: Span) -> bool:
    """Whether the weather has changed: how long samples take, how quick the loop is, or what it waits."""
    took, takes = usual.sample_s, span.sample_s
    is_other_load = took > 0 and takes > 0 and not 1 / _CHANGED_LOAD < takes / took < _CHANGED_LOAD
    is_slower = span.rate < _SLOWER * usual.rate
    waits = span.wait_share > _FREE and (is_other_load or is_slower)
    return waits or span.wait_share > usual.wait_share + _WAITS_MORE


def _idle(span: Span, size: Size) -> str:
    return f"{max(0.0, 1 - span.busy_share(size)):.0%}"
