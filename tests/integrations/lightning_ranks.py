"""Several fits on two ranks, started by Lightning's own launcher: test_lightning_ranks.py runs this as a program.

    python lightning_ranks.py FOLDER

The loaders are made before there are ranks, as in most people's scripts. Every rank writes what its model was given to
FOLDER/NAME.RANK.json.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from tests.integrations.lightning_parts import Diary, quiet_trainer, saving_trainer, write_diary

import stoker
from stoker.lightning import DataModule

SAMPLES = torch.arange(22)  # two ranks take 8 in a step: two full steps, and one of 6
TWO = {"devices": 2, "strategy": "ddp", "max_epochs": 2}
OWN: dict[str, Any] = {"workers": stoker.Workers(0, threads=2), "on_error": "skip"}


def loaders() -> dict[str, Any]:
    return {
        "seeded": stoker.DataLoader(SAMPLES, batch_size=4, shuffle=True, seed=7),
        "module": DataModule(SAMPLES, batch_size=4, seed=7),
        "injected": stoker.DataLoader(SAMPLES, batch_size=4, shuffle=True, **OWN),
    }


def main(folder: Path) -> None:
    for name, data in loaders().items():
        _fit(saving_trainer(folder / name, **TWO), data, folder / name)
    for name, data in loaders().items():
        _fit(quiet_trainer(**TWO), data, folder / f"{name}, resumed", folder / name / "step=4.ckpt")
    predicted = quiet_trainer(devices=2, strategy="ddp")
    model = Diary()
    model.trained = predicted.predict(model, DataModule(predict=SAMPLES[:7], batch_size=2))
    write_diary(folder / f"predicted.{predicted.global_rank}.json", model)


def _fit(trainer: Any, data: Any, name: Path, checkpoint: Path | None = None) -> None:
    model = Diary()
    trainer.fit(model, data, ckpt_path=checkpoint, weights_only=True)
    write_diary(name.with_name(f"{name.name}.{trainer.global_rank}.json"), model)
    if name.name == "injected":
        _check_injected(trainer.train_dataloader)


def _check_injected(loader: Any) -> None:
    """Lightning has put its sampler in, and everything else is as it was."""
    kept = {name: getattr(loader, name) for name in OWN}
    if type(loader) is not stoker.DataLoader or kept != OWN or loader.sampler.num_replicas != 2:
        raise RuntimeError(f"the loader was made anew as {type(loader)} with {kept}, {loader.sampler}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
