"""Pages of running loaders are read with care: what is no page is passed over, what is stale is removed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stoker.bench.running import running
from stoker.watch.kernel import began

PAGE: dict[str, Any] = {
    "pid": os.getpid(),
    "loader": 3,
    "dataset": "Photos",
    "workers": 2,
    "lanes": 4,
    "steps": 120,
    "samples": 3840,
    "samples_per_s": 640.5,
    "wait_share": 0.25,
    "ready": 2,
    "restarts": 1,
    "written": 1000.0,
    "process_began": began(os.getpid()),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = tmp_path / f"stoker-{os.getuid()}"
    made.mkdir(mode=0o700)
    return made


def put(folder: Path, name: str = "", **changed: Any) -> Path:
    path = folder / (name or f"{os.getpid()}-0.json")
    path.write_text(json.dumps({**PAGE, **changed}))
    return path


def test_a_page_becomes_a_row(folder: Path) -> None:
    put(folder)
    (one,) = running(now=lambda: 1002.5)
    assert (one.pid, one.loader, one.dataset, one.workers, one.lanes) == (os.getpid(), 3, "Photos", 2, 4)
    assert (one.steps, one.samples_per_s, one.wait_share, one.ready, one.restarts) == (120, 640.5, 0.25, 2, 1)
    assert one.age_s == 2.5
    assert one.memory_bytes > 10**6
    assert one.command


def test_rows_come_in_the_order_of_processes_and_loaders(folder: Path) -> None:
    for place, number in enumerate((5, 1, 3)):
        put(folder, f"{os.getpid()}-{place}.json", loader=number)
    assert [one.loader for one in running()] == [1, 3, 5]


def test_the_page_of_a_process_that_is_gone_is_removed(folder: Path) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    path = put(folder, f"{child}-0.json", pid=child)
    aside = folder / f"{child}-0.new"
    aside.touch()
    assert running() == []
    assert not path.exists()
    assert not aside.exists()


def test_the_page_of_an_earlier_process_with_the_same_number_is_removed(folder: Path) -> None:
    path = put(folder, process_began=PAGE["process_began"] - 3600)
    assert running() == []
    assert not path.exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"pid": 1}', json.dumps({**PAGE, "steps": "many"}), json.dumps({**PAGE, "pid": []})]
)
def test_what_is_no_page_is_passed_over(text: str, folder: Path) -> None:
    (folder / f"{os.getpid()}-1.json").write_text(text)
    (folder / "notes-of-mine.json").write_text("my own")
    put(folder)
    assert len(running()) == 1
    assert (folder / "notes-of-mine.json").exists()


def test_a_folder_that_others_can_look_into_is_not_read(folder: Path) -> None:
    put(folder)
    folder.chmod(0o755)
    assert running() == []


def test_where_nobody_runs_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert running() == []
    assert list(tmp_path.iterdir()) == []
