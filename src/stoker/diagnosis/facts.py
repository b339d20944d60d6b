"""What was measured of a loader and a model, and what was concluded: values that can be saved and judged again.

    Facts ── given       what the loader is: kind, workers, an epoch's length
       ├──── alone       a pass without a model
       ├──── model_s     a step on a batch that lies in memory; copy_s to bring it to the device
       ├──── together    a pass with the model
       └──── inside      a look into the loader: one sample, collating, handing over   (empty for a plain iterable)

    Trial of a Change ── what each round took before and after

    Diagnosis ── cause, verdict, facts, tried

Judging is a pure function of facts and trials, so a diagnosis can be tested, and doubted, from a saved file.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from stoker.bench.calls import workers_call
from stoker.bench.settings import STOKER
from stoker.bench.statistics import median
from stoker.options import Workers
from stoker.passes.window import window_for

_SLOW = 4.0  # times the middle: a slow sample
STRAGGLING = 0.2
"""Slow samples that take less of the time of all are not what holds a loader up: a guess."""

CROWDED = 2.0
"""Where computing takes so many times its own time because of other programs, no measurement promises anything."""

LOADED = 3.0
"""Likewise for the load average over the number of cores."""

TAKEN = 0.9
"""Likewise for the share of the cores that other programs use."""

WORTH_IT = 1.15
"""A change is proposed when every round of its trial was at least this much faster: less is lost among hiccups."""


class Cause(enum.Enum):
    """What holds a training loop up, in the words of a verdict."""

    MODEL = "the model"
    STORAGE = "waiting for storage"
    DECODING = "decoding and transforms"
    GIL = "holding the GIL"
    COLLATING = "collating"
    MOVING = "moving between processes"
    COPYING = "copying to the device"
    TOO_FEW_WORKERS = "too few workers"
    TOO_MANY_WORKERS = "too many workers"
    EPOCH_START = "the start of an epoch"
    PREFETCH = "too little prefetched"
    STRAGGLERS = "slow samples among quick ones"
    SAMPLER = "drawing indices"
    ONE_STREAM = "a stream that is not split over its workers"


@dataclass(frozen=True)
class GivenLoader:
    """The loader as it was given. `dataset`: map, awaited (async), arrays (gathered), iterable, or hidden."""

    kind: str  # torch, stoker, or given: an iterable that cannot be built again
    dataset: str
    cores: int
    batches: int | None = None  # of an epoch, where that is known
    batch_size: int | None = None
    processes: int = 0
    lanes: int = 1
    prefetch: int | None = None
    keeps_workers: bool = False
    own_collate: bool = False
    shares_rows: bool = False
    pins: bool = False
    can_pin: bool = False
    same_order: bool = False  # every epoch begins with the same samples

    @property
    def is_inline(self) -> bool:
        """Whether batches are made in the training loop's own thread."""
        return self.processes == 0 and self.lanes <= 1

    @property
    def hands(self) -> int:
        """How many samples can be under way at the same time."""
        return max(1, self.processes) * max(1, self.lanes)

    @property
    def burst(self) -> int:
        """How many batches may arrive at once: one a worker, or, where lanes share rows, all that are under way."""
        if self.lanes <= 1:
            return max(1, self.processes)
        return window_for(Workers.with_lanes(self.processes, self.lanes), self.prefetch or 2, self.batch_size or 1).most


@dataclass(frozen=True)
class Pace:
    """Passes over a loader in a few numbers."""

    first_s: float  # from asking for an iterator to holding the first batch
    step_s: float  # a later step, wait and model
    model_s: float  # the model's part of a step, the copy to its device included
    rows: float  # samples a batch
    batches: int  # that were timed
    epoch_s: float | None = None  # a whole epoch, where one was timed
    epoch_batches: int = 0
    busy_cores: float = 0.0  # processor seconds a second, over all processes
    start_known: bool = True  # False: `first_s` is a later step's, since no start like a training's was timed
    round: int = 1  # batches that may arrive at once: only such rounds can be compared
    middle_s: float = 0.0  # what a round takes in the middle …
    longest_s: float = 0.0  # … and at most
    took_s: float = 0.0  # the passes with all that belongs to them, letting go included

    @property
    def is_uneven(self) -> bool:
        """Whether few rounds of batches take much longer than the others, and most of the time with it."""
        return self.longest_s > 5.0 * self.middle_s > 0.0 and self.step_s * self.round > 1.4 * self.middle_s

    def epoch(self, batches: int | None) -> float:
        """Seconds of an epoch; of one that is endless, of a thousand steps without the start."""
        if self.epoch_s is not None:
            return self.epoch_s
        return 1000 * self.step_s if batches is None else self.first_s + (batches - 1) * self.step_s

    def start_s(self) -> float:
        """What the first batch took more than a later one."""
        return max(0.0, self.first_s - self.step_s)

    def per_sample(self, batches: int | None) -> float:
        """Seconds a sample, over an epoch."""
        count = self.epoch_batches if self.epoch_s is not None else 1000 if batches is None else batches
        return self.epoch(batches) / max(1.0, count * self.rows)


