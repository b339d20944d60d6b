"""A loader needs torch and numpy alone; whatever needs more says which extra brings it.

The packages of the extras are hidden from a real process and from every worker that it starts (`sitecustomize` is
imported by each Python before anything else), as if they had never been installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
TOOLS = {"PIL" if line.startswith("pillow") else line.partition(">")[0] for line in EXTRAS["tools"]}
HIDDEN = TOOLS | {"lightning", "pytorch_lightning", "accelerate"}

HIDING = f"""
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {HIDDEN} else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Hiding, sys.meta_path)
"""

TRAINING = """
import sys
from pathlib import Path

import numpy as np
import stoker

class Squares:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return np.float32(index * index)

def loaders():
    yield dict(num_workers=0)
    yield dict(num_workers=2, multiprocessing_context="fork")
    yield dict(num_workers=1, multiprocessing_context="spawn")
    yield dict(workers=stoker.Workers(threads=2), on_error="skip")
    yield dict(num_workers="auto")

def main():
    for number, arguments in enumerate(loaders()):
        loader = stoker.DataLoader(Squares(), batch_size=8, shuffle=True, seed=3, **arguments)
        loader.trace(f"trace-{number}.json")
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        assert len(list(batches)) == 7
        assert loader.stats().steps == 8
        str(loader.stats())
        loader.load_state_dict(state)
        assert len(list(loader)) == 7
        assert Path(f"trace-{number}.json").stat().st_size
    loader = stoker.DataLoader(Squares(), 8, num_workers=1, multiprocessing_context="fork")
    with stoker.prefetch(loader, by="process", start_method="fork") as ahead:
        next(iter(ahead))
    assert len(list(stoker.to_device(stoker.DataLoader(Squares(), 8), "cpu"))) == 8

if __name__ == "__main__":
    main()
"""

DOORS = """
def diagnose(): from stoker.diagnosis import diagnose
def tune(): from stoker.tuning import tune
def page(): from stoker.report.page import page_of; page_of([], "nothing")
def plots(): from stoker.report.plots import new_figure; new_figure("nothing", 1)
def table(): from stoker.report.table import table_of; table_of([], "nothing")
def faces(): from stoker.bench.datasets.faces import draw_faces; draw_faces("faces", 1)
def digits(): from stoker.bench.datasets.digits import draw_digits; draw_digits(1)
def module(): from stoker.lightning import DataModule
def callback(): from stoker.integrations.logging import StatsCallback
def prepare(): from stoker.integrations.accelerate import prepare

for door in (diagnose, tune, page, plots, table, faces, digits, module, callback, prepare):
    try:
        door()
    except Exception as error:
        print(door.__name__, type(error).__name__, error)
"""
PACKAGES = {
    "diagnose": ("psutil", "tools"),
    "tune": ("psutil", "tools"),
    "page": ("plotly", "tools"),
    "plots": ("matplotlib", "tools"),
    "table": ("rich", "tools"),
    "faces": ("PIL", "tools"),
    "digits": ("PIL", "tools"),
    "module": ("lightning", "lightning"),
    "callback": ("lightning", "lightning"),
    "prepare": ("accelerate", "accelerate"),
}

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run Python where no extra is installed."""
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
        )

    return run


def test_a_training_run_needs_none_of_the_tools(run: Run, tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text(TRAINING)
    done = run("training.py")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("demo",), ("top", "--once")], ids=" ".join)
def test_the_command_says_in_one_line_what_to_install(run: Run, arguments: tuple[str, ...]) -> None:
    done = run("-c", "from stoker.cli import main; main()", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "stoker: rich is not installed: pip install 'stoker[tools]'\n"


def test_what_a_program_calls_says_what_to_install(run: Run) -> None:
    done = run("-c", DOORS)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"{door} MissingExtra {package} is not installed: pip install 'stoker[{extra}]'"
        for door, (package, extra) in PACKAGES.items()
    ]


def test_what_is_always_installed_is_what_a_loader_needs() -> None:
    assert {line.partition(">")[0] for line in PROJECT["dependencies"] if ";" not in line} == {"numpy", "torch"}


def test_all_has_every_extra_but_the_developers() -> None:
    assert EXTRAS["all"] == [f"stoker[{','.join(name for name in EXTRAS if name not in ('all', 'dev'))}]"]
