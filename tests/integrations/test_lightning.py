"""A Trainer takes `stoker.DataLoader` for what it is: torch's loader, in every stage and with every limit."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lightning")

import lightning
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.utilities import CombinedLoader
from lightning.pytorch.utilities.data import _update_dataloader
from tests.integrations.lightning_parts import QUIET, Diary, quiet_trainer
from torch.utils.data import DistributedSampler, IterableDataset, TensorDataset

import stoker
from stoker.lightning import DataModule

pytestmark = [pytest.mark.filterwarnings(line) for line in QUIET]

SAMPLES = torch.arange(20)
ORDERS: dict[str, dict[str, Any]] = {
    "torch's": {},
    "torch's shuffle": {"shuffle": True},
    "seeded": {"shuffle": True, "seed": 7},
    "ordered": {"order": "shuffle", "seed": 7, "last": "even"},
    "sharded": {"seed": 7, "shard": (0, 1)},
    "seeded, with workers": {"shuffle": True, "seed": 7, "num_workers": 2},
    "seeded, with threads": {"shuffle": True, "seed": 7, "workers": stoker.Workers(0, lanes=3)},
}


def loader(**arguments: Any) -> Any:
    return stoker.DataLoader(SAMPLES, batch_size=4, **arguments)


def samples(steps: list[Any]) -> list[int]:
    return [sample for batch in steps for sample in batch]


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> dict[str, Any]:
    return ORDERS[request.param]


def test_fit_gives_every_sample_once_per_epoch(order: dict[str, Any]) -> None:
    model = Diary()
    quiet_trainer(max_epochs=2).fit(model, loader(**order), loader())
    for epoch in (0, 1):
        assert sorted(samples([batch for when, batch in model.trained if when == epoch])) == list(range(20))
    assert samples(model.evaluated) == 2 * list(range(20))


def test_a_seeded_order_is_the_loaders_own_in_every_epoch() -> None:
    model, own = Diary(), loader(**ORDERS["seeded"])
    quiet_trainer(max_epochs=3).fit(model, loader(**ORDERS["seeded"]))
    assert [batch for _, batch in model.trained] == [batch.tolist() for _ in range(3) for batch in own]


def test_validate_and_test_see_all_samples(order: dict[str, Any]) -> None:
    for stage in ("validate", "test"):
        model = Diary()
        getattr(quiet_trainer(), stage)(model, loader(**order), verbose=False)
        assert sorted(samples(model.evaluated)) == list(range(20))


class Indices(BasePredictionWriter):  # type: ignore[misc]
    """Keeps the indices that Lightning says each prediction belongs to."""

    def __init__(self) -> None:
        super().__init__(write_interval="batch")
        self.seen: list[Any] = []

    def write_on_batch_end(self, trainer: Any, module: Any, prediction: Any, indices: Any, *rest: Any) -> None:
        self.seen.append((prediction, indices))


def test_predictions_come_with_their_indices(order: dict[str, Any]) -> None:
    writer = Indices()
    predictions = quiet_trainer(callbacks=[writer]).predict(Diary(), loader(**order))
    assert sorted(samples(predictions)) == list(range(20))
    assert writer.seen == [(batch, batch) for batch in predictions]  # a sample here is its own index


@pytest.mark.filterwarnings("ignore:You requested to overfit but enabled train dataloader shuffling:UserWarning")
def test_overfitting_repeats_the_first_batches_unshuffled(order: dict[str, Any]) -> None:
    model = Diary()
    quiet_trainer(max_epochs=2, overfit_batches=2).fit(model, loader(**order))
    assert [batch for _, batch in model.trained] == 2 * [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_limit_cuts_each_epoch_short_and_each_has_its_own_order() -> None:
    model = Diary()
    quiet_trainer(max_epochs=3, limit_train_batches=2).fit(model, loader(**ORDERS["seeded"]))
    own = loader(**ORDERS["seeded"])
    assert [batch for _, batch in model.trained] == [batch.tolist() for _ in range(3) for batch in list(own)[:2]]


def test_a_fast_run_and_its_sanity_check_are_short() -> None:
    model = Diary()
    quiet_trainer(fast_dev_run=2).fit(model, loader(), loader())
    assert (len(model.trained), len(model.evaluated)) == (2, 2)


@pytest.mark.parametrize(("mode", "steps"), [("min_size", 2), ("max_size_cycle", 5)])
def test_several_loaders_are_combined(mode: str, steps: int) -> None:
    model = Diary()
    short = stoker.DataLoader(SAMPLES[:6], batch_size=4, shuffle=True, seed=3)
    both = CombinedLoader({"long": loader(shuffle=True, seed=7), "short": short}, mode)
    quiet_trainer(max_epochs=1).fit(model, both)
    assert len(model.trained) == steps
    assert all(set(batch) == {"long", "short"} for _, batch in model.trained)


def test_fabric_takes_the_loader_and_resumes_it() -> None:
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    own = loader(**ORDERS["seeded"])
    epochs = [[batch.tolist() for batch in own] for _ in range(3)]
    saved = loader(**ORDERS["seeded"])
    wrapped = fabric.setup_dataloaders(saved)
    assert [batch.tolist() for batch in wrapped] == epochs[0]
    next(iter(wrapped))
    resumed = loader(**ORDERS["seeded"])
    wrapped = fabric.setup_dataloaders(resumed)
    resumed.load_state_dict(saved.state_dict())
    assert [batch.tolist() for batch in wrapped] == epochs[1][1:]
    assert [batch.tolist() for batch in wrapped] == epochs[2]


class TestMadeAnew:
    """Lightning makes a loader anew from its attributes to put a sampler in: nothing of ours may be lost on the way."""

    OWN: dict[str, Any] = {  # noqa: RUF012
        "workers": stoker.Workers(1, lanes=2, share="rows", on_death="restart"),
        "seed": 7,
        "reseed": None,
        "snapshot_every_n_steps": 3,
        "on_error": stoker.OnError(action="skip", budget=2),
    }

    def test_every_argument_can_be_read_off_the_loader(self) -> None:
        made = loader(**self.OWN)
        names = set(inspect.signature(stoker.DataLoader.__init__).parameters) - {"self", "shuffle"}
        assert {name for name in names if not hasattr(made, name)} == set()

    def test_own_arguments_survive(self) -> None:
        made = loader(**self.OWN, prefetch_factor=3, drop_last=True, timeout=5, persistent_workers=True)
        anew = _update_dataloader(made, DistributedSampler(SAMPLES, 2, 1))  # type: ignore[arg-type, var-annotated]
        assert type(anew) is stoker.DataLoader
        kept = [*self.OWN, "prefetch_factor", "batch_size", "timeout", "persistent_workers", "num_workers", "in_order"]
        assert {name: getattr(anew, name) for name in kept} == {name: getattr(made, name) for name in kept}
        assert sum(len(batch) for batch in anew) == 10


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


class TestDataModule:
    def test_offers_only_what_it_has_data_for(self) -> None:
        model = Diary()
        quiet_trainer(max_epochs=1).fit(model, DataModule(SAMPLES, batch_size=4))
        assert sorted(samples([batch for _, batch in model.trained])) == list(range(20))
        assert model.evaluated == []

    def test_loads_every_stage_with_its_options(self) -> None:
        data = DataModule(
            SAMPLES, SAMPLES[:4], lambda: SAMPLES[:6], SAMPLES[:8], batch_size=5, evaluation={"batch_size": 2}
        )
        model, trainer = Diary(), quiet_trainer(max_epochs=1)
        trainer.fit(model, data)
        trainer.test(model, data, verbose=False)
        assert [len(batch) for _, batch in model.trained] == [5, 5, 5, 5]
        assert model.evaluated == [[0, 1], [2, 3], [0, 1], [2, 3], [4, 5]]
        assert trainer.predict(model, data) == [[0, 1], [2, 3], [4, 5], [6, 7]]

    def test_lightnings_tuner_finds_the_batch_size(self, tmp_path: Path) -> None:
        data = DataModule(SAMPLES, SAMPLES, batch_size=2)
        trainer = quiet_trainer(max_epochs=1, default_root_dir=tmp_path)
        assert Tuner(trainer).scale_batch_size(Diary(), datamodule=data, max_trials=2, steps_per_trial=1) == 4
        assert data.train_dataloader().batch_size == 4

    def test_options_reach_the_loader(self) -> None:
        workers = stoker.Workers(0, lanes=2)
        made = DataModule(SAMPLES, batch_size=4, workers=workers, on_error="skip", seed=3).train_dataloader()
        assert (made.workers, made.on_error, made.seed) == (workers, "skip", 3)

    def test_several_datasets_become_several_loaders(self) -> None:
        several = [TensorDataset(SAMPLES), TensorDataset(SAMPLES[:8])]
        data = DataModule(several, several, batch_size=4)
        assert [len(one) for one in data.train_dataloader()] == [5, 2]
        assert [len(one) for one in data.val_dataloader()] == [5, 2]
        named = DataModule({"a": SAMPLES, "b": SAMPLES[:8]}, batch_size=4)
        assert {name: len(one) for name, one in named.train_dataloader().items()} == {"a": 5, "b": 2}

    def test_a_list_of_samples_is_one_dataset(self) -> None:
        assert len(DataModule([1, 2, 3]).train_dataloader()) == 3

    def test_iterable_datasets_are_not_shuffled(self) -> None:
        model = Diary()
        quiet_trainer(max_epochs=1).fit(model, DataModule(Stream(), batch_size=4))
        assert [batch for _, batch in model.trained] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    def test_a_subclass_may_make_its_own_loaders(self) -> None:
        class Own(DataModule):
            def val_dataloader(self) -> Any:
                return loader()

        model = Diary()
        quiet_trainer(max_epochs=1).fit(model, Own(SAMPLES, batch_size=4))
        assert samples(model.evaluated) == list(range(20))
