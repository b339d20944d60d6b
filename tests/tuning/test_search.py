"""The search on surfaces whose minimum is known: how close it comes, with how many trials, and when it stops."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.auto.forecast import forecast
from stoker.auto.probe import Probe
from stoker.bench.settings import Setting
from stoker.tuning.search import Effort, Search
from stoker.tuning.space import Foreseen, Space, space_for

steady = settings(deadline=None, derandomize=True)  # the same examples every run, however busy the machine
Point = tuple[int, ...]


@dataclass(frozen=True)
class Bowl:
    """Costs on a grid that rise away from one point, by its own factor along each axis."""

    sizes: tuple[int, ...]
    least: Point
    factors: tuple[float, ...]

    def __call__(self, point: Point) -> float:
        away = zip(point, self.least, self.factors, strict=True)
        return math.prod(factor ** abs(here - there) for here, there, factor in away)

    def axes(self, point: Point) -> Iterator[tuple[Point, ...]]:
        for axis, size in enumerate(self.sizes):
            yield tuple((*point[:axis], value, *point[axis + 1 :]) for value in range(size))


@st.composite
def bowls(draw: st.DrawFn) -> Bowl:
    sizes = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    least = tuple(draw(st.integers(0, size - 1)) for size in sizes)
    return Bowl(sizes, least, tuple(draw(st.floats(1.05, 3.0)) for _ in sizes))


def noisy(cost: Callable[[Point], float], seed: int, most: float) -> Callable[[Point], float]:
    """As on a busy machine: too slow by up to `most`, never too quick."""
    draws = random.Random(seed)
    return lambda point: cost(point) * (1 + most * draws.random())


@steady
@given(bowls(), st.data())
def test_the_least_of_a_bowl_is_found_within_a_tenth(bowl: Bowl, data: st.DataObject) -> None:
    first = tuple(data.draw(st.integers(0, size - 1)) for size in bowl.sizes)
    search = Search(bowl, bowl.axes, Effort(most_trials=60))
    assert bowl(search.run([first])) <= 1.1


@steady
@given(bowls(), st.integers(0, 2**32))
def test_noise_does_not_lead_astray(bowl: Bowl, seed: int) -> None:
    first = tuple(0 for _ in bowl.sizes), tuple(size - 1 for size in bowl.sizes)
    search = Search(noisy(bowl, seed, most=0.04), bowl.axes, Effort(most_trials=100))
    # A slope of 5 % a step is not told from noise of 4 %: along each axis a step of it may be left.
    flat = math.prod(factor for factor in bowl.factors if factor < 1.09)
    assert bowl(search.run(list(dict.fromkeys(first)))) <= 1.1 * flat


@steady
@given(bowls(), st.integers(1, 12))
def test_no_more_trials_are_made_than_allowed(bowl: Bowl, most: int) -> None:
    search = Search(bowl, bowl.axes, Effort(most_trials=most))
    search.run([tuple(0 for _ in bowl.sizes)])
    # A narrow result is measured again on both sides before it counts: two beyond the allowance at most.
    assert search.trials <= most + 2


@steady
@given(bowls())
def test_the_answer_is_one_that_was_measured_and_none_was_cheaper(bowl: Bowl) -> None:
    search = Search(bowl, bowl.axes)
    best = search.run([tuple(0 for _ in bowl.sizes)])
    assert search.costs[best]
    assert bowl(best) == min(map(bowl, search.costs))


def test_what_failed_never_wins_and_is_not_walked_beyond() -> None:
    bowl = Bowl((6,), (5,), (2.0,))
    search = Search(lambda point: math.inf if point[0] > 2 else bowl(point), bowl.axes)
    assert search.run([(0,)]) == (2,)
    assert (4,) not in search.costs


def test_one_trial_is_made_even_without_any_time() -> None:
    bowl = Bowl((3,), (1,), (2.0,))
    search = Search(bowl, bowl.axes, Effort(goes_on=lambda share: False))
    assert search.run([(0,), (1,), (2,)]) == (0,)
    assert search.trials == 1


def test_those_that_may_be_the_best_are_measured_again_and_the_others_are_not() -> None:
    costs = {(0,): 1.0, (1,): 1.02, (2,): 1.5}
    search = Search(costs.__getitem__, lambda point: iter(()))
    search.run(list(costs))
    assert {point: len(found) for point, found in search.costs.items()} == {(0,): 5, (1,): 5, (2,): 1}


PROBES = st.builds(
    Probe,
    samples=st.just(32),
    seconds=st.floats(1e-6, 0.05),
    waiting=st.floats(0.0, 0.99),
    gil_held=st.floats(0.0, 1.0),
    sample_bytes=st.just(1000),
    length=st.integers(100, 10**6),
)


def truth(measured: Probe, cores: int) -> Callable[[Setting], float]:
    """A machine that behaves as the forecast says, and likes a little prefetch."""

    def cost(setting: Setting) -> float:
        liking = {None: 1.0, 1: 1.06, 2: 1.0, 4: 1.03}[setting.prefetch]
        return liking * forecast(measured, setting.crew, cores, "fork").epoch_s

    return cost


@settings(steady, max_examples=60)
@given(PROBES, PROBES, st.sampled_from([1, 2, 8]), st.booleans())
def test_a_forecast_right_or_wrong_is_a_beginning_and_a_quarter_of_the_grid_suffices(
    measured: Probe, other: Probe, cores: int, right: bool
) -> None:
    space = space_for("d", cores, is_map=True)
    cost = truth(measured, cores)
    believed = measured if right else other
    foreseen = Foreseen(space, lambda setting: forecast(believed, setting.crew, cores, "fork"))
    search = Search(cost, foreseen.axes)
    best = search.run(foreseen.first())
    if right:
        assert cost(best) <= 1.1 * min(map(cost, space.settings()))
        assert len(search.costs) <= len(space.settings()) / 3
    assert cost(best) == min(map(cost, search.costs))


def test_settings_that_are_the_same_loader_are_listed_once() -> None:
    space = Space("d", (0, 1), (1, 2), (2, 4), start_methods=("fork", "spawn"), batch_sizes=(8,))
    listed = space.settings()
    assert len(listed) == len(set(listed)) == 1 + 2 + 8  # inline; threads × prefetch; processes × all
    assert [setting for setting in listed if setting.workers == 0 and setting.start_method is not None] == []


def test_an_axis_holds_the_setting_itself_and_all_its_values() -> None:
    space = Space("d", (0, 1, 2), (1, 2), (2, 1), batch_sizes=(8,))
    here = next(one for one in space.settings() if (one.workers, one.lanes, one.prefetch) == (1, 1, 2))
    axes = list(space.axes(here))
    assert [[one.workers for one in axis] for axis in axes[:1]] == [[0, 1, 2]]
    assert [[one.prefetch for one in axis] for axis in axes[-1:]] == [[1, 2]]
    assert all(here in axis for axis in axes)


def test_an_iterable_dataset_is_given_at_most_one_worker_unasked() -> None:
    assert [one.workers for one in space_for("d", 8, is_map=False).crews()] == [0, 1]


def test_without_a_forecast_the_search_begins_inline_with_one_process_and_with_all_cores() -> None:
    first = Foreseen(space_for("d", 4, is_map=True)).first()
    assert [(one.workers, one.lanes) for one in first] == [(0, 1), (1, 1), (4, 1)]
