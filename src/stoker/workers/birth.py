"""The first moments of a worker that is not forked: it leaves if the training process dies while it is still importing.

A spawned worker first imports the main module, then whatever the dataset needs: seconds, and many of them on a crowded
machine. Only then does it come to its own first line (`worker_main`) and begin to watch its parent. Before all that the
standard library unpickles the process's name; so the name brings the watching with it. What runs then can rely on
nothing but the standard library: paths have not been set up yet.
"""

from __future__ import annotations

from typing import Any

_WATCH = """
import os, select, threading

def _stay_while_it_lives(pid):
    try:
        poll = select.poll()
        poll.register(os.pidfd_open(pid), select.POLLIN)
    except ProcessLookupError:
        os._exit(1)
    except (AttributeError, OSError):
        return  # no process descriptors here
    poll.poll()
    os._exit(1)

if not any(thread.name == "stoker-birth" for thread in threading.enumerate()):
    threading.Thread(target=_stay_while_it_lives, args=({pid},), name="stoker-birth", daemon=True).start()
"""


class WatchfulName(str):
    """The name of a process; unpickled, it is a plain text, and a thread waits for the end of process `owner_pid`."""

    __slots__ = ("owner_pid",)
    owner_pid: int

    def __reduce__(self) -> tuple[Any, ...]:
        watch = _WATCH.format(pid=self.owner_pid)
        return eval, (f"(exec({watch!r}, {{}}), {str(self)!r})[1]",)


def watchful_name(name: str, owner_pid: int) -> WatchfulName:
    watchful = WatchfulName(name)
    watchful.owner_pid = owner_pid
    return watchful
