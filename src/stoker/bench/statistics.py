"""The few statistics that a timing needs, for plain sequences of numbers.

Timings on a shared machine have a long tail to the right: something else ran. So the middle of a series is its median,
its best is its least, and its tail is a quantile; mean and standard deviation are there for series that have none.
Quantiles lie on straight lines between neighbouring values (what NumPy calls "linear"), so that the quantile of a
short series moves smoothly and the median of two values is half-way between them.

An empty series has no middle: every function raises ValueError for it, rather than inventing a zero that would later
stand in a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """A series in six numbers; `deviation` is the sample standard deviation, 0 for a single value."""

    count: int
    least: float
    median: float
    most: float
    mean: float
    deviation: float

    @property
    def is_steady(self) -> bool:
        """Whether the values lie within a fifth of their median: a guess at what repeats well on a quiet machine."""
        return self.most - self.least <= 0.2 * abs(self.median)


def summarise(values: Sequence[float]) -> Summary:
    """The summary of one series."""
    return Summary(
        count=len(values),
        least=quantile(values, 0.0),
        median=median(values),
        most=quantile(values, 1.0),
        mean=mean(values),
        deviation=standard_deviation(values),
    )


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    _check_not_empty(values)
    return math.fsum(values) / len(values)


def standard_deviation(values: Sequence[float]) -> float:
    """The sample standard deviation (divisor n - 1); 0 for a single value."""
    middle = mean(values)
    if len(values) == 1:
        return 0.0
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def median(values: Sequence[float]) -> float:
    """The value with as many values below it as above."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the series lies, on a straight line between neighbours."""
    _check_not_empty(values)
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a quantile's share lies between 0 and 1, not at {share}; the 99th percentile is 0.99")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    part = place - below
    # This form (rather than a + part * (b - a)) gives exactly a at part 0 and never leaves [a, b] by rounding twice.
    return min(max(ordered[below] * (1.0 - part) + ordered[above] * part, ordered[below]), ordered[above])


def _check_not_empty(values: Sequence[float]) -> None:
    if len(values) == 0:
        raise ValueError("no values: a series needs at least one measurement before it has a mean or a median")
