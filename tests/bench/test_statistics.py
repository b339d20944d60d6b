"""The statistics against their definitions and against the standard library."""

from __future__ import annotations

import math
import statistics as reference

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.bench.statistics import mean, median, quantile, standard_deviation, summarise

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(numbers)
def test_mean_median_and_deviation_agree_with_the_standard_library(values: list[float]) -> None:
    assert math.isclose(mean(values), reference.fmean(values), rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(median(values), reference.median(values), rel_tol=1e-9, abs_tol=1e-9)
    expected = reference.stdev(values) if len(values) > 1 else 0.0
    assert math.isclose(standard_deviation(values), expected, rel_tol=1e-6, abs_tol=1e-6)


@given(numbers, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_rise_with_their_share_and_stay_within_the_series(values: list[float], a: float, b: float) -> None:
    low, high = quantile(values, min(a, b)), quantile(values, max(a, b))
    assert min(values) <= low <= max(values)
    # Rounding may turn the line between two neighbours by the last bit.
    assert low <= high or math.isclose(low, high, rel_tol=1e-12, abs_tol=1e-12)


def test_a_quantile_lies_on_the_line_between_its_neighbours() -> None:
    assert quantile([10.0, 20.0, 30.0, 40.0, 50.0], 0.25) == 20.0
    assert quantile([30.0, 10.0], 0.75) == 25.0
    assert quantile([7.0], 0.99) == 7.0


def test_a_summary_says_when_values_lie_too_far_apart() -> None:
    assert summarise([10.0, 10.5, 11.0]).is_steady
    assert not summarise([10.0, 10.5, 13.0]).is_steady


@pytest.mark.parametrize("function", [mean, median, standard_deviation, summarise])
def test_an_empty_series_has_no_statistics(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="at least one measurement"):
        function([])


def test_a_share_in_percent_is_refused() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, not at 99"):
        quantile([1.0], 99)
