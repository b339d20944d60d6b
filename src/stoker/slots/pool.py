"""Which slots are free, and leases: a slot is free again when the last view of its batch dies.

                 take()                       lease()                    the last view dies
        free ──────────────► under way ──────────────────► leased ───────────────────────────┐
         ▲                       │ give_back()                                               │
         └───────────────────────┴───────────────────────────────────────────────────────────┘

A lease is one NumPy array over the slot's rows, the owner: every view of the batch (arrays, tensors made from them,
slices of those) holds it alive, wherever the view went. The owner's weak reference calls back when it dies, from
whatever thread dropped the last view, also in the middle of `take`; so all that happens then is that the reference
itself is appended to a deque, by the deque's own method: that is atomic, and no line of Python runs in which a Ctrl-C
could arrive and be swallowed. The pool looks into the deque when it next needs a slot.

Users who keep many batches would need many slots: past `most_leased`, or past the byte budget, `lease` says no and the
batch is copied into memory of its own, so the number of slots stays bounded.

After a fork the child sees the same shared pages: a batch that it holds must not change when the parent drops its own
reference. So slots that are leased while the process forks are retired, and used again only when every process that
was born since and maps the memory is gone. That holds for forks of Stoker's own workers too: a dataset may keep batches
(a replay buffer), and a worker that is forked then has them. Only the loader's workers from before the fork are known
to hold none of them.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from stoker.contracts import Bytes
from stoker.slots.arena import Arena, PrivateArena

_FIRST_PATIENCE = 2  # retired slots to put up with before looking whether anybody still maps them


class SlotPool:
    """Hands out slots of an arena, the most recently freed first: its pages and caches are warm."""

    def __init__(self, arena: Arena | PrivateArena, most_leased: int = 16, most_leased_bytes: int = 2**30) -> None:
        self.arena = arena
        self._free: deque[int] = deque()
        self._made = 0
        self._patience = _FIRST_PATIENCE
        self._most_leased = most_leased
        self._most_leased_bytes = most_leased_bytes
        # slot -> its lease; a slot is in exactly one of: _free, _leased, under way, _given_up
        self._leased: dict[int, _Lease] = {}
        self._ended: deque[Any] = deque()  # leases whose last view has died, not looked at yet
        # slot -> the loader's own workers at the time when it was retired: those born later may hold its batch
        self._retired: dict[int, set[Any]] = {}
        self._given_up: deque[int] = deque()  # retired, and the last view in this process has died
        self.own_workers: Callable[[], Iterable[Any]] = lambda: ()  # processes that write into the slots
        _POOLS.add(self)

    @property
    def made(self) -> int:
        """How many slots exist."""
        return self._made

    @property
    def leased(self) -> int:
        """How many slots are held by batches that the user still has. Changes nothing: any thread may ask."""
        return max(0, len(self._leased) - len(self._ended))

    @property
    def in_use(self) -> int:
        """How many slots are under way or leased, or were retired and wait for their turn."""
        return max(0, self._made - len(self._free) - len(self._ended))

    def take(self) -> int:
        """A free slot; a new one when none is free."""
        self._take_back()
        if len(self._given_up) >= self._patience:
            self._reclaim()
        try:
            return self._free.pop()
        except IndexError:
            slot = self._made
            self._made += 1
            self.arena.reserve(self._made)
            return slot

    def _reclaim(self) -> None:
        """Use retired slots again if the children that might hold them are gone; else look later, and rarer."""
        mapping, own = self.arena.pids_that_map(), set(self.own_workers())
        for _ in range(len(self._given_up)):
            slot = self._given_up.popleft()
            harmless = {worker.pid for worker in self._retired[slot] & own}
            if mapping is None or mapping - harmless:
                self._given_up.append(slot)
            else:
                del self._retired[slot]
                self._free.append(slot)
        self._patience = max(_FIRST_PATIENCE, 2 * len(self._given_up))

    def give_back(self, slot: int) -> None:
        self._take_back()  # what was freed before lies below it
        self._free.append(slot)

    def lease(self, slot: int, size_bytes: int) -> Bytes | None:
        """The batch's memory, its slot being free when the last view dies; None when too much is leased already."""
        self._take_back()
        held = sum(lease.size_bytes for lease in self._leased.values())
        if len(self._leased) >= self._most_leased or held + size_bytes > self._most_leased_bytes + size_bytes * 2:
            return None
        owner = self.arena.rows(slot, size_bytes)
        self._leased[slot] = _lease(owner, self._ended.append, slot, size_bytes)
        return owner

    def retire_leased(self) -> None:
        """Do not use again what is leased now as long as a child that was just forked may hold views of it."""
        self._take_back()
        if self.arena.is_shared:
            own = set(self.own_workers())
            for slot in list(self._leased):
                self._retired[slot] = self._retired.get(slot, own) & own

    def _take_back(self) -> None:
        """Free the slots of leases that have ended."""
        while self._ended:
            slot = self._ended.popleft().slot
            del self._leased[slot]
            (self._given_up if slot in self._retired else self._free).append(slot)


class _Lease(weakref.ref[Bytes]):
    """A weak reference to a batch's memory that knows its slot."""

    __slots__ = ("size_bytes", "slot")
    slot: int
    size_bytes: int


def _lease(owner: Bytes, ended: Callable[[Any], None], slot: int, size_bytes: int) -> _Lease:
    lease = _Lease(owner, ended)
    lease.slot, lease.size_bytes = slot, size_bytes
    return lease


_POOLS: weakref.WeakSet[SlotPool] = weakref.WeakSet()


def _retire_all() -> None:
    for pool in list(_POOLS):
        pool.retire_leased()


if hasattr(os, "register_at_fork"):  # before: another thread may drop the last view in the middle of the fork
    os.register_at_fork(before=_retire_all, after_in_parent=_retire_all)
