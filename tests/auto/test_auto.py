"""`num_workers="auto"`: what is chosen for what was measured, rule by rule, and that the loader says and does so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, TensorDataset

import stoker
from stoker.auto import choice as auto
from stoker.auto.choice import choose, from_probe
from stoker.auto.forecast import INLINE, crews, forecast, process_counts, ranked
from stoker.auto.probe import Probe
from stoker.auto.tuned import Tuned
from stoker.options import Workers

steady = settings(deadline=None, derandomize=True)  # the same examples every run, however busy the machine
COMPUTING = Probe(samples=32, seconds=0.001, waiting=0.0, gil_held=1.0, sample_bytes=1000, length=10_000)
WAITING = replace(COMPUTING, seconds=0.05, waiting=0.99)


def chosen(measured: Probe, cores: int = 2, start_method: str = "fork", pickled: bool = True) -> tuple[int, int]:
    workers = from_probe(measured, cores, start_method, lambda: 100 if pickled else None).workers
    return workers.processes, workers.lanes


def test_samples_that_compute_get_a_process_for_each_core() -> None:
    assert chosen(COMPUTING) == (2, 1)
    assert chosen(replace(COMPUTING, length=1_000_000), cores=8) == (8, 1)


def test_half_a_second_of_computing_is_shared_between_two_forked_processes() -> None:
    faces = replace(COMPUTING, seconds=0.00085, length=600, sample_bytes=750_008)
    assert chosen(faces) == (2, 1)


def test_an_epoch_that_ends_before_workers_would_be_there_is_loaded_inline() -> None:
    assert chosen(replace(COMPUTING, length=100)) == (0, 1)


def test_workers_that_import_torch_anew_need_an_epoch_of_many_seconds() -> None:
    assert chosen(COMPUTING, start_method="spawn") == (0, 1)
    assert chosen(replace(COMPUTING, length=60_000), start_method="spawn") == (2, 1)


def test_more_cores_than_a_short_epoch_can_use_are_left_alone() -> None:
    processes, lanes = chosen(replace(COMPUTING, length=500), cores=16)
    assert 2 <= processes <= 8
    assert lanes == 1


def test_tiny_samples_are_loaded_inline_however_many_there_are() -> None:
    assert chosen(replace(COMPUTING, seconds=2e-6, length=10**9), cores=16) == (0, 1)


def test_on_one_core_a_long_epoch_is_loaded_beside_the_model() -> None:
    assert chosen(COMPUTING, cores=1) == (1, 1)


def test_samples_that_wait_are_waited_for_by_many_lanes_of_one_process() -> None:
    assert chosen(WAITING) == (1, 32)


def test_samples_that_wait_and_compute_alike_get_lanes_in_every_process() -> None:
    assert chosen(replace(COMPUTING, seconds=0.01, waiting=0.6, gil_held=1.0)) == (2, 4)


def test_what_cannot_be_pickled_gets_threads_where_they_help() -> None:
    long = replace(COMPUTING, length=60_000)
    assert chosen(replace(long, gil_held=0.1), start_method="spawn", pickled=False) == (0, 2)
    assert chosen(replace(long, gil_held=0.9), start_method="spawn", pickled=False) == (0, 1)
    assert chosen(replace(WAITING, length=60_000), start_method="spawn", pickled=False)[0] == 0


def test_what_cannot_be_pickled_and_has_one_core_is_loaded_inline() -> None:
    long = replace(COMPUTING, length=60_000, gil_held=0.1)
    assert chosen(long, cores=1, start_method="spawn", pickled=False) == (0, 1)


PROBES = st.builds(
    Probe,
    samples=st.just(32),
    seconds=st.floats(1e-7, 1.0),
    waiting=st.floats(0.0, 1.0),
    gil_held=st.floats(0.0, 1.0),
    sample_bytes=st.integers(1, 10**7),
    length=st.integers(1, 10**7),
)


@steady
@given(PROBES, st.integers(1, 64), st.sampled_from(["fork", "spawn"]), st.booleans())
def test_a_choice_is_never_foretold_to_be_much_slower_than_inline(
    measured: Probe, cores: int, start_method: str, pickled: bool
) -> None:
    choice = from_probe(measured, cores, start_method, lambda: 100 if pickled else None)
    expected = forecast(measured, choice.workers, cores, start_method)
    assert expected.epoch_s <= 1.5 * forecast(measured, INLINE, cores, start_method).epoch_s
    assert choice.reason


@steady
@given(PROBES, st.integers(1, 64))
def test_the_ranking_keeps_every_crew_and_begins_with_one_of_the_quickest(measured: Probe, cores: int) -> None:
    possible = [INLINE, *crews(cores, (1, 4))]
    order = ranked(forecast(measured, crew, cores, "fork") for crew in possible)
    assert sorted(map(repr, (one.workers for one in order))) == sorted(map(repr, possible))
    assert order[0].epoch_s <= 1.05 * min(one.epoch_s for one in order)


@steady
@given(PROBES, st.integers(1, 64), st.integers(1, 16))
def test_a_further_process_is_never_foretold_to_slow_the_loading_itself(
    measured: Probe, cores: int, processes: int
) -> None:
    fewer, more = (forecast(measured, Workers(processes=count), cores, "fork") for count in (processes, processes + 1))
    assert more.load_s <= fewer.load_s
    assert more.start_s > fewer.start_s


def test_a_model_overlaps_with_workers_and_takes_turns_with_inline_loading() -> None:
    inline, crew = (forecast(COMPUTING, workers, 2, "fork", model_s=100.0) for workers in (INLINE, Workers(2)))
    assert inline.epoch_s == pytest.approx(inline.load_s + 100.0)
    assert crew.epoch_s == pytest.approx(100.0 + crew.start_s)


def test_process_counts_end_with_the_cores_within_reason() -> None:
    assert process_counts(1) == [1]
    assert process_counts(6) == [1, 2, 4, 6]
    assert process_counts(64) == [1, 2, 4, 8, 16]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


class Awaited:
    def __len__(self) -> int:
        return 4

    async def __agetitem__(self, index: int) -> int:
        return index


class Broken:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        raise OSError("no such sample")


def never(_dataset: Any) -> Probe:
    raise AssertionError("this dataset need not be probed")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Stream, INLINE),
        (lambda: TensorDataset(torch.zeros(4, 2)), INLINE),
        (Awaited, Workers(processes=0, threads=32)),
        (list, INLINE),
    ],
)
def test_what_a_dataset_is_may_settle_it_without_measuring(make: Callable[[], Any], expected: Workers) -> None:
    assert choose(make(), "fork", measure=never).workers == expected


def test_a_dataset_that_raises_is_loaded_inline_where_its_error_is_seen() -> None:
    choice = choose(Broken(), "fork")
    assert choice.workers == INLINE
    assert "OSError: no such sample" in choice.reason


class Numbers:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


def test_the_loader_logs_what_was_chosen_and_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="stoker.auto"):
        loader = stoker.DataLoader(Numbers(), batch_size=4, num_workers="auto")
    assert loader.stats().fixed == INLINE
    assert loader.workers.is_range
    assert "chose processes=0, threads=0: a sample takes" in caplog.text
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("context", ["spawn", torch.multiprocessing.get_context("spawn")])
def test_the_start_method_that_a_loader_is_given_counts(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        auto, "choose", lambda _dataset, method, _measure: asked.append(method) or auto.Choice(INLINE, "scripted")
    )
    stoker.DataLoader(Numbers(), num_workers="auto", multiprocessing_context=None)
    auto.decide(auto.Wanted(Numbers(), context=context))
    assert asked == [auto.platform_start_method(), "spawn"]


MEANT_FOR_WORKERS: list[dict[str, Any]] = [
    {"persistent_workers": True},
    {"prefetch_factor": 4},
    {"timeout": 30},
    {"multiprocessing_context": "fork"},
    {"persistent_workers": True, "prefetch_factor": 4, "timeout": 30, "multiprocessing_context": "fork"},
]


@pytest.mark.parametrize("picked", [INLINE, Workers(threads=2), Workers(1), Workers(1, threads=2)])
@pytest.mark.parametrize("options", MEANT_FOR_WORKERS)
def test_arguments_for_workers_are_fine_whatever_is_picked(
    options: dict[str, Any], picked: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "choose", lambda *_: auto.Choice(picked, "scripted"))
    loader = stoker.DataLoader(Numbers(), batch_size=4, num_workers="auto", **options)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert loader.num_workers == picked.processes


@pytest.mark.parametrize("options", MEANT_FOR_WORKERS)
def test_a_file_that_says_no_workers_takes_them_too(options: dict[str, Any], tmp_path: Path) -> None:
    Tuned(processes=0).save(tmp_path / "stoker.toml")
    loader = stoker.DataLoader(Numbers(), batch_size=4, tuned=tmp_path / "stoker.toml", **options)
    assert len(list(loader)) == 2


def test_without_workers_that_somebody_asked_not_to_have_they_are_refused_as_by_torch() -> None:
    for options in ({"persistent_workers": True}, {"prefetch_factor": 4}, {"multiprocessing_context": "fork"}):
        with pytest.raises(ValueError, match=r"num_workers|multi-?process"):
            stoker.DataLoader(Numbers(), num_workers=0, **options)
