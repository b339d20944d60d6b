"""Statistics arrive where they are wanted: every so many steps, with what happened since, and no batch is lost."""

from __future__ import annotations

import csv
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.datasets import Made, number

import stoker
from stoker import DataLoader, MissingExtra
from stoker.watch.stats import Stats


class Told:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, float], int]] = []

    def __call__(self, values: dict[str, float], step: int) -> None:
        self.calls.append((values, step))

    @property
    def steps(self) -> list[int]:
        return [step for _, step in self.calls]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_function_is_told_every_so_many_steps_over_all_epochs(workers: int) -> None:
    loader: DataLoader[Any] = DataLoader(Made(14, number), 2, num_workers=workers)
    told = Told()
    stoker.log_stats(loader, told, every=5)
    for _ in range(3):
        assert len(list(loader)) == 7
    assert told.steps == [5, 10, 15, 20]
    assert [values["stoker/steps"] for values, _ in told.calls] == [5, 5, 5, 5]
    assert [values["stoker/samples"] for values, _ in told.calls] == [10, 10, 10, 10]
    assert all(0 <= values["stoker/wait_share"] <= 1 for values, _ in told.calls)


def test_what_was_before_is_not_told() -> None:
    loader: DataLoader[Any] = DataLoader(Made(10, number), 1)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    told = Told()
    stoker.log_stats(loader, told, every=3, prefix="data/")
    assert len(list(batches)) == 6
    assert told.steps == [7, 10]
    assert told.calls[0][0]["data/steps"] == 3


def test_several_may_listen() -> None:
    loader: DataLoader[Any] = DataLoader(Made(6, number), 1)
    often, seldom = Told(), Told()
    stoker.log_stats(loader, often, every=1)
    stoker.log_stats(loader, seldom, every=4)
    list(loader)
    assert (often.steps, seldom.steps) == ([1, 2, 3, 4, 5, 6], [4])


def test_quantiles_are_those_of_the_steps_told_of() -> None:
    seen: list[Stats] = []
    loader: DataLoader[Any] = DataLoader(Made(4, number), 1)
    loader.on_stats(lambda stats, _step: seen.append(stats), every=1)
    list(loader)
    for stats in seen:
        assert stats.steps == 1
        assert len(set(stats.wait_quantiles_s.values())) == 1  # of one step


def test_a_function_that_fails_loses_no_batch() -> None:
    loader: DataLoader[Any] = DataLoader(Made(6, number), 1)

    def fail(values: dict[str, float], step: int) -> None:
        raise ConnectionError(step)

    stoker.log_stats(loader, fail, every=2)
    batches, seen = iter(loader), []
    for _ in range(8):
        try:
            seen.append(int(next(batches)))
        except ConnectionError as error:
            seen.append(-error.args[0])
    assert seen == [0, 1, -2, 2, 3, -4, 4, 5]


def test_a_function_may_ask_the_loader_itself() -> None:
    loader: DataLoader[Any] = DataLoader(Made(4, number), 1, num_workers=1)
    asked: list[int] = []
    loader.on_stats(lambda _stats, _step: asked.append(loader.stats().steps), every=2)
    list(loader)
    assert asked == [2, 4]


def test_loggers_are_known_by_what_they_can_do() -> None:
    metrics: list[tuple[Any, int]] = []
    logger = types.SimpleNamespace(log_metrics=lambda values, step: metrics.append((values, step)))
    loader: DataLoader[Any] = DataLoader(Made(4, number), 1)
    stoker.log_stats(loader, logger, every=4)
    list(loader)
    assert [(values["stoker/samples"], step) for values, step in metrics] == [(4, 4)]


def test_what_cannot_log_and_what_has_no_statistics_are_refused() -> None:
    loader: DataLoader[Any] = DataLoader(Made(4, number), 1)
    with pytest.raises(TypeError, match=r"function of \(values, step\), but got int"):
        stoker.log_stats(loader, 7)
    with pytest.raises(TypeError, match=r"needs a stoker\.DataLoader, but got DataLoader"):
        stoker.log_stats(torch.utils.data.DataLoader([1]), print)
    with pytest.raises(ValueError, match=r"at least 1 \(steps\)"):
        stoker.log_stats(loader, print, every=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_curves_are_in_tensorboards_files(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    loader: DataLoader[Any] = DataLoader(Made(12, number), 2)
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        stoker.log_stats(loader, writer, every=3)
        list(loader)
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert {"stoker/wait_share", "stoker/samples_per_s", "stoker/peak_bytes"} <= set(events.Tags()["scalars"])
    assert [(event.step, event.value) for event in events.Scalars("stoker/samples")] == [(3, 6.0), (6, 6.0)]


def test_without_lightning_the_callback_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import stoker.integrations.logging as hooks

    monkeypatch.delitem(hooks.__dict__, "StatsCallback", raising=False)
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"lightning is not installed: pip install 'stoker\[lightning\]'"):
        hooks.StatsCallback  # noqa: B018
    with pytest.raises(AttributeError):
        hooks.nothing  # noqa: B018


class Recorded:
    """As much of a trainer as the callback sees."""

    def __init__(self, train_dataloader: Any) -> None:
        self.train_dataloader, self.global_step = train_dataloader, 100
        self.logged: list[tuple[dict[str, float], int]] = []
        self.loggers = [types.SimpleNamespace(log_metrics=lambda values, step: self.logged.append((values, step)))]


def test_the_callbacks_work_is_the_same_for_one_loader_and_for_several() -> None:
    from stoker.integrations.logging import _Logs

    first, second = DataLoader(Made(6, number), 2), DataLoader(Made(9, number), 3)
    trainer, logs = Recorded({"a": first, "b": [second, [1, 2, 3]]}), _Logs(every=3)
    logs.on_train_start(trainer, None)
    for index, batch in enumerate(zip(first, second, strict=True)):
        logs.on_train_batch_end(trainer, None, None, batch, index)
    assert [step for _, step in trainer.logged] == [100, 100]
    assert trainer.logged[0][0]["stoker/a/samples"] == 6
    assert trainer.logged[1][0]["stoker/b/0/samples"] == 9


@pytest.mark.filterwarnings("ignore")  # of Lightning's own, of which there are many
def test_lightning_logs_every_so_many_batches(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.loggers import CSVLogger

    from stoker.integrations.logging import StatsCallback

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            return self.layer(batch.float()[:, None]).sum()  # type: ignore[no-any-return]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.001)

    callback = pickle.loads(pickle.dumps(StatsCallback(every=4)))
    logger = CSVLogger(str(tmp_path), flush_logs_every_n_steps=1)
    trainer = lightning.Trainer(
        max_epochs=2, logger=logger, callbacks=[callback], accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Model(), DataLoader(Made(12, number), 2))
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["4", "8", "12"]
    # Lightning asks for a batch ahead, so a log may be of one more or one less.
    assert all(6 <= float(row["stoker/samples"]) <= 10 for row in rows)
