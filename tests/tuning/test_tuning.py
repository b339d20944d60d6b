"""`tune` with scripted trials: goals, limits, failures, what is told and what comes out; and a few real, short ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.auto.probe import Probe
from stoker.auto.processor import cores
from stoker.auto.tuned import read_tuned
from stoker.bench.isolated import Outcome
from stoker.bench.runs import Trouble
from stoker.bench.settings import STOKER, Setting
from stoker.bench.targets import TargetError, judge
from stoker.bench.trial import Trial
from stoker.tuning import Aim, Means, Teller, TuneError, Tuning, call_of, tune
from stoker.tuning.awhile import ForAWhile, epoch_s
from stoker.tuning.trials import batches_ahead, batches_in_epoch, prepare_for_a_while

steady = settings(deadline=None, derandomize=True)  # the same examples every run, however busy the machine
DATA = list(range(1000))
BOTH = {"processes": (0, 1, 2), "threads": (1,), "prefetch": (2,)}


def outcome(setting: Setting, step_s: float, cpu_s: float = 1.0, peak_bytes: int = 100) -> Outcome:
    """A trial in which every batch was waited for equally long."""
    waits, size = (step_s,) * 8, setting.batch_size or 10
    return Outcome(trial=Trial(8 * size, 0, 0.0, waits, (0.0,) * 8, 0.0), cpu_s=cpu_s, peak_pss_bytes=peak_bytes)


class Script:
    """Trials without running any: `give` says what comes of a setting."""

    def __init__(self, give: Callable[[Setting], Outcome]) -> None:
        self.give, self.asked = give, list[Setting]()

    def __call__(self, prepare: Any, length: Any, **_options: Any) -> Outcome:
        self.asked.append(prepare.args[1])
        return self.give(prepare.args[1])


def sees(_dataset: Any) -> Probe:
    """Samples for which any crew of these tests is worth a trial."""
    return Probe(samples=32, seconds=0.001, waiting=0.0, gil_held=0.0, sample_bytes=8, length=100_000)


def tuned(give: Callable[[Setting], Outcome], thing: Any = DATA, **aim: Any) -> Tuning:
    return tune(thing, Aim(**{**BOTH, "batch_sizes": (10,), **aim}), means=Means(Script(give), look=sees))


def by_processes(*step_ms: float) -> Callable[[Setting], Outcome]:
    return lambda setting: outcome(setting, step_ms[int(setting.workers or 0)] / 1e3)


def test_the_quickest_setting_wins_and_everything_tried_is_listed_behind_it() -> None:
    found = tuned(by_processes(5.0, 9.0, 7.0))
    assert found.best.setting.workers == 0
    assert found.best.samples_per_s == pytest.approx(10 / 0.005)
    assert found.best is found.tried[0]
    assert [one.sample_s for one in found.tried] == sorted(one.sample_s for one in found.tried)


def test_of_settings_that_nobody_could_tell_apart_the_one_with_fewer_hands_wins() -> None:
    assert tuned(by_processes(9.0, 5.05, 5.0)).best.setting.workers == 1


class Runs(list[int]):
    """A dataset that is asked for many samples at once."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


@pytest.mark.parametrize("parts_ms", [2.0, 20.0])
def test_whether_runs_are_shared_or_given_whole_is_measured(parts_ms: float) -> None:
    found = tuned(lambda setting: outcome(setting, (10.0 if setting.share is None else parts_ms) / 1e3), Runs(DATA))
    assert {one.setting.share for one in found.tried} == {None, "parts"}
    best = "parts" if parts_ms < 10 else None
    assert (found.best.setting.share, found.tuned.share, found.tuned.workers.share) == (best, best, best or "auto")
    assert ('share="parts"' in found.call) == (best is not None)


def test_sharing_is_tried_only_where_the_dataset_gives_runs() -> None:
    assert {one.setting.share for one in tuned(by_processes(9.0, 5.0, 5.0)).tried} == {None}


def test_for_step_the_smallest_batch_wins_and_for_throughput_the_largest() -> None:
    def give(setting: Setting) -> Outcome:
        return outcome(setting, 0.001 + 0.0001 * (setting.batch_size or 0))

    sizes = {"batch_sizes": (20, 10, 40), "processes": (0,)}
    assert tuned(give, goal="step", **sizes).best.setting.batch_size == 10
    assert tuned(give, goal="throughput", **sizes).best.setting.batch_size == 40


def test_for_cpu_the_cheapest_of_those_as_quick_as_the_quickest_wins() -> None:
    cpu_s = {0: 0.1, 1: 0.5, 2: 0.9}
    steps_s = {0: 0.010, 1: 0.00515, 2: 0.005}
    found = tuned(
        lambda setting: outcome(setting, steps_s[setting.workers], cpu_s[setting.workers]),  # type: ignore[index]
        goal="cpu",
    )
    assert found.best.setting.workers == 1


