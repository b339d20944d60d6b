"""The filler as a crew of one: started, woken, buried.

A thread cannot be ended from outside, so whoever waits for it is woken instead. A process is killed together with its
own children (a loader's workers notice that the filler is gone, but torch's take seconds to).
"""

from __future__ import annotations

import signal
from typing import Any

import torch.multiprocessing

from stoker.contracts import Crew
from stoker.errors import WorkerDied, describe_exit
from stoker.prefetching.below import kill_below
from stoker.prefetching.filling import SourceJob
from stoker.prefetching.options import PrefetchOptions
from stoker.workers import ProcessCrew, ThreadCrew
from stoker.workers.ends import end_now, has_ended
from stoker.workers.processes import Staff


def start(job: SourceJob, options: PrefetchOptions, arena: Any) -> Crew:
    """Start the filler."""
    if options.by == "thread":
        return ThreadCrew(job, arena, lanes=1)
    context = torch.multiprocessing.get_context(options.start_method)
    try:
        return ProcessCrew(job, arena, Staff(processes=1, lanes=1, context=context, base_seed=0))
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note('For stoker.prefetch: by="thread" needs no pickling at all, nor does start_method="fork".')
        raise


def interrupt(crew: Crew) -> None:
    """Wake whoever waits for the filler; a process does not finish what it is doing."""
    for worker in crew.workers:
        if not has_ended(worker):
            kill_below(worker.pid)
            end_now(worker)
    if isinstance(crew, ThreadCrew):
        crew.wake()


def was_closed() -> RuntimeError:
    return RuntimeError("this was closed: make a new one to go over the source again")


def interrupted() -> RuntimeError:
    return RuntimeError("this pass was interrupted while it took a batch: begin a new one with iter()")


def obituary(death: WorkerDied, pid: int | None, steps: int) -> WorkerDied:
    """The death of a worker, told as that of a filler."""
    exit_code: int | None = getattr(death, "exit_code", None)
    return WorkerDied(
        f"the process that loads ahead (pid {pid}) {describe_exit(exit_code)}, after {steps} batches were "
        f"handed over. {_likely_cause(exit_code)} A new iter() starts a new process.",
        pid=pid,
        exit_code=exit_code,
    )


def _likely_cause(exit_code: int | None) -> str:
    if exit_code == -signal.SIGKILL:
        return (
            "A kill without a traceback is usually the kernel's out-of-memory killer: try fewer batches ahead, or "
            "max_bytes."
        )
    return (
        "Something in the source ended it (sys.exit, os._exit, a crash in native code), or a signal from outside: walk "
        'the source itself, or use by="thread", to see which.'
    )
