"""The options that a user gives a loader as objects of their own: who loads, and what to do with bad samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from stoker.whole_numbers import check_whole, keep_whole

START_METHODS = ("fork", "forkserver", "spawn")
SHARES = ("auto", "parts", "rows", "batches")


@dataclass(frozen=True)
class Workers:
    """Who loads: `processes` × `threads`, and how they share the work.

    processes     worker processes; 0 loads in the training process. A range, (least, most): as many of them as training
                  turns out to need, which the loader finds out as it goes (docs/auto.md)
    threads       that load in each process (samples that are awaited at a time, where the dataset has
                  `async def __agetitem__`). 0: a worker process loads in its main thread, and the training process
                  makes each batch when it is asked for; with processes=0, 1 is one thread in the background. A range,
                  as with processes
    start_method  "fork", "forkserver" or "spawn"; None takes the platform's default
    share         "parts": every worker makes its part of each batch, so that a seeded run repeats; "rows": whoever is
                  free takes the next rows, so that a slow sample idles nobody; "batches": one worker makes a whole
                  batch, in torch's round robin. "auto": "parts", or "batches" where code can see who made a batch or
                  wants all of it (worker_init_fn, collate_fn, `__getitems__`, iterable datasets), or "rows" where
                  it does not matter who loads what (reseed="sample", ranges): the list is in passes/assemble.py
    rows_per_run  rows a lane takes at a time when rows are shared; None measures and decides
    prefetch_bytes  memory for batches under way; at least two batches are always allowed
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
    prefetch_bytes: int = 512 * 2**20
    on_death: Literal["raise", "restart"] = "raise"
    max_restarts: int = 100
    sample_timeout_s: float | None = None
    worker_max_bytes: int | None = None
    most_processes: int | None = None  # of a range, whose least is `processes`
    most_threads: int | None = None

    if TYPE_CHECKING:  # what the constructor takes; the attributes are always numbers

        def __init__(
            self,
            processes: int | tuple[int, int] = 0,
            threads: int | tuple[int, int] = 0,
            start_method: Literal["fork", "forkserver", "spawn"] | None = None,
            share: Literal["auto", "parts", "rows", "batches"] = "auto",
            rows_per_run: int | None = None,
            prefetch_bytes: int = 512 * 2**20,
            on_death: Literal["raise", "restart"] = "raise",
            max_restarts: int = 100,
            sample_timeout_s: float | None = None,
            worker_max_bytes: int | None = None,
            most_processes: int | None = None,
            most_threads: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        self._keep_range("processes")
        self._keep_range("threads")
        keep_whole(self, "prefetch_bytes", least=1)
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

    def _keep_range(self, name: str) -> None:
        """Keep a number, or the two of a range."""
        given: Any = getattr(self, name)
        most = getattr(self, f"most_{name}")
        if isinstance(given, tuple | list):
            if len(given) != 2 or most is not None:
                raise ValueError(f"{name} should be a number, or a range (least, most), but got {given!r}")
            object.__setattr__(self, name, given[0])
            most = given[1]
        keep_whole(self, name, least=0)
        if most is not None:
            least = max(1, getattr(self, name))
            most = check_whole(name, most, least, what=f"the most of the range ({getattr(self, name)}, {most})")
            object.__setattr__(self, f"most_{name}", most)

    @property
    def is_range(self) -> bool:
        """Whether how many load is left to the loader, within limits."""
        return self.most_processes is not None or self.most_threads is not None

    def fixed_at(self, processes: int, lanes: int) -> Workers:
        """The same options with so many of each, and no range."""
        threads = lanes if lanes > 1 else 0
        return replace(self, processes=processes, threads=threads, most_processes=None, most_threads=None)

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
