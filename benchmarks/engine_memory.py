"""The memory case: a dataset that holds two million strings, eight workers that touch all of them.

A plain Python list is shared between forked workers only until it is read: reading counts references, counting
writes, writing copies the page. So memory is measured after every worker has read every string, as proportional set
size (a page used by n processes counts as 1/n for each), summed over the training process and all its descendants.
Each figure comes from a process of its own, started from this file, because memory that an earlier case left behind
would count too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from engine_bench import Bench, Result, ratio, take_turns

LOADED = 512  # samples loaded before measuring: enough for every worker to have worked


class Names:
    """Samples made from a sequence of strings; a label is the length of the name."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def __len__(self) -> int:
        return LOADED

    def __getitem__(self, index: int) -> int:
        return len(self.names[index])

    def touch_all(self) -> int:
        """Read every string, as a search for a prefix or an epoch of many days would."""
        return sum(len(name) for name in self.names)


def strings(bench: Bench) -> Result:
    """A large list in the dataset: does every worker keep a copy of it?"""
    count = bench.sized(2_000_000, 200_000)
    turns = {
        f"{loader}, {workers} workers": partial(_ask, loader, workers, count)
        for loader in ("torch", "stoker")
        for workers in (0, 8)
    }
    pss = take_turns(bench, turns)
    found = ratio(
        "a list of 2 million strings, 8 workers touching all: total PSS against one process",
        "at most",
        1.3,
        pss["stoker, 8 workers"],
        pss["stoker, 0 workers"],
        _mb,
        of="one process",
    )
    torch_ratio = ratio("", "at most", 0, pss["torch, 8 workers"], pss["torch, 0 workers"], _mb)
    detail = f"{found.detail}; torch with a list {torch_ratio.measured:.1f} ×"
    settings = f"{count:,} strings of about 40 characters; Stoker with SharedList, torch with a plain list"
    series = {f"{name}, PSS in bytes": values for name, values in pss.items()}
    return Result(settings, (replace(found, detail=detail),), series)


def _mb(value: float) -> str:
    return f"{value / 1e6:,.0f} MB"


def _ask(loader: str, workers: int, count: int) -> float:
    command = [sys.executable, __file__, loader, str(workers), str(count)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(answer.stdout)["pss_bytes"])


def _touch_all(_worker: int) -> None:
    from torch.utils.data import get_worker_info

    info: Any = get_worker_info()
    info.dataset.touch_all()


def _load(loader: str, workers: int, count: int) -> int:
    """Load with this many workers, everything touched, and count the memory while they are all there."""
    names = [f"train/n{number % 1000:08d}/photo_{number:012d}.jpeg" for number in range(count)]
    batches = _loader(loader, names, workers)
    del names
    if workers == 0:
        batches.dataset.touch_all()
    if sum(len(batch) for batch in batches) != LOADED:
        raise RuntimeError(f"{loader} did not deliver {LOADED} samples: its memory says nothing")
    return total_pss_bytes(least_children=workers)


def _loader(loader: str, names: list[str], workers: int) -> Any:
    persistent: dict[str, Any] = {"persistent_workers": True, "worker_init_fn": _touch_all} if workers else {}
    if loader == "stoker":
        import stoker

        return stoker.DataLoader(Names(stoker.SharedList(names)), batch_size=8, num_workers=workers, **persistent)
    from torch.utils.data import DataLoader

    return DataLoader(Names(names), batch_size=8, num_workers=workers, **persistent)  # type: ignore[arg-type]


def total_pss_bytes(least_children: int) -> int:
    """Proportional set size of this process and all that descend from it, who must be at least so many."""
    import psutil

    me = psutil.Process()
    children = me.children(recursive=True)
    if len(children) < least_children:
        raise RuntimeError(f"{len(children)} processes are left of {least_children} workers: too few to measure")
    return sum(process.memory_full_info().pss for process in (me, *children))


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # eight workers on few cores are meant
    json.dump({"pss_bytes": _load(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))}, sys.stdout)
