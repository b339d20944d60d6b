"""What a run will measure, in which order, and whether an older run may be continued by it.

A round measures every setting once, and every second round runs backwards; so a machine that warms up, or is busy for
a minute, is as unkind to one setting as to the next. Rounds are the repeats.

    round 0   A B C      round 1   C B A      round 2   A B C      then, if asked for, timelines: A B C

A plan may be continued, and made larger, by another that measures in the same way: the same number of batches, of
warm-up batches, the same order of samples. More repeats or more worker counts are then only more to do.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from stoker.bench.settings import Setting, Sweep
from stoker.bench.whole_files import written_whole

PLAN_FILE = "plan.json"
TRIAL, TIMELINE = "trial", "timeline"
_CONDITIONS = ("batches", "warmup", "shuffle", "scale")


class Turn(NamedTuple):
    """One trial to do: which setting, in which round; a timeline is a trial that notes who loaded what when."""

    setting: Setting
    repeat: int
    kind: str = TRIAL

    @property
    def name(self) -> tuple[str, int, str]:
        """What a saved record of this turn can be found by."""
        return self.setting.key, self.repeat, self.kind


@dataclass(frozen=True)
class Plan:
    """How often, how long, in which order."""

    sweep: Sweep
    repeats: int = 5
    batches: int | None = 100  # None: the whole epoch
    warmup: int = 2  # batches of a pass before, over a loader of its own, that does not count
    shuffle: bool = True
    scale: float = 1.0
    timeline: int = 0  # batches of a timeline; 0: none is made

    def turns(self, given: Collection[str] = ()) -> list[Turn]:
        """Every trial, in the order in which it is measured."""
        return list(rounds(self.sweep.scaled(self.scale).settings(given), self.repeats, bool(self.timeline)))

    def conditions(self) -> dict[str, Any]:
        """What must be equal for two trials to be compared."""
        return {name: getattr(self, name) for name in _CONDITIONS}


def rounds(settings: Sequence[Setting], repeats: int, timeline: bool) -> Iterator[Turn]:
    """Rounds over the settings, every second one backwards, then the timelines."""
    for repeat in range(repeats):
        for setting in settings if repeat % 2 == 0 else reversed(settings):
            yield Turn(setting, repeat)
    if timeline:
        yield from (Turn(setting, 0, TIMELINE) for setting in settings)


def save_plan(plan: Plan, folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the plan beside the records, with the facts (machine, versions) of whoever began."""
    text = json.dumps({**asdict(plan), **facts}, indent=1, ensure_ascii=False)
    with written_whole(folder / PLAN_FILE) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def load_plan(folder: Path) -> tuple[Plan, dict[str, Any]] | None:
    """The plan of an earlier run in this folder and its facts, or None."""
    path = folder / PLAN_FILE
    if not path.exists():
        return None
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        sweep = Sweep(**{name: tuple(values) for name, values in saved.pop("sweep").items()})
        own = {field.name: saved.pop(field.name) for field in fields(Plan) if field.name in saved}
        return Plan(sweep=sweep, **own), saved
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"{path} cannot be read ({error}): repair it, or give another --run folder") from None


def check_continues(folder: Path, plan: Plan, facts: Mapping[str, Any]) -> None:
    """ValueError, with the rows that differ, if trials of this plan may not stand beside those in the folder."""
    earlier = load_plan(folder)
    if earlier is None:
        return
    before = {**earlier[0].conditions(), **_flat(earlier[1])}
    now = {**plan.conditions(), **_flat(facts)}
    rows = [f"  {name:<20} {before.get(name)!s:<24} {now[name]}" for name in now if before.get(name) != now[name]]
    if rows:
        head = f"  {'':<20} {'saved':<24} now"
        raise ValueError(
            f"the run in {folder} was measured otherwise, and its trials cannot be compared with new ones.\n"
            + "\n".join([head, *rows])
            + "\nGive the saved values to go on with it, or another --run folder."
        )


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{group}.{name}": value for group, inner in facts.items() for name, value in inner.items()}
