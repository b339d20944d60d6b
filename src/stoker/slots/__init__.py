"""Slots: reused anonymous shared memory, each holding one batch.

`arena`  one sparse memory file for all slots of a loader, mapped by every process that works for it; or private memory
`mapping`  a piece of that memory as this process sees it, found again from any address in it
`streaming`  copies of large rows past the caches
`pool`   which slot is free; leases that end when the last view of a batch dies
"""

from stoker.slots.arena import Arena, PrivateArena
from stoker.slots.mapping import Region, region_of
from stoker.slots.pool import SlotPool
from stoker.slots.streaming import pays_to_stream, stream_rows

__all__ = ["Arena", "PrivateArena", "Region", "SlotPool", "pays_to_stream", "region_of", "stream_rows"]
