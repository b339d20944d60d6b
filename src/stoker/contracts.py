"""What the rooms hand to each other: values, a few of which can work something out of themselves, and the shapes of the
objects that meet in the rooms above.

A **ticket** asks for a run of rows of one batch, or for a whole batch; a **report** answers it. A **job** turns tickets
into reports and knows datasets and collating, but not who runs it; a **crew** runs jobs in processes, threads or the
training process itself, and knows nothing of data. The two are joined where a crew is made: in `stoker.passes` for a
loader, and in `stoker.prefetching`, whose filler is a crew of one.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]
MapSlot = Callable[[int], Bytes]
"""Gives the first `n` bytes of a slot as an array: a job asks for its memory when it knows how much it needs."""


NO_ROW = -1  # what a lane notes while no sample is at hand: it collates, or pauses before another try


class Ask(enum.IntEnum):
    """What a ticket asks for."""

    ROWS = 0  # rows [start, stop) of a batch, written straight into the slot
    BATCH = 1  # the whole batch, collated by one worker
    READY = 2  # nothing but a word that the worker is set up, or why not


class Answer(enum.IntEnum):
    """What a report says."""

    DONE = 0  # the rows are in the slot, or the batch is in the payload
    MISFIT = 1  # these samples cannot be written as rows: ask for the whole batch
    ERROR = 2  # the user's code raised; the payload is a RemoteError
    FAILED = 5  # samples of a whole batch could not be loaded; the payload says which
    END = 3  # an iterable dataset of this worker is used up
    CANCELLED = 4  # the epoch was ended before this ticket's turn


@dataclass(slots=True)
class Ticket:
    """One piece of work. `keys` are the dataset's indices for the rows asked for (None for iterable datasets)."""

    number: int  # of the batch, counted over the life of a crew
    ask: Ask
    slot: int
    start: int
    stop: int
    rows: int  # rows of the whole batch: they decide where each column lies in the slot
    epoch: int  # tickets of an epoch that was left early are answered with CANCELLED
    position: int = 0  # place of the batch's first row in the epoch: randomness may be keyed by it
    keys: Any = None
    singly: bool = False  # load one sample at a time, and note each: a worker died on this ticket
    claim: int = -1  # what its taker lets it go by, once it is answered


@dataclass(slots=True)
class Report:
    """What became of one ticket."""

    number: int  # of the batch
    answer: Answer
    start: int
    stop: int
    worker: int
    size_bytes: int = 0  # how much of the slot the batch fills
    layout: int = 0  # fingerprint of how the rows lie in the slot; 0: nothing was written as rows
    busy_ns: int = 0
    payload: Any = None
    began_ns: int = 0  # on the clock that all processes of a machine share
    lane: int = 0
    retries: int = 0  # tries of its samples beyond the first of each


@dataclass(frozen=True)
class EpochNote:
    """What the samples of an epoch may need to know of it: where randomness that belongs to a sample comes from."""

    seed: int = 0
    epoch: int = 0
    shared_seed: int = 0  # for torch's DataPipes
    spread: Callable[[int], int] | None = None  # to positions, where a rank's samples are no neighbours in the epoch

    def position(self, place: int) -> int:
        """Where in the epoch the sample stands that the tickets number so."""
        return place if self.spread is None else self.spread(place)


class Gap(enum.Enum):
    """Stands for the key of a row that is to be left out: the rows after it keep their positions."""

    GAP = 0


@dataclass(frozen=True)
class Failed:
    """Stands where a sample should be: it could not be loaded, and this is why."""

    error: Any  # a RemoteError; None for a gap, which is known already


@dataclass(frozen=True)
class FailedRows:
    """The payload of a report that a dead worker can no longer give."""

    failed: list[tuple[int, Any]]  # (row, RemoteError)


@dataclass(frozen=True)
class Failure:
    """A sample that could not be loaded: an entry of `loader.failures`."""

    index: Any  # in the dataset
    epoch: int
    position: int  # in the epoch
    error: str
    traceback: str
    when: float  # seconds since 1970
    worker: int | None
    action: str  # what was done about it


@dataclass(frozen=True)
class SampleRun:
    """A run of samples that is being loaded. Which one is at hand follows from how many keys are left to take."""

    keys: Iterator[Any]
    rows: int
    position: int  # of the first sample
    note: EpochNote

    @property
    def current(self) -> int:
        """Number of the sample at hand: none of this costs anything while samples do not ask."""
        left = operator.length_hint(self.keys)
        return self.position + (self.rows - left - 1 if self.rows - left > 0 else 0)

    def position_at(self, offset: int = 0) -> int:
        """Where in the epoch the sample at hand stands, or one `offset` places into the run."""
        return self.note.position(self.current + offset)


CURRENT_RUN: ContextVar[SampleRun | None] = ContextVar("CURRENT_RUN", default=None)
"""Set while samples are loaded, in whatever thread or coroutine that happens."""


def during(run: SampleRun, call: Callable[..., T], *arguments: Any) -> T:
    """What the call gives; the run is the current one meanwhile."""
    token = CURRENT_RUN.set(run)
    try:
        return call(*arguments)
    finally:
        CURRENT_RUN.reset(token)


