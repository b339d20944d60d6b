"""Which slots are free, and leases: a slot is free again when the last view of its batch dies.

                 take()                       lease()                    the last view dies
        free ──────────────► under way ──────────────────► leased ───────────────────────────┐
         ▲                       │ give_back()                                               │
         └───────────────────────┴───────────────────────────────────────────────────────────┘

A lease is one NumPy array over the slot's rows, the owner: every view of the batch (arrays, tensors made from them,
slices of those) holds it alive, wherever the view went. The owner's weak reference calls back when it dies, from
whatever thread dropped the last view, also in the middle of `take`; so freeing is one append to a deque, which is
atomic, and nothing else. Users who keep many batches would need many slots: past `most_leased`, or past the byte
budget, `lease` says no and the batch is copied into memory of its own, so the number of slots stays bounded.

After a fork the child sees the same shared pages: a batch that it holds must not change when the parent drops its own
reference. So slots that are leased while the process forks are retired instead of being used again.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable

from stoker.contracts import Bytes
from stoker.slots.arena import Arena


class SlotPool:
    """Hands out slots of an arena, the most recently freed first: its pages and caches are warm."""

    def __init__(self, arena: Arena, most_leased: int = 16, most_leased_bytes: int = 2**30) -> None:
        self.arena = arena
        self._free: deque[int] = deque()
        self._made = 0
        self._most_leased = most_leased
        self._most_leased_bytes = most_leased_bytes
        # slot -> (weak reference to the owner, bytes); a slot is in exactly one of: _free, _leased, under way, retired
        self._leased: dict[int, tuple[weakref.ref[Bytes], int]] = {}
        self._retired: set[int] = set()
        _POOLS.add(self)

    @property
    def made(self) -> int:
        """How many slots exist."""
        return self._made

    @property
    def leased(self) -> int:
        """How many slots are held by batches that the user still has."""
        return len(self._leased)

    def take(self) -> int:
        """A free slot; a new one when none is free."""
        try:
            return self._free.pop()
        except IndexError:
            slot = self._made
            self._made += 1
            self.arena.reserve(self._made)
            return slot

    def give_back(self, slot: int) -> None:
        self._free.append(slot)

    def lease(self, slot: int, size_bytes: int) -> Bytes | None:
        """The batch's memory, its slot being free when the last view dies; None when too much is leased already."""
        held = sum(size for _, size in list(self._leased.values()))
        if len(self._leased) >= self._most_leased or held + size_bytes > self._most_leased_bytes + size_bytes * 2:
            return None
        owner = self.arena.rows(slot, size_bytes)
        self._leased[slot] = (weakref.ref(owner, self._returner(slot)), size_bytes)
        return owner

    def retire_leased(self) -> None:
        """Never use again what is leased now: a forked child may hold views of it."""
        self._retired.update(list(self._leased))

    def _returner(self, slot: int) -> Callable[[object], None]:
        # Bound to the containers, not to the pool: the pool may be gone while the user still holds a batch.
        leased, retired, free = self._leased, self._retired, self._free

        def put_back(_: object) -> None:
            leased.pop(slot, None)
            if slot not in retired:
                free.append(slot)

        return put_back


_POOLS: weakref.WeakSet[SlotPool] = weakref.WeakSet()


def _retire_in_parent() -> None:
    for pool in list(_POOLS):
        pool.retire_leased()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_retire_in_parent)
