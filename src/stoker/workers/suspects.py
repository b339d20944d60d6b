"""Tickets that a worker held together when it died: one of them kills, and nobody knows which.

Each is sent alone, one row at a time, so that the next death says who it was. While one is tried, the sender holds back
what could be at hand beside it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from stoker.contracts import Ask
from stoker.workers.handed import HandedOut
from stoker.workers.tickets import Key

_NOBODY = (-1, -1)  # no ticket


class Suspects:
    """Who waits to be tried alone, and who is."""

    def __init__(self, handed: HandedOut) -> None:
        self._handed = handed
        self._waiting: deque[Key] = deque()
        self._tried = _NOBODY

    def add(self, key: Key) -> None:
        self._waiting.append(key)

    def is_tried(self, key: Key) -> bool:
        """Whether this ticket was sent alone."""
        return key == self._tried

    def take_back(self, lost: dict[Key, bool]) -> None:
        """If the one that is tried was lost, it has its turn again."""
        if self._tried in lost:
            del lost[self._tried]
            self._waiting.appendleft(self._tried)
            self._tried = _NOBODY

    def heard(self) -> None:
        """Something was answered."""
        if self._waiting or self._handed.sender.is_held_back:
            self.go_on()

    def go_on(self) -> None:
        """Send the next suspect, one row, once the last was answered: nobody else is at hand in that process then."""
        self._waiting = deque(key for key in self._waiting if key in self._handed)
        if self._tried in self._handed:
            return
        self._handed.sender.go_on()
        if self._waiting:
            self._tried = self._waiting.popleft()
            self._cut_to_one_row(self._tried)
            self._handed.send_alone(self._tried)

    def _cut_to_one_row(self, key: Key) -> None:
        """Only the first row of a ticket is tried now; the rest is next."""
        given = self._handed[key]
        ticket, after = given.ticket, given.ticket.start + 1
        if ticket.ask is Ask.ROWS and after < ticket.stop:
            self._handed.note(replace(ticket, stop=after, keys=ticket.keys[:1]), given.worker)
            rest = replace(ticket, start=after, keys=ticket.keys[1:])
            self._waiting.appendleft(self._handed.note(rest, given.worker))
