"""Whose turn it is: a schedule that keeps whole-number weights to within one sample at every cut.

With weights v₁ … vₖ that add up to W, part i should have had p · vᵢ / W turns after p turns. That is seldom a whole
number, so the best one can promise is less than one away from it, for all parts and all p at once. Rounding each part
for itself does not keep that promise (the rounded numbers don't add up to p), and nesting two-way splits adds an error
a level. What keeps it is an old result on fair sharing of one processor: give the j-th turn of part i the window of
places [⌊j·W/vᵢ⌋, ⌈(j+1)·W/vᵢ⌉ - 1], and at each place serve, of the parts whose window has opened, the one whose
window closes first. No window is ever missed, and a part inside its windows is less than one turn away from its share.

The schedule repeats after W turns, so one period is made, once, and any turn is found by a division and two look-ups:
no walking from the beginning. The period is the price: W is at most `LONGEST`, 65 536, which takes less than 0.1 s to
lay out and allows proportions as fine as 0.0015 %.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from stoker.order.permutation import Numbers

LONGEST = 1 << 16


@dataclass(frozen=True, eq=False)
class Turns:
    """One period of a schedule."""

    weights: tuple[int, ...]
    part: Numbers  # who has the turn
    before: Numbers  # how many turns the same part has had earlier in the period
    places: tuple[Numbers, ...]  # the turns of each part

    @property
    def period(self) -> int:
        """Turns until the schedule begins again."""
        return len(self.part)

    def at(self, turns: Numbers) -> tuple[Numbers, Numbers]:
        """(part, how many turns it had before) at each turn, counted from 0."""
        rounds, place = np.divmod(turns, self.period)
        part = self.part[place]
        return part, rounds * np.asarray(self.weights, dtype=np.int64)[part] + self.before[place]

    def end_of(self, part: int, samples: int) -> int:
        """The number of turns after which a part has had exactly `samples` (at least 1) of them."""
        rounds, left = divmod(samples - 1, self.weights[part])
        return rounds * self.period + int(self.places[part][left]) + 1

    def taken(self, part: int, turns: int) -> int:
        """How many of the first `turns` turns were this part's."""
        rounds, left = divmod(turns, self.period)
        return rounds * self.weights[part] + int(np.searchsorted(self.places[part], left))


@functools.lru_cache(maxsize=32)
def lay_out(weights: tuple[int, ...]) -> Turns:
    """The schedule for whole-number weights, as `whole_weights` makes them."""
    part = np.array(_serve(weights), dtype=np.int64)
    places = tuple(np.flatnonzero(part == each) for each in range(len(weights)))
    before = np.empty_like(part)
    for place in places:
        before[place] = np.arange(len(place))
    return Turns(weights, part, before, places)


def whole_weights(weights: Sequence[float | Fraction]) -> tuple[int, ...]:
    """Weights as the smallest whole numbers in the same proportions: (0.7, 0.2, 0.1) is (7, 2, 1)."""
    exact = [_as_fraction(weight) for weight in weights]
    common = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * common) for weight in exact]
    whole = [weight // math.gcd(*whole) for weight in whole]
    if sum(whole) > LONGEST:
        raise ValueError(
            f"weights {tuple(weights)} are as whole numbers {tuple(whole)}, which add up to {sum(whole)}; the schedule "
            f"keeps proportions exactly and so takes at most {LONGEST}. Near enough are {_nearest(exact)}, for example."
        )
    return tuple(whole)


def _serve(weights: tuple[int, ...]) -> list[int]:
    period = sum(weights)
    had = [0] * len(weights)
    opening: dict[int, list[int]] = {0: list(range(len(weights)))}
    waiting: list[tuple[int, int]] = []  # (where the window closes, part): the nearest first
    turns = []
    for place in range(period):
        for part in opening.pop(place, ()):
            heapq.heappush(waiting, (-(-(had[part] + 1) * period // weights[part]), part))
        part = heapq.heappop(waiting)[1]
        turns.append(part)
        had[part] += 1
        opens = max(place + 1, had[part] * period // weights[part])
        opening.setdefault(opens, []).append(part)
    return turns


def _as_fraction(weight: float | Fraction) -> Fraction:
    if isinstance(weight, bool) or not isinstance(weight, (int, float, Fraction, np.integer, np.floating)):
        raise TypeError(f"a weight should be a number, but got {weight!r} ({type(weight).__name__})")
    if not (weight > 0 and math.isfinite(weight)):
        raise ValueError(f"a weight should be more than 0 and finite, but got {weight}; leave out parts of weight 0")
    if not isinstance(weight, (float, np.floating)):
        return Fraction(weight) if isinstance(weight, Fraction) else Fraction(int(weight))
    # A float means the simplest fraction that is stored as this float: 0.1 is 1/10, 1/3 is 1/3.
    simple = Fraction(float(weight)).limit_denominator(LONGEST)
    return simple if float(simple) == float(weight) else Fraction(repr(float(weight)))


def _nearest(exact: list[Fraction], total: int = 10_000) -> tuple[int, ...]:
    return tuple(max(1, round(weight / sum(exact) * total)) for weight in exact)
