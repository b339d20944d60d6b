"""`stoker top` shows the loaders that run, says who waits, and is not fooled by what stands in their pages."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.datasets import Made, number
from typer.testing import CliRunner, Result

import stoker.bench.running
import stoker.watch.chores
from stoker import DataLoader
from stoker.bench.running import Running
from stoker.cli.app import app
from stoker.report.running import cells_of, word_on

ONE = Running(
    pid=41207,
    loader=1,
    dataset="Photos",
    workers=2,
    lanes=1,
    steps=12345,
    samples_per_s=640.4,
    wait_share=0.02,
    ready=3,
    restarts=0,
    age_s=0.5,
    command="train.py",
    memory_bytes=1_500_000_000,
)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only loaders of this test are seen, from their second step on."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(stoker.watch.chores, "_PAGE_EVERY_NS", 0)


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["top", *arguments], env={"COLUMNS": "160"})


def changed(**fields: Any) -> Running:
    return Running(**{**ONE.__dict__, **fields})


def test_a_running_loader_is_shown() -> None:
    loader: DataLoader[Any] = DataLoader(Made(9, number), 2, num_workers=1)
    batches = iter(loader)
    next(batches), next(batches)
    shown = ask("--once")
    assert shown.exit_code == 0
    assert str(os.getpid()) in shown.stdout
    assert "Made" in shown.stdout
    assert "MB" in shown.stdout
    assert len(list(batches)) == 3
    assert "No Stoker loader is running" in ask("--once").stdout


def test_where_nobody_runs_it_says_so_and_what_hides_a_loader() -> None:
    shown = ask("--once")
    assert shown.exit_code == 0
    assert "STOKER_TOP=0" in shown.stdout


def test_it_looks_again_and_again_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(stoker.bench.running, "running", lambda: [ONE])
    shown = ask("--every", "2.5")
    assert shown.exit_code == 0
    assert looks == [2.5, 2.5, 2.5]
    assert "train.py" in shown.stdout


def test_names_are_shown_as_they_are_and_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = changed(dataset="[red]boo[/red]", command="a\x1b[2Jb")
    monkeypatch.setattr(stoker.bench.running, "running", lambda: [hostile])
    shown = ask("--once").stdout
    assert "[red]boo[/red]" in shown
    assert "a?[2Jb" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"wait_share": 0.02}, "fed"),
        ({"wait_share": 0.07}, "on the edge"),
        ({"wait_share": 0.6}, "waiting for data"),
        ({"wait_share": 0.6, "restarts": 2}, "waiting for data, 2 restarts"),
        ({"age_s": 42.0}, "no step for 42 s"),
    ],
)
def test_a_word_on_each(fields: dict[str, Any], word: str) -> None:
    assert word_on(changed(**fields)) == word


def test_a_row_in_words() -> None:
    row = "41207 train.py 1 Photos 2 12,345 640 2% 3 1,500 MB fed"
    assert " ".join(cells_of(ONE)) == row
    assert cells_of(changed(workers=2, lanes=8))[4] == "2 × 8"
    assert cells_of(changed(workers=0))[8] == "inline"
