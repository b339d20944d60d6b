"""A running loader keeps a page for `stoker top`, and no page outlives its pass, whatever becomes of that."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.datasets import Made, number
from tests.watch.watched import Hand, Timed
from torch.utils.data import Dataset

import stoker.watch.chores
from stoker import DataLoader
from stoker.watch.page import Page, own_folder
from stoker.watch.tally import Tally
from stoker.watch.watch import Watch


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pages are, written at every step instead of every second."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("STOKER_TOP", raising=False)
    monkeypatch.setattr(stoker.watch.chores, "_PAGE_EVERY_NS", 0)
    return tmp_path / f"stoker-{os.getuid()}"


def pages(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*"))]


def started(dataset: Any = None, **options: Any) -> tuple[DataLoader[Any], Iterator[Any]]:
    """A loader in the middle of its first pass."""
    loader: DataLoader[Any] = DataLoader(dataset or Made(9, number), 2, **options)
    batches = iter(loader)
    next(batches), next(batches)
    return loader, batches


@pytest.mark.parametrize("workers", [0, 2])
def test_a_page_says_how_the_loader_is_doing(workers: int, folder: Path) -> None:
    loader, _batches = started(num_workers=workers)
    (page,) = pages(folder)
    assert (page["pid"], page["dataset"], page["workers"], page["lanes"]) == (os.getpid(), "Made", workers, 1)
    assert (page["steps"], page["samples"]) == (1, 2)  # as it was when the second batch was asked for
    assert page["loader"] == loader._course.watch.tally.number
    assert len(page["worker_pids"]) == workers
    assert 0 <= page["wait_share"] <= 1
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ending", ["exhausted", "dropped", "closed"])
def test_the_page_goes_with_the_pass_and_the_folder_with_the_last_page(ending: str, workers: int, folder: Path) -> None:
    _loader, batches = started(num_workers=workers)
    assert len(pages(folder)) == 1
    if ending == "exhausted":
        assert len(list(batches)) == 3
    elif ending == "closed":
        batches.close()  # type: ignore[attr-defined]
    del batches
    assert not folder.exists()


def fails_at_6(index: int) -> float:
    return 1 / (index - 6)


def test_the_page_goes_with_an_iterator_that_failed(folder: Path) -> None:
    _loader, batches = started(Made(9, fails_at_6), num_workers=1)
    with pytest.raises(ZeroDivisionError):
        list(batches)
    del batches
    assert not folder.exists()


def test_workers_that_stay_have_a_page_in_every_epoch(folder: Path) -> None:
    loader, batches = started(num_workers=1, persistent_workers=True)
    list(batches)
    for epoch in (1, 2):
        assert not folder.exists()
        batches = iter(loader)
        next(batches), next(batches)
        assert len(list(folder.iterdir())) == 1
        assert pages(folder)[0]["steps"] == 5 * epoch + 1
        list(batches)
    next(iter(loader))  # left, but the workers wait for the next epoch
    assert len(pages(folder)) == 1
    del loader, batches
    assert not folder.exists()


def test_each_of_many_iterators_has_a_page(folder: Path) -> None:
    several = [started() for _ in range(5)]
    assert len({page["loader"] for page in pages(folder)}) == 5
    loader = several[0][0]
    second = iter(loader)
    next(second), next(second)
    assert len(pages(folder)) == 6
    several.clear()
    assert len(pages(folder)) == 1


def test_nothing_is_written_where_it_was_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_TOP", "0")
    _loader, _batches = started()
    assert not folder.exists()


@pytest.mark.parametrize("trap", ["open", "link", "file"])
def test_a_folder_that_is_not_ones_own_is_not_used(trap: str, folder: Path, tmp_path: Path) -> None:
    if trap == "open":
        folder.mkdir(mode=0o755)
    elif trap == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.touch()
    _loader, batches = started()
    assert len(list(batches)) == 3
    assert list(tmp_path.rglob("*.json")) == []


def test_without_a_runtime_folder_the_one_for_temporary_files_is_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert own_folder() == folder


@pytest.mark.faults
def test_the_page_of_a_killed_process_is_removed_by_whoever_comes_next(folder: Path) -> None:
    child = os.fork()
    if not child:
        started()
        kept = started()  # noqa: F841
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert [page["pid"] for page in pages(folder)] == [child]
    _loader, batches = started()
    assert [page["pid"] for page in pages(folder)] == [os.getpid()]
    del batches


def test_a_forked_child_leaves_its_parents_page_alone(folder: Path) -> None:
    loader, batches = started()
    before = pages(folder)
    child = os.fork()
    if not child:
        code = 1
        try:
            next(batches)
            del batches
            assert pages(folder) == before
            own = iter(loader)
            next(own), next(own)
            assert {page["pid"] for page in pages(folder)} == {os.getpid(), os.getppid()}
            del own
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert pages(folder) == before
    assert len(list(batches)) == 3


class Nested(Dataset[int]):
    """A sample takes a pass over another loader, and says how many pages its process has then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        _loader, _batches = started()
        return len(list(self.folder.glob(f"{os.getpid()}-*")))


def test_loaders_inside_workers_keep_no_page(folder: Path) -> None:
    inside = [int(count) for count in DataLoader(Nested(folder), 1, num_workers=1, multiprocessing_context="fork")]
    assert inside == [0, 0]


def test_a_page_is_written_once_a_second_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    written: list[dict[str, Any]] = []
    monkeypatch.setattr(Page, "write", lambda self, numbers: written.append(numbers))
    clock = Hand()
    loader: DataLoader[Any] = DataLoader(Timed(clock, milliseconds=0))
    loader._course.watch = Watch(Tally(clock))
    for _ in range(3):
        for _ in loader:
            clock.turn(400)
    # A pass of four steps takes 1.6 s. The first look is at its second second, when the fourth batch is asked for.
    assert [numbers["steps"] for numbers in written] == [3, 7, 11]
    assert [numbers["samples_per_s"] for numbers in written] == [pytest.approx(2.5)] * 3
    assert [numbers["wait_share"] for numbers in written] == [0.0] * 3
