"""One round of a training run on several ranks, to be killed: test_elastic_ranks.py starts it in a session of its own.

    python elastic_ranks.py LOG WORLD PROCESSES LANES PAUSE_AT

Every rank takes its part of each step, and all of them gather what they saw. Rank 0 appends it to the log, with the
loader's state in the same line: the log is checkpoint and diary in one, and one write, so a kill never comes between
the two. Having logged step PAUSE_AT, rank 0 says so and waits for ever, with the other ranks in the middle of the next
step and batches prefetched; -1 goes on to the end of the epoch.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from tests.ranks import fork_ranks
from torch.utils.data import Dataset

import stoker

SAMPLES = 305  # twelve steps, and one of 17 samples: for three ranks, one short of dividing
PER_STEP = 24
SEED = 11


class Marked(Dataset[Any]):
    """A sample says which it is, and what its own generator gave it."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, stoker.rng().random()], dtype=torch.float64)


@dataclass(frozen=True)
class Round:
    """What one start of the run is told."""

    log: Path
    world: int
    workers: stoker.Workers
    pause_at: int


def make_loader(world: int, **more: Any) -> Any:
    """The loader of a rank: the step has 24 samples, however many ranks share it."""
    return stoker.DataLoader(Marked(), batch_size=PER_STEP // world, shuffle=True, seed=SEED, **more)


def read_log(log: Path) -> list[dict[str, Any]]:
    """The steps so far; a line that was cut short by a kill does not count."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def train(rank: int, told: Round) -> None:
    """One rank, from joining the others to the end of the epoch."""
    store = torch.distributed.FileStore(f"{told.log}.store-of-{told.world}", told.world)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=told.world)
    loader, earlier = make_loader(told.world, workers=told.workers), read_log(told.log)
    if earlier:
        loader.load_state_dict(earlier[-1]["state"])
    for step, batch in enumerate(loader, start=len(earlier)):
        parts = [torch.empty_like(batch) for _ in range(told.world)]
        torch.distributed.all_gather(parts, batch)
        if rank == 0:
            seen = torch.cat(parts).tolist()
            _append(told.log, {"step": step, "world": told.world, "seen": seen, "state": loader.state_dict()})
            if step == told.pause_at:
                os.write(1, b"paused\n")
                os.read(0, 1)  # nobody will ever write
    torch.distributed.destroy_process_group()


def _append(log: Path, entry: dict[str, Any]) -> None:
    with log.open("ab", buffering=0) as file:
        file.write(json.dumps(entry).encode() + b"\n")


def main() -> int:
    """Fork the ranks and wait for them; 0 if all went well."""
    log, world, processes, lanes, pause_at = sys.argv[1:]
    told = Round(Path(log), int(world), stoker.Workers(int(processes), int(lanes)), int(pause_at))
    return fork_ranks(told.world, lambda rank: train(rank, told))


if __name__ == "__main__":
    sys.exit(main())