@dataclass(frozen=True)
class Sample:
    """One sample, loaded by one thread: means over `count` of them."""

    count: int
    seconds: float
    waiting: float  # share of that time in which the thread neither computed nor lacked a core
    gil_held: float  # share of the computing that a second thread could not overlap with
    median_s: float  # without what other programs took
    longest_s: float
    size_bytes: int
    read_bytes: float  # from a disk, not from the page cache; 0 where the system does not say
    slow: int = 0  # how many took far longer than the middle
    slow_share: float = 0.0  # of the time of all of them
    once_s: float = 0.0  # the samples of the look, in the middle
    again_s: float | None = None  # the same ones a second time; None: not tried

    @property
    def waiting_s(self) -> float:
        return self.seconds * self.waiting

    @property
    def computing_s(self) -> float:
        return self.seconds * (1.0 - self.waiting)

    @property
    def is_uneven(self) -> bool:
        """Whether few samples take most of the time."""
        return self.longest_s > _SLOW * max(self.median_s, 1e-9) and self.longest_s > 2.0 * self.seconds

    @property
    def has_stragglers(self) -> bool:
        """Whether few samples are far slower than the others, and weigh something."""
        few = 0 < self.slow <= max(1, self.count // 5)
        return few and self.longest_s > max(8.0 * self.median_s, 2e-3) and self.slow_share > STRAGGLING

    @property
    def is_remembered(self) -> bool:
        """Whether a sample is much quicker the second time: somebody caches it, the system or the dataset."""
        return self.again_s is not None and self.again_s < 0.6 * self.once_s and self.once_s > 2e-4


def spread_of(took_s: list[float]) -> dict[str, Any]:
    """How many samples took so long, and how unevenly: fields of a `Sample`."""
    middle_s = median(took_s)
    slow_s = [one_s for one_s in took_s if one_s > _SLOW * middle_s]
    slow_share = sum(slow_s) / max(1e-12, sum(took_s))
    return {
        "count": len(took_s),
        "median_s": middle_s,
        "longest_s": max(took_s),
        "slow": len(slow_s),
        "slow_share": slow_share,
    }


@dataclass(frozen=True)
class Inside:
    """What was seen inside the loader; without a sample it could not be looked into, and `trouble` may say why."""

    sample: Sample | None = None
    collate_s: float | None = None  # the collate_fn on one batch's samples, in the training process
    handed_s: float | None = None  # a step of the same loader over samples that lie in memory already
    default_collate_fits: bool = False  # torch's default_collate makes the same batch as the loader's own
    drawn_s: float = 0.0  # drawing one batch's indices, in the training process
    order_s: float = 0.0  # the first of an epoch, which may compute the whole order
    streams: str = ""  # of an iterable dataset with two workers or more: same, one, split; empty: not known
    trouble: str = ""


@dataclass(frozen=True)
class Facts:
    """All that was measured before anything was changed."""

    given: GivenLoader
    alone: Pace
    model_s: float | None = None  # None: no model was given
    copy_s: float = 0.0
    together: Pace | None = None
    inside: Inside = Inside()
    crowding: float = 1.0  # how many times its own time computing took, because of other programs
    load: float = 0.0  # the load average over the number of cores, before anything was measured
    taken: float = 0.0  # the share of the cores that other programs used then
    copies: tuple[tuple[str, float], ...] = ()  # what the step itself copies and converts with: seconds a step
    rereads: bool = False  # passes had to read samples again that earlier ones had read
    hurried: str = ""  # what there was no time for
    swapped_bytes: int = 0  # that the machine has moved to and from its swap meanwhile
    auto: str = ""  # what "auto" did meanwhile, and what it could not reach

    @property
    def is_crowded(self) -> bool:
        """Whether other programs need so much of the machine that nothing can be promised."""
        return self.crowding >= CROWDED or self.load >= LOADED or self.taken >= TAKEN

    @property
    def is_warmed(self) -> bool:
        """Whether trials met samples that were quick only because they had been read before."""
        return self.rereads and self.sample is not None and self.sample.is_remembered

    @property
    def sample(self) -> Sample | None:
        """What loading a sample is like; None where nobody could see."""
        return self.inside.sample

    @property
    def whole(self) -> Pace:
        """The passes as in training: with the model, if there is one."""
        return self.together or self.alone

    @property
    def needed_s(self) -> float:
        """What a step takes when its batch is there: the model, and the copy to its device."""
        return (self.model_s or 0.0) + self.copy_s


@dataclass(frozen=True)
class Change:
    """Keyword arguments to give otherwise, and to which loader."""

    arguments: Mapping[str, Any]
    kind: str = ""  # "stoker": move to stoker.DataLoader; empty: the loader's own

    def __str__(self) -> str:
        words = ", ".join(f"{name}={_shown(value)}" for name, value in self.arguments.items())
        if not self.kind:
            return words
        loader = "stoker.DataLoader" if self.kind == STOKER else "torch's DataLoader"
        return f"{loader} with {words}" if words else f"{loader} with the same arguments"


@dataclass(frozen=True)
class TriedChange:
    """A change that was measured, taking turns with the loader as it was given. Seconds a sample, one a round."""

    change: Change
    before_s: tuple[float, ...] = ()
    after_s: tuple[float, ...] = ()
    failure: str = ""
    call: str = ""  # the whole call, to be pasted

    @property
    def gains(self) -> list[float]:
        """How many times as fast, round by round."""
        return [before / after for before, after in zip(self.before_s, self.after_s, strict=True) if after > 0]

    @property
    def gain(self) -> float:
        """How many times as fast, in the middle round; 0 if it failed."""
        return median(self.gains) if self.gains else 0.0

    @property
    def promise(self) -> float:
        """The least gain of all rounds: what to expect."""
        return min(self.gains) if self.gains else 0.0


@dataclass(frozen=True)
class Diagnosis:
    """Where the time goes, and what to change."""

    cause: Cause
    verdict: str
    facts: Facts
    tried: tuple[TriedChange, ...] = ()
    numbers: tuple[tuple[str, str], ...] = ()  # what was measured, in words
    advice: str = ""  # what helps beside keyword arguments

    @property
    def changes(self) -> list[TriedChange]:
        """The changes worth making, the best first; each alone, not on top of another.

        None where nothing can be promised: on a crowded machine, or from samples that were read before.
        """
        if self.withheld:
            return []
        worth = [tried for tried in self.tried if tried.promise >= WORTH_IT]
        return sorted(worth, key=lambda tried: -tried.promise)

    @property
    def withheld(self) -> str:
        """Why nothing is promised; empty if something may be."""
        if self.facts.is_crowded:
            return "this machine is crowded"
        return "samples had to be read again, and come quicker then" if self.facts.is_warmed else ""

    def to_json(self) -> str:
        """Everything, as a file holds it."""
        fields = {**asdict(self), "cause": self.cause.name}
        if self.facts.inside == Inside():  # nobody has looked
            fields["facts"]["inside"] = None
        return json.dumps(fields, indent=1, ensure_ascii=False, default=repr)


def diagnosis_from_json(text: str) -> Diagnosis:
    """A diagnosis that was saved; ValueError, TypeError or KeyError if it is none."""
    fields = json.loads(text)
    return Diagnosis(
        cause=Cause[fields["cause"]],
        verdict=fields["verdict"],
        facts=facts_from(fields["facts"]),
        tried=tuple(_tried_from(tried) for tried in fields["tried"]),
        numbers=tuple((name, value) for name, value in fields["numbers"]),
        advice=fields["advice"],
    )


def facts_from(fields: Mapping[str, Any]) -> Facts:
    """Facts from what `asdict` made of them."""
    seen = fields["inside"] or {"sample": None}
    inside = Inside(**{**seen, "sample": _maybe(Sample, seen["sample"])})
    parts = {"given": GivenLoader(**fields["given"]), "alone": Pace(**fields["alone"]), "inside": inside}
    copies = tuple((name, seconds) for name, seconds in fields.get("copies", ()))
    return Facts(**{**fields, **parts, "together": _maybe(Pace, fields["together"]), "copies": copies})


def _tried_from(fields: Mapping[str, Any]) -> TriedChange:
    arguments = dict(fields["change"]["arguments"])
    if isinstance(arguments.get("workers"), dict):
        arguments["workers"] = Workers(**arguments["workers"])
    rounds = {name: tuple(fields[name]) for name in ("before_s", "after_s")}
    texts: dict[str, Any] = {name: fields.get(name, "") for name in ("failure", "call")}
    return TriedChange(Change(arguments, fields["change"]["kind"]), **{**rounds, **texts})


def _maybe(kind: Any, fields: Any) -> Any:
    return None if fields is None else kind(**fields)


def _shown(value: Any) -> str:
    return workers_call(value) if isinstance(value, Workers) else repr(value)
