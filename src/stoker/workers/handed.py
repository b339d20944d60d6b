"""The tickets that were handed out and are not answered yet, and how they go out.

What is known here and what is on its way differ after a death only: then some of what was handed out is lost, which the
sender finds out, and is sent once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stoker.contracts import Ticket
from stoker.workers.tickets import Key, Sender
from stoker.workers.wire import TicketCode


@dataclass(frozen=True)
class Given:
    """A ticket that was handed out, and to whom, where that matters."""

    ticket: Ticket
    worker: int


class HandedOut:
    """What a crew waits for."""

    def __init__(self, code: TicketCode, sender: Sender) -> None:
        self.sender = sender
        self._code = code
        self._unanswered: dict[Key, Given] = {}

    def __bool__(self) -> bool:
        return bool(self._unanswered)

    def __contains__(self, key: Key) -> bool:
        return key in self._unanswered

    def __getitem__(self, key: Key) -> Given:
        return self._unanswered[key]

    def hand_out(self, ticket: Ticket, worker: int) -> None:
        """Note a ticket, and send it with the next flush."""
        self.sender.submit(self.note(ticket, worker), self._code.encode(ticket), worker)

    def note(self, ticket: Ticket, worker: int) -> Key:
        """A ticket will be sent, and is to be answered."""
        key = ticket.number, ticket.start
        self._unanswered[key] = Given(ticket, worker)
        return key

    def forget(self, key: Key) -> bool:
        """A ticket is answered, or nobody is to answer it any more; says whether it was known."""
        return self._unanswered.pop(key, None) is not None

    def lost_with(self, dead: list[int]) -> dict[Key, bool]:
        """The tickets that nobody has any more, oldest first, and whether somebody may have taken them."""
        lost: dict[Key, bool] = {}
        for number in dead:
            lost.update(self.sender.lost_with(number))
        return lost

    def send_again(self, key: Key, was_taken: bool) -> None:
        given = self[key]
        record = self._warily(key) if was_taken else self._code.encode(given.ticket)
        self.sender.submit(key, record, given.worker)

    def send_alone(self, key: Key) -> None:
        """Send it so that whoever has it has nothing else at hand."""
        self.sender.send_alone(key, self._warily(key), self[key].worker)

    def _warily(self, key: Key) -> bytes:
        """The record of a ticket that a worker has died on: each of its samples is noted before it is loaded."""
        given = self[key]
        wary = replace(given.ticket, singly=True)
        self._unanswered[key] = Given(wary, given.worker)
        return self._code.encode(wary)
