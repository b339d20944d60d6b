"""From facts to a cause, to what is tried, to words: every rule, without a clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as assume
from hypothesis import strategies as st

from stoker.diagnosis import Cause, Change, Diagnosis, TriedChange, diagnosis_from_json
from stoker.diagnosis.facts import Facts, GivenLoader, Inside, Pace, Sample
from stoker.diagnosis.judge import is_held_up, judge, keeps_up
from stoker.diagnosis.parts import computers, parts_of
from stoker.diagnosis.suspects import applied, suspects
from stoker.diagnosis.words import ADVICE, numbers, verdict
from stoker.options import Workers

SAMPLE = Sample(16, 0.001, 0.0, 0.0, 0.001, 0.001, 1000, 0.0)
MAP = GivenLoader("torch", "map", cores=4, batches=1000, batch_size=16)


def pace(step_s: float, first_s: float | None = None, model_s: float = 0.0, **more: Any) -> Pace:
    return Pace(step_s if first_s is None else first_s, step_s, model_s, rows=16, batches=50, **more)


def facts(given: GivenLoader, load_s: float, model_s: float | None = None, step_s: float = 0.0, **more: Any) -> Facts:
    """A loader that takes `load_s` a batch, a model that takes `model_s`, both together `step_s`."""
    more.setdefault("inside", Inside(SAMPLE))
    together = None if model_s is None else pace(step_s, model_s=model_s)
    return Facts(given, pace(load_s), model_s, together=together, **more)


def sample(seconds: float, **more: Any) -> Inside:
    return Inside(replace(SAMPLE, seconds=seconds, median_s=seconds, longest_s=seconds, **more))


def tried(gain: float, **arguments: Any) -> TriedChange:
    return TriedChange(Change(arguments), (gain,), (1.0,))


WITH = replace(MAP, processes=4, prefetch=2)
LANES = replace(MAP, kind="stoker", lanes=4)


@pytest.mark.parametrize(
    ("cause", "seen"),
    [
        (Cause.MODEL, facts(WITH, 0.010, 0.050, 0.052)),
        (Cause.TOO_FEW_WORKERS, facts(MAP, 0.010, 0.050, 0.060)),
        (Cause.PREFETCH, facts(WITH, 0.030, 0.050, 0.075)),
        (Cause.COPYING, facts(WITH, 0.010, 0.050, 0.100, copy_s=0.048)),
        (Cause.STORAGE, facts(WITH, 0.040, 0.005, 0.041, inside=sample(0.010, waiting=0.9))),
        (Cause.DECODING, facts(WITH, 0.040, 0.005, 0.041, inside=sample(0.010))),
        (Cause.TOO_FEW_WORKERS, facts(MAP, 0.160, 0.005, 0.165, inside=sample(0.010))),
        (Cause.TOO_FEW_WORKERS, facts(replace(WITH, processes=2), 0.080, 0.005, 0.081, inside=sample(0.010))),
        (Cause.GIL, facts(LANES, 0.160, 0.005, 0.161, inside=sample(0.010, gil_held=1.0))),
        (Cause.DECODING, facts(LANES, 0.040, 0.005, 0.041, inside=sample(0.010))),
        (Cause.COLLATING, facts(MAP, 0.060, 0.005, 0.065, inside=replace(sample(0.001), collate_s=0.044))),
        (
            Cause.COLLATING,
            facts(
                replace(WITH, own_collate=True),
                0.020,
                0.005,
                0.021,
                inside=replace(sample(0.001), collate_s=0.05, handed_s=0.014),
            ),
        ),
        (Cause.MOVING, facts(WITH, 0.020, 0.005, 0.021, inside=replace(sample(0.001), collate_s=0.01, handed_s=0.015))),
        (Cause.STRAGGLERS, facts(WITH, 0.080, 0.005, 0.081, inside=Inside(replace(SAMPLE, longest_s=0.1)))),
        (Cause.TOO_MANY_WORKERS, facts(WITH, 0.080, 0.005, 0.081, inside=sample(0.001))),
    ],
)
def test_a_cause_follows_from_what_was_measured(cause: Cause, seen: Facts) -> None:
    assert judge(seen) is cause


def test_the_start_of_a_short_epoch_counts_and_that_of_a_long_one_does_not() -> None:
    short = replace(WITH, batches=10)
    slow = pace(0.006, first_s=0.5, model_s=0.005)
    seen = Facts(short, pace(0.004, first_s=0.5), 0.005, together=slow, inside=Inside(SAMPLE))
    assert judge(seen) is Cause.EPOCH_START
    assert judge(replace(seen, given=replace(short, batches=100_000))) is not Cause.EPOCH_START
    assert judge(replace(seen, model_s=None, together=None)) is Cause.EPOCH_START


def test_an_epoch_that_was_timed_whole_counts_as_it_was() -> None:
    whole = pace(0.005, first_s=0.005, model_s=0.005, epoch_s=1.0, epoch_batches=10)
    assert whole.epoch(1000) == 1.0
    assert whole.per_sample(1000) == pytest.approx(1.0 / 160)
    assert is_held_up(Facts(WITH, pace(0.004), 0.005, together=whole))


def test_workers_that_slow_the_model_down_are_too_many() -> None:
    crowded = Facts(WITH, pace(0.02), 0.05, together=pace(0.1, model_s=0.099), inside=Inside(SAMPLE))
    assert judge(crowded) is Cause.TOO_MANY_WORKERS
    assert judge(crowded, [tried(1.0, num_workers=1)]) is Cause.MODEL  # other programs slow it down, not these
    waiting = replace(crowded, together=pace(0.12, model_s=0.09))
    assert judge(waiting, [tried(1.0, num_workers=1)]) is Cause.MODEL
    alone = replace(crowded, given=replace(WITH, processes=1))
    assert words_of(alone)[0] == "num_workers=0"
    assert judge(alone, [tried(1.5, num_workers=0)]) is Cause.TOO_MANY_WORKERS
    assert "a step takes 99.0 ms in the company of 4 workers, 50.0 ms alone" in verdict(crowded, Cause.TOO_MANY_WORKERS)


def test_threads_that_slow_the_model_down_hold_the_gil() -> None:
    threads = Facts(LANES, pace(0.02), 0.05, together=pace(0.1, model_s=0.099), inside=sample(0.001, gil_held=1.0))
    assert judge(threads) is Cause.GIL
    assert judge(replace(threads, inside=sample(0.001))) is Cause.TOO_MANY_WORKERS


def test_fewer_workers_that_were_quicker_were_too_many() -> None:
    seen = facts(WITH, 0.080, 0.005, 0.081, inside=sample(0.001))
    assert judge(seen, [tried(2.0, num_workers=1)]) is Cause.TOO_MANY_WORKERS
    assert judge(seen, [tried(1.0, num_workers=1)]) is not Cause.TOO_MANY_WORKERS
    assert judge(seen, [tried(1.0, num_workers=1), tried(3.0, num_workers=8)]) is not Cause.TOO_MANY_WORKERS
    decoding = facts(WITH, 0.040, 0.005, 0.041, inside=sample(0.010))
    assert judge(decoding, [tried(1.5, num_workers=2)]) is Cause.TOO_MANY_WORKERS


def test_an_uneven_sample_that_is_quick_all_the_same_holds_nobody_up() -> None:
    seen = facts(WITH, 0.080, 0.005, 0.081, inside=Inside(replace(SAMPLE, longest_s=0.01)))
    assert judge(seen) is not Cause.STRAGGLERS


def test_hands_in_each_others_way_are_also_given_the_cures_of_the_largest_part() -> None:
    inside = replace(sample(0.0001), handed_s=0.01)
    assert words_of(facts(WITH, 0.080, 0.005, 0.081, inside=inside)) == [
        "num_workers=1",
        "num_workers=2",
        "stoker.DataLoader with the same arguments",
        "num_workers=0",
    ]


def test_the_rule_is_that_the_loader_alone_is_as_quick_as_the_model_alone() -> None:
    assert keeps_up(facts(MAP, 0.050, 0.050, 0.1))
    assert not keeps_up(facts(MAP, 0.051, 0.050, 0.1))
    assert not keeps_up(facts(MAP, 0.051))


@pytest.mark.parametrize(("busy", "cause"), [(0.1, Cause.STORAGE), (1.0, Cause.DECODING)])
def test_a_hidden_loader_computes_or_waits(busy: float, cause: Cause) -> None:
    seen = Facts(GivenLoader("given", "hidden", 4), replace(pace(0.05), busy_cores=busy))
    assert judge(seen) is cause
    assert suspects(seen) == []
    assert "cores compute" in verdict(seen, cause)


def test_parts_divide_costs_by_those_who_share_them() -> None:
    seen = facts(WITH, 0.1, inside=replace(sample(0.008, waiting=0.5), collate_s=0.001, handed_s=0.002))
    parts = parts_of(seen)
    assert parts is not None
    assert (parts.waiting_s, parts.computing_s) == pytest.approx((0.016, 0.016))
    assert (parts.collating_s, parts.moving_s, parts.rest_s) == pytest.approx((0.0, 0.002, 0.066))
    assert parts_of(Facts(WITH, pace(0.1))) is None


@assume(st.integers(0, 8), st.integers(1, 8), st.floats(0, 1))
def test_at_most_the_cores_compute_and_threads_only_without_the_gil(processes: int, lanes: int, held: float) -> None:
    setting = replace(MAP, processes=processes, lanes=lanes)
    number = computers(setting, replace(SAMPLE, gil_held=held))
    assert 1.0 <= number <= setting.cores
    assert computers(setting, replace(SAMPLE, gil_held=1.0)) == min(setting.cores, max(1, processes))


def words_of(seen: Facts) -> list[str]:
    return [str(change) for change in suspects(seen)]


def test_changes_are_keyword_arguments_one_would_write() -> None:
    assert words_of(facts(WITH, 0.040, 0.005, 0.041, inside=sample(0.010, waiting=0.9))) == [
        "stoker.DataLoader with workers=stoker.Workers(processes=4, threads=16)",
        "stoker.DataLoader with workers=stoker.Workers(processes=4, threads=32)",
        "stoker.DataLoader with the same arguments",
    ]
    assert words_of(facts(WITH, 0.010, 0.050, 0.052)) == []
    assert words_of(facts(WITH, 0.030, 0.050, 0.075))[0] == "prefetch_factor=8"
    assert words_of(facts(LANES, 0.160, inside=sample(0.010, gil_held=1.0)))[0] == (
        "workers=stoker.Workers(processes=4)"
    )


def test_as_many_workers_as_the_model_needs_are_tried_and_as_many_as_there_are_cores() -> None:
    given = replace(MAP, cores=64)
    assert words_of(facts(given, 0.160, 0.08, 0.24, inside=sample(0.010)))[:3] == [
        "num_workers=1",
        "num_workers=3",
        "num_workers=16",
    ]


def test_what_only_an_accelerator_can_is_tried_only_there() -> None:
    seen = facts(WITH, 0.010, 0.050, 0.100, copy_s=0.048)
    assert words_of(seen) == []
    assert words_of(replace(seen, given=replace(WITH, can_pin=True))) == ["pin_memory=True"]
    assert words_of(replace(seen, given=replace(WITH, can_pin=True, pins=True))) == []


def test_the_collate_fn_is_dropped_only_where_the_default_gives_the_same() -> None:
    inside = replace(sample(0.001), collate_s=0.05, handed_s=0.014)
    seen = facts(replace(WITH, own_collate=True), 0.020, inside=inside)
    assert "collate_fn=None" not in words_of(seen)
    assert words_of(replace(seen, inside=replace(inside, default_collate_fits=True)))[0] == "collate_fn=None"


def test_an_iterable_dataset_is_never_split_over_more_workers() -> None:
    for processes in (0, 1, 4):
        for waiting in (0.0, 0.9):
            given = replace(MAP, dataset="iterable", processes=processes)
            for change in suspects(facts(given, 0.2, 0.05, 0.21, inside=sample(0.01, waiting=waiting))):
                asked = change.arguments.get("num_workers", processes)
                assert "workers" not in change.arguments or change.arguments["workers"].lanes == 1
                assert asked == processes or (processes, asked) in ((0, 1), (1, 0))


def test_a_change_keeps_the_rest_of_the_loaders_own_workers() -> None:
    own = Workers(processes=2, start_method="fork", max_restarts=7, share="rows")
    change = applied(Change({"workers": Workers(processes=4, threads=16)}), own)
    assert change.arguments["workers"] == replace(own, processes=4, threads=16)
    assert applied(Change({"num_workers": 4}), own) == Change({"num_workers": 4})


def test_a_promise_is_the_least_of_all_rounds() -> None:
    twice = TriedChange(Change({"num_workers": 2}), (3.0, 4.0), (1.0, 2.0))
    assert (twice.gains, twice.gain, twice.promise) == ([3.0, 2.0], 2.5, 2.0)
    failed = TriedChange(Change({"num_workers": 9}), failure="OSError: too many")
    better = TriedChange(Change({}, "stoker"), (9.0, 9.0), (1.0, 1.0))
    little = TriedChange(Change({"num_workers": 1}), (9.0, 1.1), (1.0, 1.0))
    found = Diagnosis(Cause.DECODING, "", facts(WITH, 0.1), (twice, failed, better, little))
    assert found.changes == [better, twice]


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("model_s", [None, 0.0, 0.05])
def test_every_cause_has_words_for_every_kind_of_facts(cause: Cause, model_s: float | None) -> None:
    if cause in (Cause.GIL, Cause.STRAGGLERS, Cause.SAMPLER):
        seens = [facts(WITH, 0.1, model_s, 0.2)]  # only known from a look inside
    else:
        seens = [facts(WITH, 0.1, model_s, 0.2), Facts(MAP, pace(0.1), model_s, together=pace(0.2))]
    for seen in seens:
        if cause is Cause.MODEL and model_s is None:
            continue
        sentence = verdict(seen, cause)
        assert cause.value in sentence
        assert sentence.endswith(".")
        assert all(name and text for name, text in numbers(seen))
        assert isinstance(ADVICE[cause], str)


def test_doubts_are_told_with_the_numbers() -> None:
    quiet = facts(WITH, 0.1)
    assert "beware" not in dict(numbers(quiet))
    assert "1.5 times its time" in dict(numbers(replace(quiet, crowding=1.5)))["beware"]
    assert "crowded: computing takes 2.5 times" in dict(numbers(replace(quiet, crowding=2.5)))["beware"]
    disk = replace(quiet, rereads=True, inside=sample(0.01, read_bytes=5e4))
    assert "page cache" in dict(numbers(disk))["beware"]
    blind = replace(quiet, inside=Inside(trouble="KeyError at data.py:3 in __getitem__: 7"))
    assert dict(numbers(blind))["could not be looked into"].startswith("KeyError at data.py:3")


def test_a_diagnosis_survives_a_file() -> None:
    change = Change({"workers": Workers(processes=2, threads=8), "collate_fn": None}, "stoker")
    seen = facts(WITH, 0.1, 0.05, 0.2)
    found = Diagnosis(Cause.STORAGE, "why", seen, (TriedChange(change, (2.0,), (1.0,)),), (("a", "b"),), "advice")
    assert diagnosis_from_json(found.to_json()) == found
    plain = Diagnosis(Cause.STORAGE, "why", Facts(MAP, pace(0.1)))
    assert diagnosis_from_json(plain.to_json()) == plain
