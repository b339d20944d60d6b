"""What accelerate makes of loaders on two ranks: test_accelerate.py runs this as a program, under torchrun.

    torchrun --nproc-per-node 2 accelerate_ranks.py FOLDER

Each rank writes FOLDER/NAME.RANK.json: for every batch its samples, what gather_for_metrics made of them over the
ranks, and whether accelerate knew that it was the last.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from examples import train_accelerate
from torch import nn

import stoker
from stoker.integrations.accelerate import prepare

SAMPLES = torch.arange(21)  # two ranks take 8 in a step: two full steps, and one of 5, which is filled up to 6


def loader(**arguments: Any) -> Any:
    return stoker.DataLoader(SAMPLES, batch_size=4, shuffle=True, **arguments)


def main(folder: Path) -> None:
    accelerator = Accelerator(cpu=True)
    for name, made in {
        "prepared": prepare(accelerator, loader(seed=7)),
        "passed through": accelerator.prepare(loader(seed=7)),
        "taken over": accelerator.prepare(loader()),
    }.items():
        seen = [_entry(accelerator, batch) for _ in range(2) for batch in made]
        _write(folder / name, accelerator, {"type": type(made).__module__, "seen": seen})
    _write(folder / "refused", accelerator, {"error": _refusal(accelerator)})
    _write(folder / "resumed", accelerator, _resume(folder / "saved"))
    _example(folder)


def _entry(accelerator: Any, batch: torch.Tensor) -> list[Any]:
    return [
        batch.tolist(),
        accelerator.gather_for_metrics(batch).tolist(),
        accelerator.gradient_state.end_of_dataloader,
    ]


def _refusal(accelerator: Any) -> str:
    try:
        prepare(accelerator, loader())
    except ValueError as error:
        return str(error)
    return ""


def _resume(saved: Path) -> dict[str, Any]:
    """Save in the middle of the second epoch, and go on in a new loader."""
    first = Accelerator(cpu=True)
    net, loading = first.prepare(nn.Linear(1, 1)), prepare(first, loader(seed=7))
    list(loading)
    batches = iter(loading)
    next(batches)
    first.save_state(str(saved))
    expected = [batch.tolist() for batch in batches]
    second = Accelerator(cpu=True)
    net, resumed = second.prepare(nn.Linear(1, 1)), prepare(second, loader(seed=7, num_workers=1))
    second.load_state(str(saved))
    del net
    return {"expected": expected, "seen": [batch.tolist() for batch in resumed]}


def _example(folder: Path) -> None:
    """The example, once through, and once stopped and started again."""
    small = ["--cpu", "--samples", "80", "--batch-size", "8", "--workers", "0", "--every", "3"]
    again = [*small, "--checkpoints", str(folder / "run"), "--curve", str(folder / "stopped.jsonl")]
    for arguments in (
        [*small, "--curve", str(folder / "whole.jsonl")],
        [*again, "--stop", "6"],  # in the middle of the second epoch: each has five steps
        again,
    ):
        train_accelerate.run(Accelerator(cpu=True), train_accelerate.parse(arguments))


def _write(path: Path, accelerator: Any, content: Any) -> None:
    path.with_name(f"{path.name}.{accelerator.process_index}.json").write_text(json.dumps(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
