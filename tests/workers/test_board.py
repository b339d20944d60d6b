"""The board: every ticket is taken once, by whoever is free, and what a dead worker had is known without a clock."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.slots import Arena
from stoker.workers.board import Claims, Publisher
from stoker.workers.control import Control
from stoker.workers.wire import RECORD

ROOM = Control(seats=4, lanes=1)


class Bench:
    """A board, and processes that take from it when they are told to."""

    def __init__(self) -> None:
        self.arena = Arena(ROOM.size_bytes, outboxes=4)
        self.permits, writer = os.pipe()
        os.set_blocking(writer, False)
        self._writer = writer
        self.publisher = Publisher(self.arena, ROOM, writer)
        self.takers: list[Any] = []

    def hang_up(self, *orders: int) -> None:
        for order in orders:
            self.publisher.submit((order, 0), _record(order), 0)
        self.publisher.flush()

    def taker(self) -> Taker:
        self.takers.append(Taker(self))
        return self.takers[-1]

    def close(self) -> None:
        for taker in self.takers:
            taker.kill()
        os.close(self.permits)
        os.close(self._writer)
        self.arena.close()


class Taker:
    """A process that takes one ticket for each byte it is sent, and tells its order."""

    def __init__(self, bench: Bench) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            claims, taken = Claims(bench.arena, ROOM, bench.permits), []
            while word := os.read(orders, 1):
                if word == b"t":
                    got = claims.take()
                    assert got is not None
                    taken.append(got[0])
                    os.write(answers, int.from_bytes(got[1][:8], "little").to_bytes(8, "little"))
                else:
                    claims.release(taken.pop(0))
                    os.write(answers, bytes(8))
            os._exit(0)
        os.close(orders)
        os.close(answers)

    def take(self) -> int:
        return self._say(b"t")

    def release(self) -> None:
        self._say(b"r")

    def kill(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._orders)
            os.close(self._answers)
            self.pid = 0

    def _say(self, word: bytes) -> int:
        os.write(self._orders, word)
        return int.from_bytes(os.read(self._answers, 8), "little")


def _record(order: int) -> bytes:
    return order.to_bytes(8, "little") + bytes(RECORD - 8)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_tickets_are_taken_once_each_in_turn_by_whoever_asks(bench: Bench) -> None:
    first, second = bench.taker(), bench.taker()
    bench.hang_up(*range(10, 16))
    assert [first.take(), second.take(), second.take(), first.take(), second.take(), first.take()] == list(
        range(10, 16)
    )


def test_what_a_dead_taker_had_is_lost_and_what_a_living_one_has_is_not(bench: Bench) -> None:
    dead, living = bench.taker(), bench.taker()
    bench.hang_up(1, 2, 3, 4)
    assert (dead.take(), living.take()) == (1, 2)
    dead.kill()
    assert bench.publisher.lost_with(0) == {(1, 0): True, (3, 0): False, (4, 0): False}


def test_a_taker_that_is_stopped_keeps_its_ticket_for_as_long_as_it_likes(bench: Bench) -> None:
    stopped, dead = bench.taker(), bench.taker()
    bench.hang_up(1, 2)
    assert (stopped.take(), dead.take()) == (1, 2)
    os.kill(stopped.pid, signal.SIGSTOP)
    dead.kill()
    assert bench.publisher.lost_with(0) == {(2, 0): True}
    assert bench.publisher.lost_with(0) == {}
    stopped.kill()
    assert bench.publisher.lost_with(0) == {(1, 0): True}


def test_a_ticket_that_was_taken_down_cannot_be_taken_under_its_old_number(bench: Bench) -> None:
    bench.hang_up(1, 2)
    assert list(bench.publisher.lost_with(0)) == [(1, 0), (2, 0)]
    bench.hang_up(3)
    assert bench.taker().take() == 3  # by the first of three permits


def test_a_permit_that_is_lost_with_a_worker_loses_no_ticket(bench: Bench) -> None:
    bench.hang_up(1)
    assert os.read(bench.permits, 1) == b"."  # a worker has died with it in its hand
    assert bench.publisher.lost_with(0) == {(1, 0): False}
    bench.hang_up(1)
    assert bench.taker().take() == 1


def test_the_board_goes_round_and_holds_back_what_has_no_room(bench: Bench) -> None:
    taker, entries = bench.taker(), ROOM.entries
    bench.hang_up(*range(2 * entries))
    for order in range(2 * entries):
        assert taker.take() == order
        taker.release()
        bench.publisher.answered((order, 0))
        bench.publisher.flush()
    bench.hang_up(7)
    assert taker.take() == 7


def test_a_taker_that_is_a_whole_round_behind_takes_what_hangs_now(bench: Bench) -> None:
    quick, late = bench.taker(), bench.taker()
    bench.hang_up(0, 1)
    assert late.take() == 0
    for order in range(2, 2 * ROOM.entries):
        bench.hang_up(order)
        assert quick.take() == order - 1
        quick.release()
        bench.publisher.answered((order - 1, 0))
        if order == 2:
            late.release()
            bench.publisher.answered((0, 0))
    assert late.take() == 2 * ROOM.entries - 1


def test_no_permit_is_wasted_while_a_ticket_hangs(bench: Bench) -> None:
    """Four takers against a publisher that hangs up one or two at a time: a lost permit would end in a hang."""
    reports, writer = os.pipe()
    pids = [_answering(bench, writer) for _ in range(4)]
    answered, count = 0, 4000
    bench.hang_up(0, 1, 2)
    hung = 3
    while answered < count:
        for at in range(0, len(orders := os.read(reports, 8 * 64)), 8):
            bench.publisher.answered((int.from_bytes(orders[at : at + 8], "little"), 0))
            answered += 1
        more = range(hung, min(count, answered + 3))
        bench.hang_up(*more)
        hung = max(hung, more.stop)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(reports)
    os.close(writer)
    assert answered == hung == count


def _answering(bench: Bench, writer: int) -> int:
    """A process that takes, answers and releases for ever."""
    pid = os.fork()
    if pid == 0:
        claims = Claims(bench.arena, ROOM, bench.permits)
        while (taken := claims.take()) is not None:
            os.write(writer, taken[1][:8])
            claims.release(taken[0])
        os._exit(0)
    return pid
