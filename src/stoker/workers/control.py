"""The control room: a few integers in shared memory that the training process and its workers all see.

    EPOCH        number of the current epoch: tickets of older ones are cancelled
    NOTE         three numbers: the current epoch's note
    HEAD, NEXT   of the board (see `board`)
    heard        one a seat: how many payloads of that worker's outbox the training process has read
    wanted       one a seat: how many lanes are to be at work there; 0 asks its worker to leave
    lanes        eight numbers a lane: what it is doing
    board        the tickets that any worker may take

Each number has one writer at a time, and is written and read whole. Whoever depends on the order of two writes has a
system call between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoker.contracts import EpochNote

EPOCH, NOTE, HEAD, NEXT = 0, 1, 4, 5
_SEATS_AT = 8
LANE_SPAN = 8
NUMBER, FIRST, ROW, SINCE = range(4)  # batch + 1 (0: idle), the ticket's first row, row at hand, since when in ns
ENTRY = 11  # numbers of a ticket on the board: whether it can be taken, and its record
_LEAST_ENTRIES = 1024
_UNSIGNED = 2**64 - 1  # seeds are unsigned, the control room's numbers signed


@dataclass(frozen=True)
class Control:
    """Where in the control room things are, for so many seats and lanes in each."""

    seats: int
    lanes: int

    @property
    def entries(self) -> int:
        """Tickets that may hang on the board at a time: some for every lane, so that none waits for `next()`."""
        wanted = max(_LEAST_ENTRIES, 4 * self.seats * self.lanes)
        return 1 << (wanted - 1).bit_length()

    @property
    def board_at(self) -> int:
        return self.lanes_at + self.seats * self.lanes * LANE_SPAN

    @property
    def lanes_at(self) -> int:
        return _SEATS_AT + 2 * self.seats

    @property
    def size_bytes(self) -> int:
        return 8 * (self.board_at + self.entries * ENTRY)

    def heard_at(self, seat: int) -> int:
        return _SEATS_AT + seat

    def wanted_at(self, seat: int) -> int:
        return _SEATS_AT + self.seats + seat

    def lane_at(self, seat: int, lane: int) -> int:
        """Where a lane notes what it is doing."""
        return self.lanes_at + (seat * self.lanes + lane) * LANE_SPAN

    def lanes_of(self, seat: int) -> range:
        return range(self.lane_at(seat, 0), self.lane_at(seat + 1, 0), LANE_SPAN)

    def all_lanes(self) -> range:
        return range(self.lanes_at, self.board_at, LANE_SPAN)

    def seat_of(self, lane_place: int) -> int:
        return (lane_place - self.lanes_at) // (self.lanes * LANE_SPAN)


def write_note(control: Any, note: EpochNote) -> None:
    """Tell the workers of a new epoch; they look when its first ticket comes."""
    seed = note.seed & _UNSIGNED
    control[NOTE] = seed - 2**64 if seed >= 2**63 else seed
    control[NOTE + 1], control[NOTE + 2] = note.epoch, note.shared_seed


def read_note(control: Any) -> EpochNote:
    return EpochNote(control[NOTE] & _UNSIGNED, control[NOTE + 1], control[NOTE + 2])
