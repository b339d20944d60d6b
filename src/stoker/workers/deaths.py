"""What is known of deaths: whether one more is put up with, and whether the sample at hand is to blame.

A death may be chance (the out-of-memory killer took the largest process) or the sample's fault (a decoder that
crashes). So a sample is tried again by the new worker once; if that dies on it too, the sample is bad, and what
happens is the loader's `on_error`. A sample past `sample_timeout_s` is bad at once. Restarts have a budget, and
pauses that double while workers die without finishing anything.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from stoker.contracts import NO_ROW, Ticket
from stoker.errors import RemoteError, WorkerDied, describe_exit, likely_cause
from stoker.options import Workers
from stoker.workers.control import ROW, SINCE, Control
from stoker.workers.ends import exit_code

# Exit codes of workers that leave by themselves, between two tickets: nobody's fault.
TOO_LARGE = 77  # it holds more memory than it may, and wants to be replaced
NOT_WANTED = 78  # it was asked to leave
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 5.0
_DEATHS_OF_A_BAD_SAMPLE = 2


@dataclass(frozen=True)
class Held:
    """What a lane was doing when its process ended."""

    place: int  # of the lane in the control room
    ticket: Ticket
    row: int  # at hand; NO_ROW: none, or the samples of the ticket were loaded all at once
    worker: int  # that it was meant for


@dataclass
class Deaths:
    """Remembers deaths, and judges."""

    options: Workers
    sleep: Callable[[float], None] = time.sleep
    _deaths: Counter[tuple[int, int, str]] = field(default_factory=Counter)  # by (epoch, position, index)
    _survived: int = 0  # deaths that count against `max_restarts`
    _in_a_row: int = 0  # deaths since anything was last heard
    _stuck: set[tuple[int, int, int]] = field(default_factory=set)  # (lane, batch, row) that were past their time

    def heard(self) -> None:
        self._in_a_row = 0

    def pause(self) -> None:
        """Wait a little before a restart, longer if workers die without finishing anything."""
        self._in_a_row += 1
        if self._in_a_row > 2:
            self.sleep(min(_FIRST_PAUSE_S * 2 ** (self._in_a_row - 3), _LONGEST_PAUSE_S))

    def survive(self, exit_code: int | None) -> bool:
        """Count a death; whether a worker that ended like this is replaced."""
        if exit_code == TOO_LARGE and self.options.worker_max_bytes is not None:
            return True
        if self.options.on_death != "restart" and not self._stuck:
            return False
        self._survived += 1
        return self._survived <= self.options.max_restarts

    def obituary(self, worker: Any, number: int, control: Control, held: list[Ticket]) -> WorkerDied:
        """The error for a worker that is not replaced: how it ended, what it held, what to do about it."""
        stuck, code = self.was_stuck(control.lanes_of(number)), exit_code(worker)
        limit_s = self.options.sample_timeout_s
        end = f"was ended because a sample took more than {limit_s} seconds" if stuck else describe_exit(code)
        text = (
            f"DataLoader worker (pid {worker.pid}) {end}. "
            f"This was worker {number} of {control.seats}, {_describe_held(held)}.\n"
            f" {'' if stuck else ' ' + likely_cause(code)}{self._advice()}"
        )
        return WorkerDied(text, worker=number, pid=worker.pid, exit_code=code, samples=_keys_of(held))

    def _advice(self) -> str:
        if self._stuck or self.options.on_death == "restart":
            return f" All {self.options.max_restarts} restarts are used up: see Workers(max_restarts=…)."
        return ' To survive such deaths: workers=stoker.Workers(on_death="restart").'

    def verdict(self, held: Held, alone: bool, stuck: bool, exit_code: int | None) -> RemoteError | None:
        """The error of the sample at hand, if it is to blame; None to try it again.

        `alone` says that its process held no other ticket, which could as well have ended it; `stuck` that the
        process was ended because one of its samples was past its time.
        """
        ticket, row = held.ticket, held.row
        if row == NO_ROW or ticket.keys is None or exit_code == TOO_LARGE:
            return None  # nobody knows which; or an iterable dataset, which cannot go on without; or nobody's fault
        if stuck:
            if (held.place, ticket.number, row) not in self._stuck:
                return None  # its process was ended for the sake of another sample
            return _remote(TimeoutError, f"no answer within {self.options.sample_timeout_s} seconds")
        if not alone:
            return None
        where = (ticket.epoch, ticket.position + row, str(ticket.keys[row - ticket.start]))
        self._deaths[where] += 1
        if self._deaths[where] < _DEATHS_OF_A_BAD_SAMPLE:
            return None
        return _remote(WorkerDied, f"two workers died loading it; the last one {describe_exit(exit_code)}")

    def was_stuck(self, lanes: Iterable[int]) -> bool:
        """Whether a worker was ended because one of its lanes was past its time."""
        return bool({place for place, _, _ in self._stuck} & set(lanes))

    def replaced(self, lanes: Iterable[int]) -> None:
        """The worker with these lanes is gone, and another will be in its seat."""
        self._stuck = {entry for entry in self._stuck if entry[0] not in set(lanes)}

    def stuck(self, cells: Any, control: Control, now_ns: int) -> set[int]:
        """The workers that hold a sample past its time."""
        limit_s = self.options.sample_timeout_s
        if limit_s is None:
            return set()
        late = [place for place in _busy(cells, control) if now_ns - cells[place + SINCE] > limit_s * 1e9]
        self._stuck.update((place, cells[place] - 1, cells[place + ROW]) for place in late)
        return {control.seat_of(place) for place in late}

    def next_look(self, cells: Any, control: Control) -> float | None:
        """When to look for stuck samples again, on the monotonic clock; None: never."""
        limit_s = self.options.sample_timeout_s
        if limit_s is None:
            return None
        begun = [cells[place + SINCE] for place in _busy(cells, control)]
        # A lane that has not begun its sample yet may do so any moment: its deadline is at least that far away.
        return (min(begun) / 1e9 if begun else time.monotonic()) + limit_s


def _busy(cells: Any, control: Control) -> list[int]:
    """The lanes that have a sample at hand."""
    return [place for place in control.all_lanes() if cells[place] and cells[place + ROW] != NO_ROW]


def _remote(kind: type[BaseException], text: str) -> RemoteError:
    return RemoteError(kind, kind.__name__, f"{kind.__name__}: {text}\n", "in a DataLoader worker process")


def _keys_of(tickets: list[Ticket]) -> list[Any]:
    return [key for ticket in tickets if ticket.keys is not None for key in list(ticket.keys)]


def _describe_held(tickets: list[Ticket]) -> str:
    keys = [str(key) for key in _keys_of(tickets)]
    if not keys:
        return "holding no sample" if not tickets else "making a batch of its iterable dataset"
    shown = ", ".join(keys[:8]) + (f", … ({len(keys)} in all)" if len(keys) > 8 else "")
    return f"loading sample{'s' if len(keys) > 1 else ''} {shown}"
