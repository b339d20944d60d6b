"""`stoker tune` from the words of a command line to a call, a table, a file, and exit statuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import stoker
from stoker import tuning
from stoker.auto.tuned import read_tuned
from stoker.bench.runs import Run
from stoker.cli import tune as tune_command
from stoker.cli.app import app

SMALL = ["--budget-s", "1", "--workers", "0,1", "--lanes", "1", "--prefetch", "2", "--batch-sizes", "4"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tune(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["tune", *arguments])


def test_a_dataset_is_tuned_into_a_call_a_table_and_a_file_that_a_loader_reads(here: Path) -> None:
    done = tune("simulated:samples=64", *SMALL, "--run", "r")
    assert done.exit_code == 0, done.output
    assert "stoker.DataLoader(dataset, batch_size=4" in done.output
    assert "◄ best" in done.output
    settings = read_tuned(here / "stoker.toml")
    assert settings.found["target"] == "simulated:samples=64"
    assert settings.batch_size == 4
    assert len(list(stoker.DataLoader(list(range(64)), tuned="stoker.toml"))) == 16
    records, problems = Run(here / "r").load()
    assert len(records) == settings.found["trials"]
    assert problems == []


def test_a_loader_is_tuned_with_its_own_batches(here: Path) -> None:
    (here / "ready_loader.py").write_text(
        "from torch.utils.data import DataLoader\ndef make():\n    return DataLoader(list(range(64)), batch_size=16)\n"
    )
    done = tune("ready_loader:make", "--budget-s", "1", "--workers", "0", "--lanes", "1", "--out", "sub/mine.toml")
    assert done.exit_code == 0, done.output
    assert "  stoker.DataLoader(dataset)" in done.output
    assert read_tuned(here / "sub" / "mine.toml").batch_size is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no_such_module:make"], "there is no module 'no_such_module'"),
        (["tensors", "--for", "luck"], "goal should be one of throughput, step, cpu, but is 'luck'"),
        (["tensors", "--workers", "two"], "--workers: 'two' is not among numbers from 0"),
        (["tensors", "--lanes", "0"], "--lanes: '0' is not among numbers from 1"),
        (["tensors", "--step-ms", "-1"], "--step-ms: '-1' is not among numbers from 0"),
        (["tensors", "--start-methods", "thread"], "--start-methods: 'thread' is not among fork, forkserver, spawn"),
        (["tensors", "--batch-sizes", "1,2,3", "--step-ms", "1,2"], "2 step times for 3 batch sizes"),
        (["tensors", "--max-bytes", "much"], "--max-bytes: 'much' is no size"),
        (["tensors", "--budget-s", "0"], "budget_s should be above 0"),
        (["simulated:samples=64", *SMALL, "--max-bytes", "1KB"], "The smallest needed"),
    ],
)
def test_bad_input_ends_with_status_2_and_says_what_is_wrong(here: Path, arguments: list[str], words: str) -> None:
    done = tune(*arguments)
    assert done.exit_code == 2, done.output
    assert "stoker tune: " in done.stderr
    assert words in done.stderr
    assert not (here / "stoker.toml").exists()


def test_a_dataset_that_raises_is_told_with_its_line(here: Path) -> None:
    (here / "broken_data.py").write_text(
        "class Broken(list):\n    def __getitem__(self, index):\n        raise KeyError('sample')\n"
        "def make():\n    return Broken(range(8))\n"
    )
    done = tune("broken_data:make", *SMALL)
    assert done.exit_code == 2
    assert "KeyError at" in done.stderr
    assert "broken_data.py:3 in __getitem__: 'sample'" in done.stderr


def test_a_file_that_cannot_be_written_is_told_after_the_result(here: Path) -> None:
    (here / "taken").mkdir()
    done = tune("simulated:samples=64", *SMALL, "--workers", "0", "--out", "taken")
    assert done.exit_code == 2
    assert "stoker.DataLoader(dataset, batch_size=4" in done.stdout
    assert "taken cannot be written" in done.stderr


def test_ctrl_c_says_how_far_it_came_and_writes_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "tune", interrupted)
    done = tune("simulated:samples=64", *SMALL)
    assert done.exit_code == 130
    assert "stopped after 0 trials; stoker.toml was not written" in done.stderr
    assert not (here / "stoker.toml").exists()


@pytest.mark.parametrize(("text", "size"), [("2e9", 2 * 10**9), ("800MB", 8 * 10**8), ("4GiB", 4 * 2**30), ("7", 7)])
def test_sizes_are_read_with_and_without_units(text: str, size: int) -> None:
    assert tune_command._bytes(text) == size
