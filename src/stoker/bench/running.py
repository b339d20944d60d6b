"""Loaders at work on this machine now: their pages, read and made sense of.

A page is a small file that a running loader keeps (`stoker.watch.page`). What stands in it came from another process,
so nothing is believed that was not looked at: a page that is not what it should be is passed over, one whose process
is gone, or whose process number belongs to another one by now, is removed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.bench.process_tree import and_all_below, proportional_bytes
from stoker.extras import brought_by
from stoker.watch.kernel import began
from stoker.watch.page import folders, is_own, remove_stale

with brought_by("tools"):
    import psutil

_LARGEST_PAGE = 65536


@dataclass(frozen=True)
class Running:
    """A loader at work, as it was when it last wrote its page."""

    pid: int
    loader: int  # number of the loader in its process
    dataset: str
    workers: int
    lanes: int
    steps: int
    samples_per_s: float  # of the latest second or so
    wait_share: float  # likewise
    ready: int
    restarts: int
    age_s: float  # since the page was written
    command: str
    memory_bytes: int  # proportional set size of the process and all below it
    auto: str = ""  # what "auto" decided last; empty where it does not decide


def running(now: Callable[[], float] = time.time) -> list[Running]:
    """All loaders of this user that keep a page, in the order of their processes."""
    found = [one for folder in folders() if is_own(folder) for one in _in_folder(folder, now())]
    return sorted(found, key=lambda one: (one.pid, one.loader))


def _in_folder(folder: Path, now_s: float) -> list[Running]:
    remove_stale(folder)
    seen = [_read(path, now_s) for path in folder.glob("*-*.json")]
    return [one for one in seen if one is not None]


def _read(path: Path, now_s: float) -> Running | None:
    try:
        with path.open("rb") as file:
            page = json.loads(file.read(_LARGEST_PAGE))
        if not _is_same_process(page):
            path.unlink(missing_ok=True)
            return None
        return _made_sense_of(page, now_s)
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return None  # gone meanwhile, or not a page


def _is_same_process(page: dict[str, Any]) -> bool:
    return began(int(page["pid"])) == float(page["process_began"])


def _made_sense_of(page: dict[str, Any], now_s: float) -> Running:
    process = psutil.Process(int(page["pid"]))
    return Running(
        pid=process.pid,
        loader=int(page["loader"]),
        dataset=str(page["dataset"]),
        workers=int(page["workers"]),
        lanes=int(page["lanes"]),
        steps=int(page["steps"]),
        samples_per_s=float(page["samples_per_s"]),
        wait_share=float(page["wait_share"]),
        ready=int(page["ready"]),
        restarts=int(page["restarts"]),
        auto=str(page.get("auto", "")),
        age_s=max(0.0, now_s - float(page["written"])),
        command=_command(process),
        memory_bytes=sum(proportional_bytes(one) for one in and_all_below(process)),
    )


def _command(process: psutil.Process) -> str:
    """What was started, the way a person would say it: the script, not the interpreter."""
    words = process.cmdline()
    scripts = [word for word in words[1:] if not word.startswith("-")]
    return Path(scripts[0]).name if scripts else process.name()
