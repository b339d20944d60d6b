"""A sweep is a product without what does not exist and without doubles; a plan takes turns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.bench.plan import Plan, check_continues, load_plan, rounds, save_plan
from stoker.bench.settings import Setting, Sweep, varied

FACTS = {"machine": {"cores": 2}, "versions": {"torch": "2.13.0"}}


def test_torch_has_neither_lanes_nor_auto() -> None:
    settings = Sweep(("d",), workers=(1, "auto"), lanes=(1, 4)).settings()
    assert {(s.workers, s.lanes) for s in settings if s.loader == "torch"} == {(1, 1)}
    assert {(s.workers, s.lanes) for s in settings if s.loader == "stoker"} == {
        (1, 1),
        (1, 4),
        ("auto", 1),
        ("auto", 4),
    }


def test_inline_prefetches_nothing_so_it_is_measured_once() -> None:
    settings = Sweep(("d",), loaders=("torch",), workers=(0, 2), prefetch=(2, 4)).settings()
    assert [(s.workers, s.prefetch) for s in settings] == [(0, None), (2, 2), (2, 4)]


def test_a_ready_made_loader_is_varied_in_the_model_alone() -> None:
    settings = Sweep(("m:loader",), workers=(0, 1), sleeps_s=(0.0, 2.0)).settings(given={"m:loader"})
    assert settings == [Setting("m:loader", "given"), Setting("m:loader", "given", sleep_s=2.0)]


def test_a_sweep_of_nothing_is_refused_with_what_to_add() -> None:
    with pytest.raises(ValueError, match=r"nothing to measure.*--loaders stoker"):
        Sweep(("d",), loaders=("torch",), workers=("auto",)).settings()


@given(
    st.lists(st.integers(1, 64), min_size=1, max_size=3),
    st.lists(st.one_of(st.integers(0, 4), st.just("auto")), min_size=1, max_size=3),
    st.lists(st.integers(1, 3), min_size=1, max_size=2),
)
def test_no_setting_stands_twice(sizes: list[int], workers: list[int | str], lanes: list[int]) -> None:
    sweep = Sweep(("d",), ("stoker", "torch"), tuple(sizes), tuple(workers), tuple(lanes))
    keys = [setting.key for setting in sweep.settings()]
    assert len(keys) == len(set(keys))


def test_scaling_keeps_the_proportion_of_batch_and_model() -> None:
    scaled = Sweep(("d",), batch_sizes=(32, 256), sleeps_s=(0.0, 2.0)).scaled(1 / 8)
    assert (scaled.batch_sizes, scaled.sleeps_s) == ((4, 32), (0.0, 0.25))
    assert Sweep(("d",), batch_sizes=(1, 2)).scaled(0.1).batch_sizes == (1,)
    with pytest.raises(ValueError, match="greater than 0"):
        scaled.scaled(0)


def test_rounds_take_turns_and_every_second_one_runs_backwards() -> None:
    one, two = Setting("d", "torch"), Setting("d", "stoker")
    assert [(turn.setting, turn.repeat) for turn in rounds([one, two], 3, timeline=False)] == [
        (one, 0),
        (two, 0),
        (two, 1),
        (one, 1),
        (one, 2),
        (two, 2),
    ]


@given(st.integers(1, 5), st.booleans())
def test_a_plan_measures_every_setting_as_often_as_it_says(repeats: int, timeline: bool) -> None:
    plan = Plan(Sweep(("d",), workers=(0, 1)), repeats=repeats, timeline=8 if timeline else 0)
    counts = Counter((turn.setting, turn.kind) for turn in plan.turns())
    assert set(counts.values()) == ({repeats, 1} if timeline else {repeats})
    assert len(counts) == 4 * (1 + timeline)


def test_a_saved_plan_is_read_again(tmp_path: Path) -> None:
    plan = Plan(Sweep(("d",), workers=(0, "auto")), repeats=3, batches=None)
    save_plan(plan, tmp_path, FACTS)
    assert load_plan(tmp_path) == (plan, FACTS)
    assert load_plan(tmp_path / "elsewhere") is None


def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"sweep": 3}')
    with pytest.raises(ValueError, match=r"plan\.json cannot be read"):
        load_plan(tmp_path)


def test_a_larger_plan_continues_a_smaller_one(tmp_path: Path) -> None:
    plan = Plan(Sweep(("d",)), repeats=2)
    save_plan(plan, tmp_path, FACTS)
    check_continues(tmp_path, replace(plan, repeats=9, sweep=Sweep(("d", "e"))), FACTS)


def test_a_plan_measured_otherwise_is_not_continued_and_the_rows_that_differ_are_shown(tmp_path: Path) -> None:
    plan = Plan(Sweep(("d",)), batches=100)
    save_plan(plan, tmp_path, FACTS)
    with pytest.raises(ValueError, match="batches") as caught:
        check_continues(tmp_path, replace(plan, batches=7), {**FACTS, "versions": {"torch": "2.14.0"}})
    rows = [line.split() for line in str(caught.value).splitlines()]
    assert ["batches", "100", "7"] in rows
    assert ["versions.torch", "2.13.0", "2.14.0"] in rows
    assert not any(row[:1] == ["warmup"] for row in rows)


def test_labels_name_only_what_is_asked_for() -> None:
    setting = Setting("photos", "stoker", 64, 1, sleep_s=0.5)
    assert setting.label({"loader", "workers", "batch_size"}) == "stoker, 1 worker, batch 64"
    assert setting.label({"dataset", "model"}) == "photos, model sleep 0.5 s"
    assert varied([setting, replace(setting, sleep_s=0.0, workers=2)]) == {"workers", "model"}
