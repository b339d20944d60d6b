"""Statistics of runs with faults: failures, retries and restarts are counted one by one, whoever loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.watch.watched import DiesOnce, who
from torch.utils.data import Dataset

from stoker import DataLoader, OnError, WorkerDied, Workers


class Flaky(Dataset[Any]):
    """Samples 1 and 6 fail once and then twice; sample 3 always does. Failures are remembered in files."""

    FAILS: ClassVar = {1: 1, 6: 2, 3: 99}

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        failed = self.folder / str(index)
        times = len(failed.read_bytes()) if failed.exists() else 0
        if times < self.FAILS.get(index, 0):
            failed.write_bytes(b"." * (times + 1))
            raise OSError(index)
        return index


class FlakyAwaited(Flaky):
    async def __agetitem__(self, index: int) -> int:
        return Flaky.__getitem__(self, index)


@who
@pytest.mark.parametrize("action", ["skip", "drop"])
def test_failures_and_retries_are_exact(action: Any, workers: Workers, tmp_path: Path) -> None:
    on_error = OnError(action, tries=3, pause_s=0)
    loader: DataLoader[Any] = DataLoader(Flaky(tmp_path), 4, workers=workers, on_error=on_error, seed=5)
    samples = sum(len(batch) for batch in loader)
    stats = loader.stats()
    assert stats.failures == len(loader.failures) >= 1  # whoever takes its place may be bad as well
    assert (stats.retries, stats.restarts) == (1 + 2 + 2 * stats.failures, 0)
    assert stats.samples == samples == (8 if action == "skip" else 7)
    assert stats.size_bytes == 8 * samples


@pytest.mark.parametrize("workers", [Workers(0, 3), Workers(2, 2, start_method="fork")], ids=["threads", "processes"])
def test_retries_of_awaited_samples_are_exact(workers: Workers, tmp_path: Path) -> None:
    on_error = OnError("drop", tries=3, pause_s=0)
    loader: DataLoader[Any] = DataLoader(FlakyAwaited(tmp_path), 4, workers=workers, on_error=on_error)
    assert sum(len(batch) for batch in loader) == 7
    assert (loader.stats().failures, loader.stats().retries) == (1, 5)


@who
def test_retries_count_where_the_run_stops_in_the_end(workers: Workers, tmp_path: Path) -> None:
    on_error = OnError("raise", tries=4, pause_s=0)
    loader: DataLoader[Any] = DataLoader(Flaky(tmp_path), 8, workers=workers, on_error=on_error)
    with pytest.raises(OSError, match="3"):
        list(loader)
    assert loader.stats().retries == 1 + 2 + 3


@pytest.mark.faults
@pytest.mark.parametrize("persistent", [False, True])
def test_restarts_are_exact_and_those_of_earlier_passes_stay(persistent: bool, tmp_path: Path) -> None:
    workers = Workers(2, start_method="fork", on_death="restart")
    loader: DataLoader[Any] = DataLoader(DiesOnce(tmp_path), 2, workers=workers, persistent_workers=persistent)
    for epoch in (1, 2):
        assert sum(len(batch) for batch in loader) == 8
        assert loader.stats().restarts == epoch
        (tmp_path / "died").unlink()
    assert loader.stats().samples == 16


@pytest.mark.faults
def test_after_a_death_that_ends_the_run_there_are_still_statistics(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(DiesOnce(tmp_path), 2, num_workers=1)
    with pytest.raises(WorkerDied):
        list(loader)
    stats = loader.stats()
    assert (stats.samples, stats.restarts) == (4, 0)
    assert stats.wait_share <= 1