@runtime_checkable
class Stateful(Protocol):
    """Samplers, datasets and their iterators that can save and restore their own place."""

    def state_dict(self) -> dict[str, Any]:
        """The place, as something that can be pickled (and that JSON can hold, if the loader's state should)."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to a place that `state_dict` gave."""


@dataclass(frozen=True)
class WorkerSeat:
    """Who a worker is: what `torch.utils.data.get_worker_info()` shows, and what its seeds are made of."""

    id: int
    count: int
    base_seed: int
    lanes: int = 1


class Fetch(Protocol):
    """How samples are got from a dataset, chosen once (see `stoker.sources.fetch`)."""

    dataset: Any
    arrays: Sequence[Any] | None  # columns that can be gathered with one indexing operation each
    bare: bool  # the dataset is one array: a sample is an element, not a tuple of elements
    by_runs: bool  # the dataset gives the samples of a run all at once, which may be much quicker

    def one(self, key: Any) -> Any:
        """One sample."""

    def many(self, keys: Iterator[Any]) -> list[Any]:
        """The samples of a run, in order."""

    async def one_async(self, key: Any) -> Any:
        """One sample of a dataset with `async def __agetitem__`."""


class Randomness(Protocol):
    """Keeps what samples draw from global generators independent of who loads them."""

    def load(self, one: Callable[[Any], Any], run: SampleRun) -> list[Any]:
        """Load the samples of a run."""

    def one(self, one: Callable[[Any], Any], key: Any, run: SampleRun) -> Any:
        """Load the sample at hand."""


class Job(Protocol):
    """Turns tickets into reports. Made in the training process, pickled (or forked) to where it runs."""

    @property
    def dataset(self) -> Any:
        """The user's dataset, for `get_worker_info()`."""

    def open(self, worker: int | None, state: Any) -> None:
        """Called once where the job will run, before the first ticket. `worker` is None in the training process.

        `state` is what a report of this worker said of its place, in a run that is resumed.
        """

    def for_lane(self, mark: Callable[[int], None] | None) -> Job:
        """The same job for one more lane of this process; `mark` is told the row of each sample it begins."""

    def limit(self, lanes: int) -> None:
        """Await no more than `lanes` samples at the same time; called inside the event loop that will await them."""

    def begin_epoch(self, note: EpochNote) -> None:
        """A new epoch starts: iterable datasets make a new iterator."""

    def run(self, ticket: Ticket, slot: MapSlot) -> Report:
        """Do what the ticket asks; errors of user code become reports, never exceptions."""

    async def run_async(self, ticket: Ticket, slot: MapSlot) -> Report:
        """The same for datasets with `async def __agetitem__`."""


class TellsOfLoop(Protocol):
    """Told when the training loop asks for a batch, and what came of it, by whoever reads ahead of the loop."""

    def asked(self) -> None:
        """The loop asks for a batch."""

    def got(self) -> None:
        """It got one."""

    def missed(self, error: BaseException) -> None:
        """It got none: an error, or the end."""


@runtime_checkable
class ReadAhead(Protocol):
    """An iterator that wants to know that its batches are taken ahead of the training loop."""

    @property
    def wants_callers_thread(self) -> bool:
        """Whether loading in a thread beside the training loop would disturb it."""

    def read_ahead(self) -> TellsOfLoop:
        """Somebody takes batches ahead of the training loop, and will tell when the loop itself waits."""

    def leave(self) -> None:
        """Nobody waits for the batch any more that another thread is asking for: let that thread stop waiting."""


class Crew(Protocol):
    """Whoever runs a job: threads, or processes × lanes."""

    is_at_rest: bool  # an exception out of `wait` came while nothing was under way between its hands

    @property
    def workers(self) -> Sequence[Any]:
        """The processes that write into the slots, by number; none where it is threads that do."""

    def pid_of(self, worker: int) -> int | None:
        """The process of a worker that has reported, also if it is gone since; None where it is a thread."""

    @property
    def restarts(self) -> int:
        """How many workers were started in the place of others."""

    def begin_epoch(self, note: EpochNote) -> int:
        """Start a new epoch, leave what is under way of the old one; gives the epoch's number for tickets."""

    def submit(self, ticket: Ticket, worker: int | None = None) -> None:
        """Hand out a ticket, to a certain worker or to whoever is free first."""

    def flush(self) -> None:
        """Send what was submitted, as far as that goes without blocking."""

    def collect(self) -> list[Report]:
        """The reports that are there already."""

    def wait(self, timeout_s: float | None) -> list[Report]:
        """Block until there is at least one report; an empty list when the time is up."""

    def wake(self) -> None:
        """Let `wait` return, in whatever thread it is called."""

    def close(self) -> None:
        """Let everybody go, and wait until they are gone."""


@dataclass(frozen=True)
class Filled:
    """What lies in a slot when all reports of a batch are in."""

    slot: int
    rows: int
    layout: int  # its fingerprint; 0: not rows, but what the first payload says
    size_bytes: int
    payloads: list[tuple[int, Any]]  # (first row, payload) of each run
    dropped: Collection[int]  # rows that are left out


Keys = Sequence[Any] | npt.NDArray[np.int64]
