"""A run that Lightning saved goes on as if it had not stopped: after every step, and after every epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lightning")

from tests.integrations.lightning_parts import QUIET, Diary, quiet_trainer, saving_trainer
from torch.utils.data import DistributedSampler, IterableDataset, WeightedRandomSampler

import stoker
from stoker.lightning import DataModule

pytestmark = [pytest.mark.filterwarnings(line) for line in QUIET]

SAMPLES = torch.arange(10)  # in batches of 4: two full steps and a short one
EPOCHS = 3


class Stream(IterableDataset[int]):
    """An iterable dataset, with or without a length."""

    def __iter__(self) -> Any:
        return iter(range(10))


class SizedStream(Stream):
    def __len__(self) -> int:
        return 10


def fixed() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def plain(data: Any = SAMPLES, **arguments: Any) -> Any:
    return stoker.DataLoader(data, batch_size=4, **arguments)


LOADERS: dict[str, Callable[[], Any]] = {
    "seeded": lambda: plain(shuffle=True, seed=7),
    "seeded, workers that stay": lambda: plain(shuffle=True, seed=7, num_workers=1, persistent_workers=True),
    "sequential": lambda: plain(),
    "distributed sampler": lambda: plain(sampler=DistributedSampler(SAMPLES, 1, 0)),  # type: ignore[arg-type, var-annotated]
    "iterable with a length": lambda: plain(SizedStream()),
    "two loaders": lambda: {"a": plain(shuffle=True, seed=7), "b": plain(SAMPLES[:5], shuffle=True, seed=8)},
    "module": lambda: DataModule(SAMPLES, batch_size=4),
    "module of two": lambda: DataModule({"a": SAMPLES, "b": SAMPLES[:5]}, batch_size=4),
    "module, torch's order": lambda: DataModule(SAMPLES, batch_size=4, seed=None, generator=fixed()),
    "module, a sampler": lambda: DataModule(
        SAMPLES, batch_size=4, shuffle=None, sampler=WeightedRandomSampler(torch.ones(10), 10, generator=fixed())
    ),
    "module, iterable": lambda: DataModule(Stream(), batch_size=4),
    "module, iterable, a worker": lambda: DataModule(Stream(), batch_size=4, num_workers=1),
}


def fit(trainer: Any, data: Any, checkpoint: Path | None = None) -> list[Any]:
    model = Diary()
    trainer.fit(model, data, ckpt_path=checkpoint, weights_only=True)
    return model.trained


def rest_after(checkpoint: Path, data: Any, **limits: Any) -> list[Any]:
    return fit(quiet_trainer(max_epochs=EPOCHS, **limits), data, checkpoint)


@pytest.mark.parametrize("kind", LOADERS)
def test_every_checkpoint_goes_on_exactly(kind: str, tmp_path: Path) -> None:
    make = LOADERS[kind]
    whole = fit(saving_trainer(tmp_path, max_epochs=EPOCHS), make())
    assert len(whole) == 3 * EPOCHS
    for step in (1, 3, 5, 6):  # the middle of an epoch, the end of the first, before and at the end of the second
        assert rest_after(tmp_path / f"step={step}.ckpt", make()) == whole[step:], f"from step {step}"
    assert rest_after(tmp_path / "epoch=1.ckpt", make()) == whole[6:]


def test_epochs_that_were_cut_short_go_on_with_the_next_one(tmp_path: Path) -> None:
    make, limits = LOADERS["seeded"], {"limit_train_batches": 2}
    whole = fit(saving_trainer(tmp_path, max_epochs=EPOCHS, **limits), make())
    for name, done in (("step=1", 1), ("step=2", 2), ("step=3", 3), ("epoch=0", 2)):
        assert rest_after(tmp_path / f"{name}.ckpt", make(), **limits) == whole[done:], name


def test_workers_may_change_between_runs(tmp_path: Path) -> None:
    whole = fit(saving_trainer(tmp_path, max_epochs=EPOCHS), plain(shuffle=True, seed=7, num_workers=1))
    threads = plain(shuffle=True, seed=7, workers=stoker.Workers(0, threads=2))
    assert rest_after(tmp_path / "step=4.ckpt", threads) == whole[4:]


def test_other_data_are_refused_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    fit(saving_trainer(tmp_path, max_epochs=1), DataModule(SAMPLES, batch_size=4))
    with pytest.raises(stoker.ResumeMismatch, match="length"):
        rest_after(tmp_path / "step=1.ckpt", DataModule(torch.arange(12), batch_size=4))


def test_other_data_are_taken_between_epochs_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(saving_trainer(tmp_path, max_epochs=1), DataModule(SAMPLES, batch_size=4))
    with caplog.at_level(logging.WARNING, logger="stoker.lightning"):
        rest = rest_after(tmp_path / "epoch=0.ckpt", DataModule(torch.arange(12), batch_size=4))
    assert "begins anew" in caplog.text
    for epoch in (1, 2):
        assert sorted(sample for when, batch in rest for sample in batch if when == epoch) == list(range(12))


def test_a_module_without_training_data_saves_nothing() -> None:
    assert DataModule(val=SAMPLES).state_dict() == {}
