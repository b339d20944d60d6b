"""The table and the verdict say what the records say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from tests.report.scripted import HOSTILE, record, records

from stoker.bench.groups import group
from stoker.bench.runs import TrialRecord
from stoker.bench.settings import Setting
from stoker.bench.statistics import summarise
from stoker.report.table import figure, memory_note, notes_of, table_of, with_deviation
from stoker.report.verdict import verdicts


def lines_of(table: Any, width: int = 160) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def test_the_table_has_a_row_a_setting_with_mean_and_deviation() -> None:
    rows = [line.split() for line in lines_of(table_of(group(records(sleeps_s=(0.0,))), "title"))]
    wanted = ["stoker", "16", "2", "600", "±", "30", "-", "71.2", "±", "3.6", "250", "±", "0", "2", "±", "0"]
    assert wanted in rows
    assert ["torch", "8", "4", "failed", "✗"] in rows


def test_only_what_varies_has_a_column() -> None:
    head = "\n".join(lines_of(table_of(group(records(sleeps_s=(0.0,))), "title"))[:5])
    assert "batch" in head
    assert not any(word in head for word in ("dataset", "model", "lanes", "prefetch", "pinned"))


def test_a_narrow_terminal_gets_fewer_columns() -> None:
    lines = lines_of(table_of(group(records(sleeps_s=(0.0,))), "title", width=80), width=80)
    assert "memory" not in "\n".join(lines)
    assert all(line.count("±") in (0, 2) for line in lines[1:])


def test_how_often_memory_was_looked_at_is_told() -> None:
    assert memory_note(records()).startswith("peak memory: the most of 3 looks a trial")
    fewer = replace(record(Setting("d", "torch", 8, 0), 0, 100.0), memory_samples=1)
    assert "the most of 1 to 3 looks" in memory_note([fewer, *records()])
    assert memory_note([]) == ""


def test_names_are_not_taken_for_markup() -> None:
    groups = group([*records(HOSTILE, (0.0,)), *records("b", (0.0,))])
    joined = "".join(line.strip() for line in lines_of(table_of(groups, HOSTILE), width=400))
    assert HOSTILE in joined


def test_failures_and_doubts_are_told_with_what_to_do() -> None:
    setting = Setting("photos", "torch", 8, 0)
    shaky = [record(setting, repeat, speed) for repeat, speed in enumerate((100.0, 250.0))]
    failed = [found for found in records() if found.failure is not None]
    notes = notes_of(group([*shaky, *failed]))
    assert notes == [
        "failed, torch, 4 workers: photos: KeyError at data.py:12 in __getitem__: 'no label'",
        "unstable, torch, 0 workers: a pass took only 0.26 s: more --batches",
    ]


def test_the_same_failure_of_many_settings_is_one_note() -> None:
    failed = next(found for found in records() if found.failure is not None)
    many = [TrialRecord(Setting("photos", "torch", 8, count), 0, failure=failed.failure) for count in range(3)]
    [note] = notes_of(group(many))
    assert note.startswith("failed, 3 settings (torch, 0 workers and others): photos: KeyError")


def test_figures_have_three_digits_and_deviations_as_many_decimals() -> None:
    assert [figure(value) for value in (0, 0.08432, 1.2399, 172.4, 168174.8)] == [
        "0",
        "0.0843",
        "1.24",
        "172",
        "168,175",
    ]
    assert with_deviation(summarise([1.2, 1.3])) == "1.25 ± 0.07"
    assert with_deviation(summarise([1200.0, 1300.0])) == "1,250 ± 71"
    assert with_deviation(summarise([0.0000123, 0.0000125])) == "1.24e-05 ± 1.4e-07"
    assert with_deviation(summarise([5.0])) == "5"


def test_the_verdict_names_the_faster_loader_and_by_how_much() -> None:
    first = verdicts(group(records(sleeps_s=(0.0,))))[0]
    assert first == (
        "photos, no model: Stoker is 2.00 times as fast as torch's loader: Stoker (2 workers, batch 8) 600 ± 30 "
        "samples/s, torch at its best (2 workers, batch 8) 300 ± 15 samples/s."
    )


@pytest.mark.parametrize(
    ("stoker", "torch", "words"),
    [
        ((100.0, 104.0), (101.0, 99.0), "no difference that the repeats can show"),
        ((50.0, 51.0), (100.0, 101.0), "torch's loader is 1.99 times as fast as Stoker"),
        ((100.0, 200.0), (110.0, 120.0), "no difference"),
    ],
)
def test_a_difference_must_be_larger_than_the_repeats_own(
    stoker: tuple[float, ...], torch: tuple[float, ...], words: str
) -> None:
    made = [record(Setting("d", "stoker", 8, 1), repeat, speed) for repeat, speed in enumerate(stoker)]
    made += [record(Setting("d", "torch", 8, 1), repeat, speed) for repeat, speed in enumerate(torch)]
    assert words in verdicts(group(made))[0]


@pytest.mark.parametrize(
    ("sleep_s", "words"),
    [(0.01, "loading is the bottleneck"), (1.0, "loading is on the edge"), (4.0, "loading is not the bottleneck")],
)
def test_whether_the_model_waits_decides_what_is_the_bottleneck(sleep_s: float, words: str) -> None:
    # 8 batches of 8 at 64 samples/s: 1 s of waiting, 2/3 s of it in seven later steps, 95 ms each.
    [_, line, *_] = verdicts(group([record(Setting("d", "stoker", 8, 1, sleep_s=sleep_s), 0, 64.0)]))
    assert words in line


def test_only_settings_that_both_loaders_were_measured_with_are_compared() -> None:
    stopped = [
        record(Setting("d", "torch", 8, 0), 0, 100.0),
        record(Setting("d", "stoker", 8, 0), 0, 150.0),
        record(Setting("d", "torch", 8, 2), 0, 900.0),
    ]
    assert "Stoker is 1.50 times as fast" in verdicts(group(stopped))[0]
    chosen = record(Setting("d", "stoker", 8, "auto"), 0, 300.0)
    assert "Stoker is 3.00 times as fast" in verdicts(group([*stopped, chosen]))[0]


def test_a_loader_alone_is_described_without_a_comparison() -> None:
    [line, *_] = verdicts(group([record(Setting("m:f", "given"), 0, 64.0)]))
    assert line == "m:f, no model: given (as given) gives 64 ± 0 samples/s."


def test_no_records_give_a_sentence_too() -> None:
    assert verdicts([]) == ["There is no trial in these records yet."]