def test_what_needs_too_much_memory_does_not_win_and_says_how_much() -> None:
    def give(setting: Setting) -> Outcome:
        return outcome(
            setting, 0.01 / (1 + int(setting.workers or 0)), peak_bytes=10**8 * (1 + int(setting.workers or 0))
        )

    found = tuned(give, max_bytes=2 * 10**8)
    assert found.best.setting.workers == 1
    assert [one.trouble for one in found.tried if one.setting.workers == 2] == ["needs 300 MB, allowed are 200 MB"]
    with pytest.raises(TuneError, match="The smallest needed 100 MB: allow more"):
        tuned(give, max_bytes=10**6)


def test_a_setting_that_fails_is_kept_with_its_error_and_the_others_go_on() -> None:
    def give(setting: Setting) -> Outcome:
        if setting.workers == 2:
            return Outcome(failure=Trouble("KeyError", "'x'", "data.py:3 in __getitem__"))
        return by_processes(9.0, 5.0, 1.0)(setting)

    found = tuned(give)
    assert found.best.setting.workers == 1
    assert [one.trouble for one in found.tried if one.trouble] == ["KeyError at data.py:3 in __getitem__: 'x'"]


def test_if_everything_fails_the_error_is_the_datasets() -> None:
    with pytest.raises(TuneError, match=r"none of the \d settings that were tried works: KeyError: 'x'"):
        tuned(lambda setting: Outcome(failure=Trouble("KeyError", "'x'")))


def test_the_model_takes_its_step_in_every_trial() -> None:
    script = Script(by_processes(1.0, 1.0, 1.0))
    tune(
        DATA,
        Aim(batch_sizes=(10, 20), steps_s=(0.004,), processes=(0, 1), threads=(1,), prefetch=(2,)),
        means=Means(script, sees),
    )
    assert {(setting.batch_size, setting.sleep_s) for setting in script.asked} == {(10, 0.004), (20, 0.008)}


def test_more_processes_than_cores_are_tried_without_a_warning() -> None:
    many = 4 * cores()  # warnings are errors here
    assert tuned(lambda setting: outcome(setting, 0.01), processes=(many,)).best.setting.workers == many


def test_everybody_is_told_of_every_trial() -> None:
    begun, done = list[Setting](), list[Any]()
    tune(
        DATA,
        Aim(**BOTH),  # type: ignore[arg-type]
        teller=Teller(begun=begun.append, done=done.append),
        means=Means(Script(by_processes(5.0, 9.0, 7.0)), sees),
    )
    assert [record.setting for record in done] == begun
    assert {record.repeat for record in done if record.setting == begun[0]} == set(range(begun.count(begun[0])))


@pytest.mark.parametrize(
    ("aim", "words"),
    [
        ({"goal": "speed"}, "goal should be one of throughput, step, cpu, but is 'speed'"),
        ({"budget_s": 0}, "budget_s should be above 0"),
        ({"batch_sizes": (8,), "steps_s": (0.1, 0.2)}, "2 step times for 1 batch sizes"),
        ({"batch_sizes": (0,)}, "batch_sizes"),
    ],
)
def test_nonsense_is_refused_in_words(aim: dict[str, Any], words: str) -> None:
    with pytest.raises(TuneError, match=words):
        Aim(**aim)


def test_a_loader_that_cannot_be_built_again_is_refused() -> None:
    with pytest.raises(TuneError, match="cannot be built again with other settings: tune its dataset"):
        tune(judge("mine", type("Mine", (), {"__iter__": lambda self: iter(())})()))
    with pytest.raises(TargetError, match="nothing to load"):
        tune([])


def test_a_loader_keeps_its_own_arguments_but_for_those_that_are_tuned() -> None:
    loader = torch.utils.data.DataLoader(DATA, batch_size=7, collate_fn=tuple, drop_last=True)
    target = judge("mine", loader)
    setting = Setting("mine", STOKER, workers=1, lanes=2, prefetch=3)
    awhile, _model = prepare_for_a_while(target, setting, True, 1.0, None)
    assert isinstance(awhile, ForAWhile)
    built: Any = awhile.loader
    assert isinstance(built, stoker.DataLoader)
    assert (built.batch_size, built.collate_fn, built.drop_last, built.prefetch_factor) == (7, tuple, True, 3)
    assert (built.workers.processes, built.workers.lanes) == (1, 2)


