"""Who loads: threads of the training process, or processes × lanes.

`threads`, `processes`  the two kinds of crew, with the same few methods (`stoker.contracts.Crew`)
`lanes`      how tickets become reports inside one process: a loop, several threads, or coroutines
`pipes`      the descriptors between them;  `recovery`  deaths, and who is to blame
`wire`       tickets and reports as fixed-size records in pipes
`main`       what a worker process does from its first line to its last
`identity`   worker ids and seeds, as torch documents them
`parcel`     a dataset serialised once for all workers
"""

from stoker.workers.processes import ProcessCrew
from stoker.workers.threads import ThreadCrew

__all__ = ["ProcessCrew", "ThreadCrew"]
