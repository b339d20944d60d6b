"""What the rooms hand to each other: values without behaviour, and the shapes of the objects that meet in the loader.

A **ticket** asks for a run of rows of one batch, or for a whole batch; a **report** answers it. A **job** turns tickets
into reports and knows datasets and collating, but not who runs it; a **crew** runs jobs in processes, threads or the
training process itself, and knows nothing of data. Both meet only in `stoker.passes`.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from stoker.whole_numbers import keep_whole

Bytes = npt.NDArray[np.uint8]
MapSlot = Callable[[int], Bytes]
"""Gives the first `n` bytes of a slot as an array: a job asks for its memory when it knows how much it needs."""

START_METHODS = ("fork", "forkserver", "spawn")
SHARES = ("auto", "parts", "rows", "batches")


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


@dataclass(frozen=True)
class OnError:
    """What to do with samples that cannot be loaded.

    action     "raise" stops the run, as torch does; "skip" takes another sample of the same order in its place, the
               same one in every run; "drop" leaves it out, so that the batch is shorter; "retry" is "raise" with three
               tries, unless `tries` says another number
    tries      how often a sample is tried before it counts as failed, with pauses of `pause_s`, doubled each time and
               scattered a little
    budget     how many samples may fail before the run stops after all: a number, or a share of the samples seen
    log        a file that failures are written to as they happen, a line of JSON each
    """

    action: Literal["raise", "skip", "drop", "retry"] = "raise"
    tries: int = 1
    pause_s: float = 0.1
    budget: int | float | None = None
    log: str | None = None

    def __post_init__(self) -> None:
        if self.action == "retry":
            object.__setattr__(self, "action", "raise")
            object.__setattr__(self, "tries", 3 if self.tries == 1 else self.tries)
        if self.action not in ("raise", "skip", "drop"):
            raise ValueError(f'on_error should be "raise", "skip", "drop" or "retry", but got {self.action!r}')
        keep_whole(self, "tries", least=1)
        if not self.pause_s >= 0:
            raise ValueError(f"pause_s should be at least 0, but got {self.pause_s}")
        if isinstance(self.budget, float) and not 0 <= self.budget <= 1:
            raise ValueError(f"budget as a share should be between 0 and 1, but got {self.budget}")
        if isinstance(self.budget, int) and self.budget < 0:
            raise ValueError(f"budget should be at least 0, but got {self.budget}")

    @property
    def is_default(self) -> bool:
        """Whether a sample's error is raised as it comes, as by torch's loader."""
        return self == _DEFAULT


_DEFAULT = OnError()


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
class Workers:
    """Who loads: `processes` × `threads`, and how they share the work.

    processes     worker processes; 0 loads in the training process
    threads       that load in each process (samples that are awaited at a time, where the dataset has
                  `async def __agetitem__`). 0: a worker process loads in its main thread, and the training process
                  makes each batch when it is asked for; with processes=0, 1 is one thread in the background
    start_method  "fork", "forkserver" or "spawn"; None takes the platform's default
    share         "parts": every worker makes its part of each batch, so that a seeded run repeats; "rows": whoever is
                  free takes the next rows, so that a slow sample idles nobody; "batches": one worker makes a whole
                  batch, in torch's round robin. "auto": "parts", or "batches" where code can see who made a batch or
                  wants all of it (worker_init_fn, collate_fn, `__getitems__`, iterable datasets):
                  docs/decisions/0002-sharing-rows.md
    rows_per_run  rows a lane takes at a time when rows are shared; None measures and decides
    max_bytes     memory for batches under way; at least two batches are always allowed
    on_death      "raise", or "restart": a new worker takes over what a dead one held; a sample that kills two workers
                  counts as a bad sample (see `OnError`)
    max_restarts  after so many deaths the run stops all the same
    sample_timeout_s  a sample that takes longer counts as a bad sample; its process is replaced, a coroutine cancelled
    worker_max_bytes  a worker that holds more memory than this is replaced between two tickets
    """

    processes: int = 0
    threads: int = 0
    start_method: Literal["fork", "forkserver", "spawn"] | None = None
    share: Literal["auto", "parts", "rows", "batches"] = "auto"
    rows_per_run: int | None = None
    max_bytes: int = 512 * 2**20
    on_death: Literal["raise", "restart"] = "raise"
    max_restarts: int = 100
    sample_timeout_s: float | None = None
    worker_max_bytes: int | None = None

    def __post_init__(self) -> None:
        keep_whole(self, "processes", least=0)
        keep_whole(self, "threads", least=0)
        keep_whole(self, "max_bytes", least=1)
        if self.rows_per_run is not None:
            keep_whole(self, "rows_per_run", least=1)
        if self.start_method is not None and self.start_method not in START_METHODS:
            raise ValueError(f"start_method should be one of {START_METHODS}, but got {self.start_method!r}")
        if self.on_death not in ("raise", "restart"):
            raise ValueError(f'on_death should be "raise" or "restart", but got {self.on_death!r}')
        keep_whole(self, "max_restarts", least=0)
        if self.sample_timeout_s is not None and not self.sample_timeout_s > 0:
            raise ValueError(f"sample_timeout_s should be above 0, but got {self.sample_timeout_s}")
        if self.worker_max_bytes is not None:
            keep_whole(self, "worker_max_bytes", least=1)
        if self.share not in SHARES:
            raise ValueError(f"share should be one of {SHARES}, but got {self.share!r}")

    @property
    def replaces(self) -> bool:
        """Whether workers may be replaced by new ones during a run."""
        return self.on_death == "restart" or self.sample_timeout_s is not None or self.worker_max_bytes is not None

    @property
    def are_threads(self) -> bool:
        """Whether the training process loads with threads of its own."""
        return self.processes == 0 and self.threads > 0

    @property
    def is_inline(self) -> bool:
        """Whether each batch is made when it is asked for, unless its samples can only be awaited."""
        return self.processes == 0 and self.threads == 0

    @property
    def lanes(self) -> int:
        """How many samples are under way in a process at the same time."""
        return max(1, self.threads)

    @classmethod
    def with_lanes(cls, processes: int, lanes: int, **more: Any) -> Workers:
        """The same said by lanes, of which there is one where there are no threads."""
        return cls(processes, lanes if lanes > 1 else 0, **more)

    @property
    def total_lanes(self) -> int:
        """How many samples are under way at the same time."""
        return self.lanes * max(1, self.processes)


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
