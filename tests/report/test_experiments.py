"""The pages of the experiments show the saved records, and what is computed for them is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.experiment_pages import PAGES, body_of, peak_share
from benchmarks.render import replace_between

from stoker.bench.groups import group
from stoker.bench.runs import Run, TrialRecord
from stoker.bench.settings import Setting
from stoker.bench.trial import Trial

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "experiments"
DOCS = ROOT / "docs" / "experiments"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_its_saved_records(name: str) -> None:
    records, problems = Run(RESULTS / name).load()
    if not records:
        pytest.skip(f"nothing was measured yet: python benchmarks/experiments.py {name}")
    page = (DOCS / PAGES[name]).read_text(encoding="utf-8")
    assert problems == []
    assert replace_between(page, f"experiments/{name}", body_of(name, records)) == page


@pytest.mark.parametrize("name", PAGES)
def test_every_picture_of_a_page_exists_and_is_small(name: str) -> None:
    pictures = [
        line.split("](")[1].rstrip(")") for line in (DOCS / PAGES[name]).read_text().splitlines() if line[:2] == "!["
    ]
    assert pictures
    assert [path for path in pictures if not (DOCS / path).exists()] == []
    assert all((DOCS / path).stat().st_size < 150_000 for path in pictures)


def waits(*values: float) -> TrialRecord:
    return TrialRecord(Setting("d", "torch", 8, 2), 0, trial=Trial(8, 8, 0.0, values, (0.0,) * len(values), 0.0))


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ((9.0, 9.0, 1.0, 0.0, 1.0, 0.0), 1.0),
        ((9.0, 9.0, 1.0, 1.0, 1.0, 1.0), 0.5),
        ((9.0, 9.0, 0.0, 3.0, 0.0, 1.0, 7.0), 1.0),  # half a round at the end is not counted
    ],
)
def test_the_share_of_peaks_is_all_or_even(values: tuple[float, ...], share: float) -> None:
    [found] = group([waits(*values)])
    assert peak_share(found, 2) == share
