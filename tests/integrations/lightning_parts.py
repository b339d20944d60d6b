"""A model that writes down what it is given, and a quiet Trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

QUIET = (
    # Lightning advises more workers wherever there are fewer than two; most loaders here have none, on purpose.
    "ignore:The '.*_dataloader' does not have many workers:UserWarning",
    # The model can validate, and not every test gives it data to.
    "ignore:You defined a `validation_step` but have no `val_dataloader`:UserWarning",
    # A resumed run here need not save again.
    "ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint:UserWarning",
    # What Lightning says of validation data that are shuffled, and of iterable datasets with a length: both are meant.
    "ignore:Your `.*_dataloader`'s sampler has shuffling enabled:UserWarning",
    "ignore:Your `IterableDataset` has `__len__` defined:UserWarning",
    # Lightning asks torch in a way that torch has deprecated since.
    "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning",
)


class Diary(lightning.LightningModule):
    """One weight, and a diary of (epoch, batch, samples) for each training step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.trained: list[Any] = []
        self.evaluated: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.trained.append([self.current_epoch, _listed(batch)])
        return self.weight * 1.0

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        if not self.trainer.sanity_checking:
            self.evaluated.append(_listed(batch))

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.evaluated.append(_listed(batch))

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return _listed(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def quiet_trainer(**more: Any) -> Any:
    still = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    return lightning.Trainer(**{"accelerator": "cpu", "devices": 1, **still, **more})


def saving_trainer(folder: Path, **more: Any) -> Any:
    """Saves after every step, as `step=N.ckpt`, and after every epoch, as `epoch=N.ckpt`."""
    steps = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    epochs = ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
    return quiet_trainer(enable_checkpointing=True, callbacks=[steps, epochs], **more)


def write_diary(path: Path, diary: Diary) -> None:
    path.write_text(json.dumps(diary.trained))


def _listed(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    if isinstance(batch, dict):
        return {name: _listed(part) for name, part in batch.items()}
    return [_listed(part) for part in batch]
