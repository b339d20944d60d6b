"""What the records say, in plain sentences.

For each dataset and model: which loader is faster at its best setting and by how much, and whether loading holds the
model up. Two are called equal when their ratio lies within what the repeats themselves differ by. With a model the
question is how long it waits after the first batch: below a twentieth of a step loading is not the bottleneck, above a
tenth it is, and between it is on the edge (guesses; the share is told, so that a reader may judge otherwise).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from stoker.bench.groups import Group
from stoker.bench.settings import AUTO, STOKER, TORCH
from stoker.report.facets import by_name, panel_title

FREE, HELD_UP = 0.05, 0.10
_ENOUGH = 0.05  # a difference below this is not called one, however steady the repeats are


def verdicts(groups: Iterable[Group]) -> list[str]:
    """The sentences, one dataset with one model after the other, then what failed and what is unstable."""
    groups = list(groups)
    places = by_name([group for group in groups if group.records], panel_title)
    lines = [line for title, members in places.items() for line in _about(title, members)]
    return lines + list(_doubts(groups)) if lines or groups else ["There is no trial in these records yet."]


def _about(title: str, groups: Sequence[Group]) -> Iterator[str]:
    groups = comparable(groups)
    best = {
        loader: fastest([group for group in groups if group.setting.loader == loader])
        for loader in dict.fromkeys(group.setting.loader for group in groups)
    }
    if TORCH in best and STOKER in best:
        yield f"{title}: {_compared(best[STOKER], best[TORCH])}"
    else:
        for loader, group in best.items():
            yield f"{title}: {loader} {_how(group)} gives {_speed(group)}."
    for loader, group in best.items():
        if group.setting.model_name != "none":
            yield f"{title}: {_bottleneck(loader, group)}"


def comparable(groups: Sequence[Group]) -> list[Group]:
    """Without what one of the two loaders was measured with and the other was not, as in a run that was stopped.

    What torch's loader does not have at all, lanes and "auto", stays. If nothing is common, all stays.
    """
    places = {
        loader: {_place(found) for found in groups if found.setting.loader == loader} for loader in (TORCH, STOKER)
    }
    common = places[TORCH] & places[STOKER]
    if not common:
        return list(groups)
    return [found for found in groups if _place(found) in common or not _torch_can(found)]


def _place(found: Group) -> tuple[object, ...]:
    setting = found.setting
    return setting.batch_size, setting.workers, setting.lanes, setting.prefetch, setting.pin_memory


def _torch_can(found: Group) -> bool:
    return found.setting.loader in (TORCH, STOKER) and found.setting.lanes == 1 and found.setting.workers != AUTO


def fastest(groups: Sequence[Group]) -> Group:
    """The group with the highest mean throughput."""
    return max(groups, key=lambda group: group.metric("samples_per_s").mean)


def _compared(ours: Group, theirs: Group) -> str:
    ratio = speed_ratio(ours, theirs)
    both = f"Stoker {_how(ours)} {_speed(ours)}, torch at its best {_how(theirs)} {_speed(theirs)}"
    if is_equal(ours, theirs):
        return f"no difference that the repeats can show ({ratio:.2f} ×): {both}."
    if ratio > 1:
        return f"Stoker is {ratio:.2f} times as fast as torch's loader: {both}."
    return f"torch's loader is {1 / ratio:.2f} times as fast as Stoker: {both}."


def speed_ratio(ours: Group, theirs: Group) -> float:
    """Mean throughput of one over the other's."""
    return ours.metric("samples_per_s").mean / theirs.metric("samples_per_s").mean


def is_equal(ours: Group, theirs: Group) -> bool:
    """Whether the two means lie within their standard deviations, or within a twentieth."""
    mine, yours = ours.metric("samples_per_s"), theirs.metric("samples_per_s")
    apart = abs(mine.mean - yours.mean)
    return apart <= max(mine.deviation + yours.deviation, _ENOUGH * min(mine.mean, yours.mean))


def _bottleneck(loader: str, group: Group) -> str:
    share = waiting_share(group)
    said = f"with {loader} {_how(group)} the model waits {share:.0%} of a step after the first"
    if share < FREE:
        return f"loading is not the bottleneck: {said}."
    if share > HELD_UP:
        return f"loading is the bottleneck: {said}."
    return f"loading is on the edge of being the bottleneck: {said}."


def waiting_share(group: Group) -> float:
    """Which part of the steps after the first was waiting, over all repeats."""
    trials = [record.measured for record in group.records]
    waits = sum(sum(trial.waits_s[1:]) for trial in trials)
    models = sum(sum(trial.models_s[1:]) for trial in trials)
    return waits / (waits + models) if waits + models > 0 else 0.0


def _how(group: Group) -> str:
    setting = group.setting
    fields = {"workers", "batch_size"} | ({"lanes"} if setting.lanes > 1 else set())
    words = setting.label(fields)
    return f"({words})" if words else "(as given)"


def _speed(group: Group) -> str:
    speed = group.metric("samples_per_s")
    return f"{speed.mean:,.0f} ± {speed.deviation:,.0f} samples/s"


def _doubts(groups: Sequence[Group]) -> Iterator[str]:
    failed = [group for group in groups if group.failure is not None and not group.records]
    if failed:
        first = failed[0]
        name = first.setting.label({"dataset", "loader", "workers"})
        assert first.failure is not None
        yield (
            f"{len(failed)} of {len(groups)} settings failed; the first, {name}, "
            f"with {first.failure.type}: {first.failure.message}"
        )
    if any(len(group.records) == 1 for group in groups):
        yield "Some settings have one repeat only, so nothing is known of how they vary: --repeats 5."
    unstable = sum(not group.is_stable for group in groups)
    if unstable:
        yield f"{unstable} of {len(groups)} settings are unstable: their repeats lie more than a fifth apart."
