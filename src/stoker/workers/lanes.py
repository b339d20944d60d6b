"""Inside one process: how tickets become reports.

One lane is a plain loop in the calling thread. Further lanes are threads, each with the same loop: whoever is free
takes the next ticket. For datasets that are awaited, lanes are coroutines of one event loop. All three get their
tickets from a `take` that blocks (or is awaited) and gives None when there will be no more, and put their reports
into a `send`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from stoker.contracts import Answer, Job, MapSlot, Report, Ticket

SlotOf = Callable[[int], MapSlot]


@dataclass(frozen=True)
class Desk:
    """What a lane works with."""

    take: Callable[[int], Ticket | None]
    send: Callable[[int, Ticket, Report], None]
    slot: SlotOf
    cancelled: Callable[[Ticket], bool]
    end: Callable[[BaseException], None] = lambda error: None  # a lane cannot go on
    marker: Callable[[int], Callable[[int], None] | None] = lambda lane: None  # notes what a lane is loading


def serve(job: Job, desk: Desk, lane: int = 0) -> None:
    """Work until there are no more tickets."""
    job = job.for_lane(desk.marker(lane))
    while (ticket := desk.take(lane)) is not None:
        began_ns, skip = time.perf_counter_ns(), desk.cancelled(ticket)
        report = cancelled_report(ticket) if skip else job.run(ticket, desk.slot(ticket.slot))
        report.began_ns, report.lane = began_ns, lane
        desk.send(lane, ticket, report)
        del ticket, report  # a lane that waits must not hold the last batch's samples


def serve_in_threads(job: Job, desk: Desk, lanes: int, name: str) -> list[threading.Thread]:
    """Start a thread a lane; they end when there are no more tickets."""
    return [serve_in_thread(job, desk, lane, name) for lane in range(lanes)]


def serve_in_thread(job: Job, desk: Desk, lane: int, name: str) -> threading.Thread:
    """Start one more lane."""
    thread = threading.Thread(target=_serve_or_end, args=(job, desk, lane), name=f"{name}-lane-{lane}", daemon=True)
    thread.start()
    return thread


def _serve_or_end(job: Job, desk: Desk, lane: int) -> None:
    """A thread's lane: what ends a lane (SystemExit in a sample) ends the whole worker, as it does with one lane."""
    try:
        serve(job, desk, lane)
    except BaseException as error:
        desk.end(error)
        raise


async def serve_async(job: Job, desk: Desk, lanes: int, take: Callable[[], Awaitable[Ticket | None]]) -> None:
    """Work with `lanes` coroutines until there are no more tickets."""
    job.limit(lanes)
    turn = asyncio.Lock()  # one lane at a time waits for a ticket, so that none is lost between two waiters

    async def lane_loop(lane: int) -> None:
        while True:
            async with turn:
                ticket = await take()
            if ticket is None:
                return
            began_ns, skip = time.perf_counter_ns(), desk.cancelled(ticket)
            report = cancelled_report(ticket) if skip else await job.run_async(ticket, desk.slot(ticket.slot))
            report.began_ns, report.lane = began_ns, lane
            desk.send(lane, ticket, report)
            del ticket, report  # else an exception in it would keep its traceback, and so the iterator, alive

    await asyncio.gather(*map(lane_loop, range(lanes)))


def cancelled_report(ticket: Ticket) -> Report:
    return Report(ticket.number, Answer.CANCELLED, ticket.start, ticket.stop, worker=0)


def slots_of(arena: Any) -> SlotOf:
    """Maps slots of an arena when a job asks for their memory."""

    def slot(number: int) -> MapSlot:
        return lambda size_bytes: arena.rows(number, size_bytes)

    return slot
