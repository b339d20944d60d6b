"""`stoker bench` and `stoker report` from the words of a command line to files and exit statuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stoker.bench.runs import Run
from stoker.cli.app import app

SMALL = ["--workers", "0,1", "--repeats", "1", "--batches", "4", "--batch-sizes", "4"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stoker(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The folder of a run, and what was printed."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = stoker("bench", "simulated:samples=64", *SMALL)
    assert done.exit_code == 0, done.output
    return folder / "runs" / "simulated-samples-64", done


def test_a_bench_saves_every_trial_and_prints_a_table(measured: tuple[Path, Result]) -> None:
    folder, done = measured
    records, problems = Run(folder).load()
    assert (len(records), problems) == (4, [])
    assert "mean ± standard deviation" in done.output
    assert "stoker report runs/simulated-samples-64" in done.output
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["versions"]["torch"]


def test_the_same_command_again_measures_nothing_and_a_broken_line_is_named(
    here: Path, measured: tuple[Path, Result]
) -> None:
    shutil.copytree(measured[0], here / "r")
    path = here / "r" / "trials.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"schema": 1, "ki')
    done = stoker("bench", "simulated:samples=64", *SMALL, "--run", "r")
    assert done.exit_code == 0, done.output
    assert "4 trials are in r/trials.jsonl, 0 are left" in done.output
    assert "line 5 was left out" in done.output
    assert path.read_text() == whole + '{"schema": 1, "ki'


def test_a_target_that_raises_in_sample_3_is_reported_and_the_sweep_goes_on(here: Path) -> None:
    (here / "sour_data.py").write_text(
        "class Sour(list):\n    def __getitem__(self, index):\n        if index == 3:\n"
        "            raise KeyError('sample 3')\n        return super().__getitem__(index)\n"
        "def make():\n    return Sour(range(16))\n"
    )
    done = stoker("bench", "sour_data:make", "simulated:samples=64", *SMALL, "--run", "r")
    assert done.exit_code == 0, done.output
    records = Run(here / "r").load()[0]
    assert {record.setting.dataset for record in records if record.trial} == {"simulated:samples=64"}
    assert {record.failure.place.partition("sour_data.py")[2] for record in records if record.failure} == {
        ":4 in __getitem__"
    }
    assert "sour_data.py:4 in __getitem__" in "".join(line.strip() for line in done.output.splitlines())


def test_if_everything_fails_so_does_the_command(here: Path) -> None:
    (here / "sourer_data.py").write_text("class Sour(list):\n    def __getitem__(self, index):\n        1 / 0\n"
                                         "def make():\n    return Sour(range(16))\n")  # fmt: skip
    assert stoker("bench", "sourer_data:make", *SMALL, "--run", "r").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_module:make"], "there is no module 'no_such_module'"),
        (["."], "no pictures under ."),
        (["simulated", "--workers", "two"], "--workers: 'two' is not among numbers from 0, auto"),
        (["simulated", "--loaders", "tensorflow"], "--loaders: 'tensorflow' is not among torch, stoker"),
        (["simulated", "--batch-sizes", "0"], "--batch-sizes: '0' is not among numbers from 1"),
        (["simulated", "--sleep", "-1"], "--sleep: '-1' is not among numbers from 0, none"),
        (["simulated", "--scale", "0"], "a scale is greater than 0"),
        (["simulated", "--loaders", "torch", "--workers", "auto"], "nothing to measure"),
    ],
)
def test_bad_input_ends_with_status_2_and_says_what_is_wrong(here: Path, arguments: list[str], message: str) -> None:
    done = stoker("bench", *arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert not (here / "runs").exists()


def test_a_run_measured_otherwise_is_not_mixed(here: Path, measured: tuple[Path, Result]) -> None:
    shutil.copytree(measured[0], here / "r")
    done = stoker("bench", "simulated:samples=64", "--batches", "5", "--run", "r")
    assert done.exit_code == 2
    assert "was measured otherwise" in done.output


def test_a_report_is_made_of_a_run(here: Path) -> None:
    stoker("bench", "simulated:samples=64", *SMALL, "--run", "r", "--timeline", "4")
    done = stoker("report", "r", "--plots")
    assert done.exit_code == 0, done.output
    assert "<title>Stoker: r</title>" in (here / "r" / "report.html").read_text()
    assert {"timeline.png", "timeline.svg", "time-over-workers.png"} <= {
        path.name for path in (here / "r/plots").iterdir()
    }


def test_a_report_of_nothing_says_how_to_get_something(here: Path) -> None:
    assert "no trials.jsonl in nowhere" in stoker("report", "nowhere").output
    (here / "r").mkdir()
    (here / "r" / "trials.jsonl").write_text("broken\n")
    done = stoker("report", "r")
    assert done.exit_code == 2
    assert "line 1 was left out" in done.output
    assert "holds no readable trial" in done.output
