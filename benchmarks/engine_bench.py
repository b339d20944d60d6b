"""What the cases of the engine benchmark share: taking turns, passes over one loader, findings from series.

Both loaders get the same dataset object and the same arguments, and take turns round by round, every second round in
reverse, so that a machine that changes its mood changes it for both. A verdict compares medians over rounds; the raw
series are kept beside it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from stoker.bench import Finding, Trial, measure, median

T = TypeVar("T")
MakeLoader = Callable[..., Iterable[Any]]


@dataclass(frozen=True)
class Bench:
    """What a case is given: the two loaders, how often, where files may go, and whom to tell of progress."""

    torch: MakeLoader
    stoker: MakeLoader
    repeats: int
    quick: bool
    folder: Path
    tell: Callable[[str], None]

    def sized(self, full: int, quick: int) -> int:
        """A size for a full run, or for one that only shows that everything works."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Result:
    """What a case gives: what was found, the settings in words, and the raw series."""

    settings: str
    findings: tuple[Finding, ...]
    series: Mapping[str, Sequence[float]]


def take_turns(bench: Bench, turns: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Run every turn once a round; the results of each, by name."""
    results: dict[str, list[T]] = {name: [] for name in turns}
    for number in range(bench.repeats):
        names = list(turns) if number % 2 == 0 else list(turns)[::-1]
        for name in names:
            bench.tell(f"round {number + 1} of {bench.repeats}: {name}")
            results[name].append(turns[name]())
            gc.collect()  # whatever a loader left in cycles ends here, not in the next one's time
    return results


def passes(make: Callable[[], Iterable[Any]], count: int, **options: Any) -> list[Trial]:
    """`count` epochs over one fresh loader; the first is cold, the others find its workers and memory warm."""
    loader = make()
    return [measure(loader, **options) for _ in range(count)]


def one_pass(make: Callable[[], Iterable[Any]], **options: Any) -> Trial:
    """One epoch over a fresh loader."""
    return passes(make, 1, **options)[0]


def speeds(rounds: Iterable[Sequence[Trial]], part: slice) -> list[float]:
    """Samples per second of the chosen epochs of every round."""
    return [trial.samples_per_s for trials in rounds for trial in trials[part]]


COLD, LATER = slice(0, 1), slice(1, None)


def ratio(
    claim: str,
    sense: Literal["at least", "at most"],
    bound: float,
    ours: Sequence[float],
    theirs: Sequence[float],
    show: Callable[[float], str],
    of: str = "torch",
) -> Finding:
    """The ratio of two medians, against its bound."""
    mine, yours = median(ours), median(theirs)
    detail = f"Stoker {show(mine)}, {of} {show(yours)}"
    return Finding(claim, sense, bound, mine / yours, f"× {of}", detail)


def per_s(value: float) -> str:
    """Samples per second, for a reader."""
    return f"{value:,.0f}/s"


def ms(value: float) -> str:
    """Seconds as milliseconds, for a reader."""
    return f"{value * 1e3:,.2f} ms" if value < 0.1 else f"{value * 1e3:,.0f} ms"
