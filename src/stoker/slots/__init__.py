"""Slots: reused anonymous shared memory, each holding one batch.

`arena`  one sparse memory file for all slots of a loader, mapped by every process that works for it; or private memory
`pool`   which slot is free; leases that end when the last view of a batch dies
"""

from stoker.slots.arena import Arena, PrivateArena
from stoker.slots.pool import SlotPool, own_fork

__all__ = ["Arena", "PrivateArena", "SlotPool", "own_fork"]
