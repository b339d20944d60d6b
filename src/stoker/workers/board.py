"""Tickets for whoever is free: a board in shared memory, and a lock that the kernel keeps on each ticket that is taken.

    training process                 board (a ring)                        worker
      hang up number n   ────►    n: open                        a permit: there may be something to take
      a permit into the pipe      n: taken, byte n locked  ◄──── lock byte n, see that it is open, take it
                                                                 … load, report, unlock

A lock on a byte of the arena's file belongs to a process and ends with it, however it ends. So the kernel knows at any
moment whether the taker of a ticket lives, also if it is stopped, slow, or between taking a ticket and noting it: no
timer guesses. A number is taken once at most: it goes from open to taken under its lock, and never back. After a death
the training process locks each number that was not answered; where it gets the lock, nobody has that ticket, and it
hangs it up again under a new number. Where it does not, the taker lives and will answer.

The pipe carries permits only, a byte each: a worker sleeps in read() until there may be something on the board. A
permit that a worker takes to its grave is made good when the training process hangs tickets up again; one too many
costs a look at the board.

(Locks on a file are lost when a process closes any descriptor of that file: nobody in a worker closes the arena's.)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from collections import deque

from stoker.slots import Arena
from stoker.workers.control import ENTRY, HEAD, NEXT, Control
from stoker.workers.tickets import NOBODY, Key
from stoker.workers.wire import RECORD

_OPEN = struct.Struct("<q")  # number + 1 while a ticket can be taken; -1 - number afterwards


class Board:
    """What both sides know of the board."""

    def __init__(self, arena: Arena, control: Control) -> None:
        self._cells, self._fd = arena.control, arena.fd
        self._at, self._entries = control.board_at, control.entries

    def _entry(self, number: int) -> int:
        return self._at + (number % self._entries) * ENTRY

    def _lock(self, number: int) -> bool:
        """Lock a number's byte; False if another process has it."""
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):  # POSIX allows either
            return False
        return True

    def _unlock(self, number: int) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, number)

    def _is_open(self, number: int) -> bool:
        return bool(self._cells[self._entry(number)] == number + 1)

    def _shut(self, number: int) -> None:
        self._cells[self._entry(number)] = -1 - number


class Publisher(Board):
    """The training process's side: hangs tickets up, and again after a death."""

    def __init__(self, arena: Arena, control: Control, permits: int) -> None:
        super().__init__(arena, control)
        self._permits = permits
        self._unsent: deque[tuple[Key, bytes]] = deque()
        self._hanging: dict[int, Key] = {}  # number -> the ticket's key, until it is answered
        self._number_of: dict[Key, int] = {}
        self._alone: deque[tuple[Key, bytes]] = deque()  # one at most
        self._is_one_alone = False

    @property
    def is_held_back(self) -> bool:
        return self._is_one_alone

    def submit(self, key: Key, record: bytes, worker: int) -> None:
        self._unsent.append((key, record))

    def send_alone(self, key: Key, record: bytes, worker: int) -> None:
        """Whoever takes it must have nothing else at hand: it waits until all others are answered, and they for it."""
        self._is_one_alone = True
        self._alone.append((key, record))
        self.flush()

    def go_on(self) -> None:
        self._is_one_alone = False

    def flush(self) -> None:
        first = head = self._cells[HEAD]
        hung: list[bytes] = []
        if self._is_one_alone and self._hanging:
            return
        source = self._alone if self._is_one_alone else self._unsent
        while source and (head - self._entries) not in self._hanging:
            key, record = source.popleft()
            hung.append(_OPEN.pack(head + 1) + record)
            self._hanging[head], self._number_of[key] = key, head
            head += 1
        if hung:
            self._write(first, hung)  # before the head: nobody looks beyond that
            self._cells[HEAD] = head
            self._permit(len(hung))

    def _write(self, number: int, entries: list[bytes]) -> None:
        left = self._entries - number % self._entries  # until the ring begins again
        for at, part in ((number, entries[:left]), (number + left, entries[left:])):
            if part:
                os.pwrite(self._fd, b"".join(part), 8 * self._entry(at))

    def answered(self, key: Key) -> None:
        number = self._number_of.pop(key, None)
        if number is not None:
            del self._hanging[number]

    def lost_with(self, worker: int) -> dict[Key, bool]:
        lost: dict[Key, bool] = {}
        for number, key in list(self._hanging.items()):
            if self._lock(number):  # nobody alive has it
                lost[key] = not self._is_open(number)
                self._shut(number)
                self._unlock(number)
                self.answered(key)
        for waiting in (self._alone, self._unsent):
            lost.update((key, False) for key, _ in waiting)
            waiting.clear()
        return lost

    def rouse(self, count: int) -> None:
        """Let so many lanes look up that may be asleep: there is something new for them beside tickets."""
        self._permit(count)

    def _permit(self, count: int) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it holds far more permits than the board has places
            os.write(self._permits, b"." * count)


class Claims(Board):
    """A worker's side: takes tickets, one at a time for all its lanes."""

    def __init__(self, arena: Arena, control: Control, permits: int) -> None:
        super().__init__(arena, control)
        self._permits = permits
        self._looking = threading.Lock()  # the kernel's locks do not tell the threads of a process apart
        self._next = 0  # what is below was taken, by whoever

    def take(self) -> tuple[int, bytes] | None:
        """Block for a permit, and take a ticket: its number and record. No record: the permit was one too many.

        None when there will be no more. Raises BlockingIOError where lanes are coroutines and there is none now.
        """
        if not os.read(self._permits, 1):
            return None
        number = self._claim()
        if number is None:
            return NOBODY, b""
        begin = self._entry(number) + 1
        return number, self._cells[begin : begin + RECORD // 8].tobytes()

    def release(self, number: int) -> None:
        """The ticket was answered."""
        self._unlock(number)

    def _claim(self) -> int | None:
        with self._looking:
            # Where another process got to, all below is taken: nobody passes a ticket that is open and not locked.
            number = max(self._next, self._cells[NEXT], self._cells[HEAD] - self._entries)
            # The head is looked at each time. A permit is given up only where nothing hangs now: another worker may
            # have used that of a newer ticket for the one that this permit was for.
            while number < self._cells[HEAD]:
                state = self._cells[self._entry(number)]
                if abs(state) <= number:  # an older ticket's: some processors show the new head before what it counts
                    continue
                if state == number + 1 and self._try(number):
                    self._next = self._cells[NEXT] = number + 1
                    return number
                number += 1
            self._next = self._cells[NEXT] = number
        return None

    def _try(self, number: int) -> bool:
        if not self._lock(number):
            return False
        if self._is_open(number):  # look again: it may have been taken and answered since
            self._shut(number)
            return True
        self._unlock(number)
        return False
