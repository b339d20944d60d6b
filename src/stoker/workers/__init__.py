"""Who loads: threads of the training process, or processes × lanes.

`threads`, `processes`  the two kinds of crew, with the same few methods (`stoker.contracts.Crew`)
`nobody`     a crew without anybody
`lanes`      how tickets become reports inside one process: a loop, several threads, or coroutines
`tickets`    how tickets get to workers: a pipe each, or for whoever is free;  `board`  where those hang
`wire`       tickets and reports as records of a fixed size;  `pipes`  what they travel through
`control`    the few numbers that all processes see
`seats`      the processes, started and started again;  `ends`  how one ends, and letting it go
`handed`     the tickets that are not answered yet
`recovery`   what happens after a death;  `deaths`  who is to blame;  `suspects`  finding it out
`birth`      the first moments of a worker that is not forked
`main`       what a worker process does from its first line to its last
`identity`   worker ids and seeds, as torch documents them
`parcel`     a dataset serialised once for all workers
"""

from stoker.workers.nobody import NoCrew
from stoker.workers.processes import ProcessCrew
from stoker.workers.threads import ThreadCrew

__all__ = ["NoCrew", "ProcessCrew", "ThreadCrew"]
