"""How many load, and within which limits that may change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stoker.options import Workers


@dataclass(frozen=True, order=True)
class Size:
    """Processes, lanes of each, and how far ahead they load. No processes: each batch is made when it is asked for."""

    processes: int
    lanes: int = 1
    ahead: int = 1  # times as many batches under way as so many hands need

    @property
    def hands(self) -> int:
        """Samples under way at the same time."""
        return max(1, self.processes) * self.lanes

    def __str__(self) -> str:
        if not self.processes:
            return "no workers"
        threads = f" × {self.lanes} threads" if self.lanes > 1 else ""
        ahead = f", {self.ahead} times as many batches ahead" if self.ahead > 1 else ""
        return f"{self.processes} process{'es' if self.processes > 1 else ''}{threads}{ahead}"


@dataclass(frozen=True)
class Limits:
    """What a size may be."""

    least_processes: int
    most_processes: int
    least_lanes: int
    most_lanes: int
    most_ahead: int = 8

    def holds(self, size: Size) -> Size:
        """The nearest size within the limits; without processes there is one lane."""
        processes = min(self.most_processes, max(self.least_processes, size.processes))
        if not processes:
            return Size(0)
        lanes = min(self.most_lanes, max(self.least_lanes, size.lanes))
        return Size(processes, lanes, min(self.most_ahead, size.ahead))

    def written_in(self, options: Workers) -> Workers:
        """These limits as the ranges of a `Workers`."""
        return replace(
            options,
            processes=self.least_processes,
            most_processes=self.most_processes,
            threads=self.least_lanes if self.least_lanes > 1 else 0,
            most_threads=self.most_lanes,
        )

    @classmethod
    def of(cls, workers: Workers | None, is_most: bool, core_count: int) -> Limits:
        """Those of `workers`: its ranges; where there is none, its numbers, as the most there may be if `is_most`."""
        given = workers or Workers()
        processes = _range(given.processes, given.most_processes, is_most, max(_FEWEST, core_count))
        threads = _range(given.threads, given.most_threads, is_most, MOST_LANES)
        return cls(*processes, max(1, threads[0]), max(1, threads[1]))


MOST_LANES = 32
_FEWEST = 2  # processes that may always be tried: on one core one of them may wait for storage


def _range(least: int, most: int | None, is_most: bool, otherwise: int) -> tuple[int, int]:
    if most is not None:
        return least, most
    if is_most:
        return 0, least or otherwise
    return least, max(1, least)
