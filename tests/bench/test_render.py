"""A record becomes a table; the page around it stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.render import BEGIN, END, figure, render, render_into, replace_between, target

from stoker.bench import CaseRecord, Finding, Record

FASTER = Finding("faster", "at least", 8, 9.512, "× torch", "Stoker 9.5 GB/s, torch 1.0 GB/s")
SLOWER = Finding("first batch", "at most", 0.6, 0.75, "× torch")
RECORD = Record(
    {"cores": 2, "processor": "a processor", "memory_gib": 24.0, "system": "Linux 6"},
    {"python": "3.11.7", "torch": "2.13.0"},
    {
        "speed": CaseRecord(
            "?", "-", (FASTER,), {"stoker, GB/s": (9.4, 9.5, 9.6)}, "2026-01-02T00:00:00+00:00", 9, 0.4
        ),
        "start": CaseRecord("?", "-", (SLOWER,), {"stoker, s": (0.5, 0.75, 1.5)}, "2026-01-01T00:00:00+00:00", 9, 0.2),
    },
)
PAGE = f"# Title\n\nbefore\n\n{BEGIN.format(name='x')}\nold\n{END.format(name='x')}\n\nafter\n"


def test_every_finding_has_a_row_with_target_measured_and_verdict() -> None:
    rows = render(RECORD).splitlines()
    assert "| faster | ≥ 8 × torch | 9.51 × torch | pass | Stoker 9.5 GB/s, torch 1.0 GB/s |" in rows
    assert "| first batch | ≤ 0.6 × torch | 0.75 × torch | **short** |  |" in rows


def test_every_series_has_a_row_and_unsteady_ones_are_marked() -> None:
    rows = render(RECORD).splitlines()
    assert "| speed | stoker, GB/s | 3 | 9.4 | 9.5 | 9.6 |  |" in rows
    assert "| start | stoker, s | 3 | 0.5 | 0.75 | 1.5 | unsteady |" in rows


def test_machine_versions_and_dates_stand_above_the_table() -> None:
    first = render(RECORD).splitlines()[0]
    assert "2 cores (a processor), 24.0 GiB, Linux 6; python 3.11.7, torch 2.13.0." in first
    assert "2026-01-01T00:00:00+00:00 to 2026-01-02T00:00:00+00:00, load before a case at most 0.4." in first


def test_only_what_lies_between_the_markers_changes() -> None:
    page = replace_between(PAGE, "x", "new")
    assert page == PAGE.replace("\nold\n", "\n\nnew\n\n")
    assert replace_between(page, "x", "new") == page


def test_a_page_is_rendered_in_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    render_into(page, RECORD, "x")
    assert render(RECORD) in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["no markers", PAGE + PAGE, PAGE.replace("begin", "@").replace("end", "begin")])
def test_a_page_without_its_two_markers_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="the page needs one line"):
        replace_between(page, "x", "new")


def test_figures_have_three_digits() -> None:
    assert [figure(value) for value in (0.0, 0.08432, 1.2399, 15.06, 172.4, 168174.8)] == [
        "0",
        "0.0843",
        "1.24",
        "15.1",
        "172",
        "168,175",
    ]


def test_a_target_reads_as_a_bound() -> None:
    assert target(SLOWER) == "≤ 0.6 × torch"


def test_the_benchmark_page_shows_the_saved_record() -> None:
    root = Path(__file__).parents[2]
    record = root / "benchmarks" / "results" / "engine.json"
    if not record.exists():
        pytest.skip("nothing was measured yet: make bench")
    from stoker.bench import load_record

    page = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert replace_between(page, "engine.json", render(load_record(record))) == page


def test_the_page_on_bottlenecks_shows_the_saved_record_of_overlap() -> None:
    root = Path(__file__).parents[2]
    record = root / "benchmarks" / "results" / "overlap.json"
    if not record.exists():
        pytest.skip("nothing was measured yet: python benchmarks/overlap_page.py")
    from stoker.bench import load_record

    page = (root / "docs" / "is-loading-my-bottleneck.md").read_text(encoding="utf-8")
    assert replace_between(page, "overlap.json", render(load_record(record))) == page
