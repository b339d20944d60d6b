"""A loader that survives faults loads as quickly as one that does not: by runs, into rows, awaited; and still finds
the sample that is to blame.

Each sample here says how it was loaded: in a run of how many, or by which of the dataset's methods.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from torch.utils.data import Dataset

from stoker import DataLoader, OnError, TooManyFailures, Workers

pytestmark = pytest.mark.faults
LENGTH, BATCH, BAD = 48, 8, 21


def restarting(**more: Any) -> Workers:
    return Workers(**{"processes": 2, "start_method": "fork", "on_death": "restart", **more})


def fail(how: str, index: int) -> None:
    if index != BAD:
        return
    if how == "raise":
        raise ValueError("broken")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


class Runs(Dataset[Any]):
    """Each sample says with how many others it was loaded."""

    def __init__(self, how: str = "") -> None:
        self.how = how

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("it is asked for runs, if of one sample")

    def __getitems__(self, indices: list[int]) -> list[Any]:
        for index in indices:
            fail(self.how, index)
        return [(index, len(indices)) for index in indices]


class IntoRows(Dataset[Any]):
    """Each sample says whether it was read straight into its row."""

    def __init__(self, how: str = "") -> None:
        self.how = how

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        fail(self.how, index)
        return index, 0

    def read_into(self, index: int, row: Any) -> None:
        fail(self.how, index)
        row[0][...], row[1][...] = index, 1


class Awaited(Dataset[Any]):
    """Samples are awaited, many at a time."""

    def __init__(self, how: str = "") -> None:
        self.how = how

    def __len__(self) -> int:
        return LENGTH

    async def __agetitem__(self, index: int) -> Any:
        fail(self.how, index)
        return index, 1


def rows_of(loader: DataLoader[Any]) -> list[tuple[int, int]]:
    return [(int(index), int(way)) for indices, ways in loader for index, way in zip(indices, ways, strict=True)]


def test_an_armed_loader_asks_for_whole_runs() -> None:
    rows = rows_of(DataLoader(Runs(), BATCH, workers=restarting(), on_error="skip"))
    assert [index for index, _ in rows] == list(range(LENGTH))
    assert {way for _, way in rows} == {BATCH}


def test_an_armed_loader_reads_straight_into_rows() -> None:
    rows = rows_of(DataLoader(IntoRows(), BATCH, workers=restarting(), on_error="skip"))
    assert [index for index, _ in rows] == list(range(LENGTH))
    # A worker learns the layout from its first samples, which are loaded the ordinary way.
    assert {way for _, way in rows[BATCH:]} == {1}


@pytest.mark.parametrize("dataset", [Runs, IntoRows, Awaited])
@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize("collate", [None, list], ids=["rows", "whole"])
def test_the_bad_sample_of_a_run_is_found_and_only_that(dataset: Any, how: str, collate: Any) -> None:
    if dataset is Awaited and how == "kill" and collate is not None:
        pytest.skip("batches that are collated whole cannot be asked for one row at a time")
    loader = DataLoader(dataset(how), BATCH, workers=restarting(), on_error="drop", collate_fn=collate)
    rows = [int(row[0]) for batch in loader for row in (batch if collate else zip(*batch, strict=True))]
    assert rows == [index for index in range(LENGTH) if index != BAD]
    assert [failure.index for failure in loader.failures] == [BAD]


def test_after_a_bad_sample_runs_are_whole_again() -> None:
    loader = DataLoader(Runs("kill"), BATCH, workers=restarting(), on_error="drop", persistent_workers=True)
    assert 1 in {way for _, way in rows_of(loader)}
    assert dict(rows_of(loader))[0] == BATCH  # only what was under way with the killer was loaded one by one


def test_a_worker_that_is_too_large_from_the_start_is_an_error_that_says_so() -> None:
    loader: DataLoader[Any] = DataLoader(Runs(), BATCH, workers=restarting(worker_max_bytes=1_000_000))
    with pytest.raises(
        ValueError, match=r"worker_max_bytes is 1,000,000, but a worker that has only just started holds"
    ):
        list(loader)


@pytest.mark.parametrize("workers", [Workers(), Workers(2)], ids=["inline", "processes"])
def test_a_budget_counts_on_after_a_resume(workers: Workers) -> None:
    def loader(budget: int) -> DataLoader[Any]:
        policy = OnError("drop", budget=budget)
        return DataLoader(Broken(), BATCH, workers=workers, on_error=policy)

    first = loader(budget=3)
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    assert state["failures"] == {"count": 2, "seen": BATCH}
    again = loader(budget=3)
    again.load_state_dict(state)
    with pytest.raises(TooManyFailures, match=r"(?s)4 samples could not be loaded.*and 2 before these"):
        list(again)
    enough = loader(budget=12)
    enough.load_state_dict(state)
    list(enough)
    assert enough.state_dict()["failures"]["count"] == 12


class Broken(Dataset[Any]):
    """Two of eight samples cannot be loaded."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        if index % 4 == 1:
            raise ValueError("broken")
        return index
