"""Hugging Face's Trainer takes a Stoker loader from `get_train_dataloader`, and resumes in the middle of an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from transformers import Trainer, TrainingArguments

import stoker

SAMPLES = 20
SEEN: list[list[int]] = []


class Numbers(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"number": torch.tensor(float(index))}


class Weight(torch.nn.Module):
    """Writes down what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, number: torch.Tensor, **more: Any) -> dict[str, torch.Tensor]:
        SEEN.append(number.int().tolist())
        return {"loss": (self.weight - number).square().mean()}


class StokerTrainer(Trainer):  # type: ignore[misc]
    def get_train_dataloader(self) -> Any:
        loader = stoker.DataLoader(
            self.train_dataset, batch_size=self.args.train_batch_size, shuffle=True, seed=self.args.seed
        )
        return self.accelerator.prepare(loader)  # stays what it is: with a seed it shards itself


def train(folder: Path, **resume: Any) -> list[list[int]]:
    SEEN.clear()
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=4,
        num_train_epochs=2,
        learning_rate=0.001,
        save_strategy="steps",
        save_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=7,
    )
    StokerTrainer(Weight(), arguments, train_dataset=Numbers()).train(**resume)
    return list(SEEN)


def test_every_sample_comes_once_per_epoch_in_the_loaders_order(tmp_path: Path) -> None:
    loader = stoker.DataLoader(range(SAMPLES), batch_size=4, shuffle=True, seed=7)  # type: ignore[arg-type]
    assert train(tmp_path) == [batch.tolist() for _ in range(2) for batch in loader]


@pytest.mark.parametrize("step", [3, 5, 8])
def test_a_checkpoint_goes_on_exactly(tmp_path: Path, step: int) -> None:
    whole = train(tmp_path)
    assert train(tmp_path, resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}")) == whole[step:]