@pytest.mark.parametrize(
    ("setting", "call"),
    [
        (Setting("d", STOKER, 8, 0), "stoker.DataLoader(dataset, batch_size=8)"),
        (
            Setting("d", STOKER, 8, 2, 4, 1, start_method="spawn"),
            "stoker.DataLoader(dataset, batch_size=8, "
            'workers=stoker.Workers(processes=2, threads=4, start_method="spawn"), prefetch_factor=1)',
        ),
    ],
)
def test_the_call_can_be_copied(setting: Setting, call: str) -> None:
    assert call_of(setting) == call
    loader = eval(call, {"stoker": stoker, "dataset": DATA})
    assert (loader.workers.processes, loader.workers.lanes) == (setting.workers, setting.lanes)


class Stream(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(100))


def test_epochs_are_counted_in_batches_where_lengths_are_known() -> None:
    loader = torch.utils.data.DataLoader(DATA, batch_size=7)
    assert batches_in_epoch(judge("d", DATA), 32) == 32
    assert batches_in_epoch(judge("d", loader), None) == 143
    assert batches_in_epoch(judge("d", loader), 100) == 10
    assert batches_in_epoch(judge("d", Stream()), 10) is None


@steady
@given(
    st.lists(st.floats(0.001, 1.0), min_size=2, max_size=30), st.floats(0, 1), st.integers(1, 100), st.integers(0, 20)
)
def test_an_epoch_is_what_was_seen_of_it_and_the_rest_at_the_later_pace(
    waits: list[float], start_s: float, batches: int, ahead: int
) -> None:
    trial = Trial(len(waits), 0, start_s, tuple(waits), (0.0,) * len(waits), 0.0)
    expected = epoch_s(trial, batches, ahead)
    if batches >= len(waits):
        assert expected >= trial.seconds or math.isclose(expected, trial.seconds)
        assert expected <= trial.seconds + (batches - len(waits)) * max(waits) + 1e-9
    else:
        assert math.isclose(expected, trial.seconds * batches / len(waits))


@steady
@given(st.integers(1, 12), st.integers(1, 100), st.floats(0.001, 1.0))
def test_batches_that_come_in_bursts_never_look_quicker_than_they_are(ahead: int, taken: int, burst_s: float) -> None:
    """All that is under way is finished at the same time: a long wait, then none for the rest of the burst."""
    waits = tuple(burst_s if number % ahead == 0 else 0.0 for number in range(taken))
    pace_s = epoch_s(Trial(taken, 0, 0.0, waits, (0.0,) * taken, 0.0), None, ahead)
    true_s = burst_s / ahead
    assert pace_s >= true_s * (1 - 1e-9)
    if taken >= 2 * ahead:
        assert pace_s <= 2 * true_s * (1 + 1e-9)


def test_a_loader_knows_how_many_batches_it_has_under_way() -> None:
    assert batches_ahead(stoker.DataLoader(DATA, batch_size=8)) == 0
    assert batches_ahead(stoker.DataLoader(DATA, batch_size=8, num_workers=2, prefetch_factor=3)) == 6
    assert batches_ahead(stoker.DataLoader(DATA, batch_size=8, workers=stoker.Workers(1, threads=32))) == 8


class Clock:
    """Goes on by a tenth at every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


@pytest.mark.parametrize(("seconds", "batches"), [(0.5, 4), (2.0, 18), (0.01, 1)])
def test_a_trial_ends_when_its_time_is_up_and_a_few_batches_were_had(seconds: float, batches: int) -> None:
    assert abs(len(list(ForAWhile(range(1000), seconds, clock=Clock()))) - batches) <= 1


def test_a_trial_takes_twice_what_is_loaded_ahead_unless_that_takes_far_too_long() -> None:
    assert len(list(ForAWhile(range(1000), 1.0, ahead=15, clock=Clock()))) == 30
    assert len(list(ForAWhile(range(1000), 0.2, ahead=15, clock=Clock()))) == 15


def test_a_short_epoch_is_repeated_as_a_whole() -> None:
    taken = list(ForAWhile(range(5), 2.0, clock=Clock()))
    assert len(taken) > 5
    assert taken == list(range(5)) * (len(taken) // 5)
    assert list(ForAWhile([], 1.0, clock=Clock())) == []


class Squares:
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return index * index


def test_a_real_search_finds_settings_that_a_loader_takes(tmp_path: Any) -> None:
    found = tune(Squares(), Aim(batch_sizes=(8,), budget_s=1.0, processes=(0, 1), threads=(1,)))
    found.save(tmp_path / "stoker.toml")
    assert read_tuned(tmp_path / "stoker.toml").found["goal"] == "throughput"
    batches = list(stoker.DataLoader(Squares(), tuned=tmp_path / "stoker.toml"))
    assert torch.cat(batches).tolist() == [index * index for index in range(64)]
