"""What happens when a worker dies or is stuck: what is lost, who is to blame, and another in its seat.

    a death ─► read what it wrote ─► what nobody has ─► read again ─► what it was doing ─► replace, send again
                                     (`HandedOut`)                       (marks, `Deaths`)    (`Seats`)

A ticket is sent again only when its holder is dead, and after all that a dead worker had reported was read. Reading
again after the count is no luxury: somebody who lives may have answered and let go of a ticket just before it was
counted, and the answer was written before that.

What is found to be a bad sample is reported in the dead worker's name. Where a worker held several tickets, the next
death is to tell which of them kills (`Suspects`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from stoker.contracts import NO_ROW, Answer, Ask, FailedRows, Report
from stoker.errors import RemoteError
from stoker.slots import Arena
from stoker.workers.control import FIRST, ROW, Control
from stoker.workers.deaths import Deaths, Held
from stoker.workers.ends import exit_code
from stoker.workers.handed import HandedOut
from stoker.workers.seats import Seats
from stoker.workers.suspects import Suspects
from stoker.workers.tickets import Key


class Recovery:
    """Looks after the workers of a crew."""

    def __init__(self, arena: Arena, control: Control, seats: Seats, handed: HandedOut) -> None:
        self._cells, self._control = arena.control, control
        self._seats, self._handed = seats, handed
        self._deaths = Deaths(seats.staff.options)
        self._suspects = Suspects(handed)

    def heard(self) -> None:
        """A ticket was answered."""
        self._deaths.heard()
        self._suspects.heard()

    def next_look(self) -> float | None:
        """When to look for stuck samples again, on the monotonic clock; None: never."""
        return self._deaths.next_look(self._cells, self._control)

    def look(self, collect_all: Callable[[], list[Report]]) -> list[Report]:
        """End the stuck, replace the dead; gives reports in the name of those that cannot give them any more."""
        for number in self._deaths.stuck(self._cells, self._control, time.monotonic_ns()):
            self._seats.end(number)
        dead = self._seats.ended()
        return self._recover_from(dead, collect_all) if dead else []

    def _recover_from(self, dead: list[int], collect_all: Callable[[], list[Report]]) -> list[Report]:
        """Workers are gone: start others in their seats, which take over what they held, or give up."""
        reports = collect_all()  # what they wrote before they died
        lost = self._handed.lost_with(dead)
        # A ticket may have been let go by somebody who lives and has answered it: the answer was written before.
        reports += collect_all()
        lost = {key: was_taken for key, was_taken in lost.items() if key in self._handed}
        reports += [report for number in dead for report in self._bury(number, lost)]
        self._suspects.take_back(lost)
        for number in dead:
            if not self._seats.has_left(number):
                self._deaths.pause()
            self._seats.refill(number)
        self._suspects.go_on()
        for key, was_taken in lost.items():
            self._handed.send_again(key, was_taken)
        self._handed.sender.flush()
        return reports

    def _bury(self, number: int, lost: dict[Key, bool]) -> list[Report]:
        """Find out what a dead worker was doing, and who is to blame; what can be tried again stays in `lost`."""
        worker, lanes = self._seats.workers[number], self._control.lanes_of(number)
        if self._seats.has_left(number):  # what another of its lanes had only just taken is sent again
            self._clear_marks(lanes)
            return []
        held = self._held_by(number, [key for key, was_taken in lost.items() if was_taken])
        code = exit_code(worker)
        if not self._deaths.survive(code):
            raise self._deaths.obituary(worker, number, self._control, [one.ticket for one in held])
        reports, stuck = [], self._deaths.was_stuck(lanes)
        self._clear_marks(lanes)
        for one in held:
            error = self._deaths.verdict(one, len(held) == 1, stuck, code)
            if error is not None:
                reports.append(self._bad_sample(one, number, error, lost))
            elif len(held) > 1 or self._seats.staff.coroutines:
                self._suspect(one, lost)
        self._deaths.replaced(lanes)
        return reports

    def _clear_marks(self, lanes: Iterable[int]) -> None:
        """Also of lanes whose report came through, and whose mark stayed."""
        for place in lanes:
            self._cells[place] = 0

    def _suspect(self, held: Held, lost: dict[Key, bool]) -> None:
        """Who of several it was shows when each is loaded alone."""
        key = held.ticket.number, held.ticket.start
        if not self._suspects.is_tried(key):
            del lost[key]
            self._suspects.add(key)

    def _held_by(self, number: int, taken: list[Key]) -> list[Held]:
        """What the lanes of a worker were doing, as far as they noted it."""
        cells = self._cells
        if self._seats.staff.coroutines:
            return self._awaited_by(number, taken)
        marks = [(place, (cells[place] - 1, cells[place + FIRST])) for place in self._control.lanes_of(number)]
        # A mark stays when its ticket was answered. Where such a ticket was sent again (a batch with a bad sample), two
        # lanes may show it: the one with a sample at hand holds it.
        holders = {key: place for place, key in sorted(marks, key=lambda mark: cells[mark[0] + ROW] != NO_ROW)}
        return [
            Held(place, self._handed[key].ticket, cells[place + ROW], self._handed[key].worker)
            for place, key in marks
            if key in taken and holders[key] == place
        ]

    def _awaited_by(self, number: int, taken: list[Key]) -> list[Held]:
        """What a worker was awaiting: the suspect that it was given alone, else anything that was on its way to it."""
        place = self._control.lane_at(number, 0)
        awaited = [self._handed[key] for key in taken]
        if len(taken) == 1 and self._suspects.is_tried(taken[0]):
            ticket = awaited[0].ticket
            if ticket.stop - ticket.start == 1:
                return [Held(place, ticket, ticket.start, awaited[0].worker)]
        return [Held(place, given.ticket, NO_ROW, given.worker) for given in awaited]

    def _bad_sample(self, held: Held, number: int, error: RemoteError, lost: dict[Key, bool]) -> Report:
        """A report for the sample that ended its worker; the other rows of its ticket are asked for again."""
        ticket, row = held.ticket, held.row
        key = ticket.number, ticket.start
        self._handed.forget(key)
        del lost[key]
        payload = FailedRows([(row, error)])
        if ticket.ask is not Ask.ROWS:
            return Report(ticket.number, Answer.FAILED, ticket.start, ticket.stop, number, payload=payload)
        for start, stop in ((ticket.start, row), (row + 1, ticket.stop)):
            if start < stop:
                keys = ticket.keys[start - ticket.start : stop - ticket.start]
                part = replace(ticket, start=start, stop=stop, keys=keys)
                lost[self._handed.note(part, held.worker)] = True
        return Report(ticket.number, Answer.FAILED, row, row + 1, number, payload=payload)
