"""What the saved trials of an experiment show: tables and sentences with their numbers, for its page.

Nothing here is typed that could be measured: each sentence is put together from records, and says what was found even
if it is not what one would expect. What lies around it in the page, the reasons, is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from stoker.bench.groups import Group, group
from stoker.bench.runs import TrialRecord
from stoker.bench.settings import STOKER, SYNTHETIC, TORCH
from stoker.bench.statistics import mean, median
from stoker.report.facets import hue
from stoker.report.plots import add_legend, new_figure
from stoker.report.table import figure, with_deviation
from stoker.report.verdict import fastest, is_equal, speed_ratio, verdicts

PAGES = {"a": "a-workers.md", "b": "b-overlap.md", "c": "c-grid.md", "d": "d-throughputs.md"}
NAMES = {TORCH: "torch", STOKER: "Stoker"}


def body_of(name: str, records: Sequence[TrialRecord]) -> str:
    """The rendered part of an experiment's page."""
    groups = group(records)
    parts: Callable[[Sequence[Group]], Iterator[str]] = {"a": _a, "b": _b, "c": _c, "d": _d}[name]
    return "\n\n".join([_measured_with(records), *parts(groups), *_doubts(groups)])


def _measured_with(records: Sequence[TrialRecord]) -> str:
    first = records[0]
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    dates = sorted(record.measured_at for record in records)
    load = max(record.load_before for record in records)
    machine = first.machine
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB; {versions}. "
        f"{len(records)} trials, {dates[0][:10]} to {dates[-1][:10]}; load before a trial at most {load:g}."
    )


def _doubts(groups: Sequence[Group]) -> Iterator[str]:
    unstable = sum(not found.is_stable for found in groups)
    if unstable:
        yield (
            f"{unstable} of {len(groups)} settings are unstable (their repeats lie more than a fifth apart): measure "
            "again on a quieter machine before believing small differences."
        )


def _a(groups: Sequence[Group]) -> Iterator[str]:
    yield _over_workers(groups, (("seconds", "time of 100 batches (s)"), ("samples_per_s", "samples/s")))
    for loader in (TORCH, STOKER):
        mine = _of(groups, loader)
        yield f"- {NAMES[loader]}: {_best_word(mine)}; {_last_word(mine)}."
    yield f"- {verdicts(groups)[0]}"


def _best_word(groups: Sequence[Group]) -> str:
    best, alone = fastest(groups), next(found for found in groups if found.setting.workers == 0)
    if best is alone:
        return "fastest without workers"
    return f"fastest with {best.setting.label({'workers'})}, {speed_ratio(best, alone):.2f} times the speed of none"


def _last_word(groups: Sequence[Group]) -> str:
    best, most = fastest(groups), max(groups, key=lambda found: int(found.setting.workers or 0))
    if best is most:
        return "more were not tried"
    if is_equal(best, most):
        return f"{most.setting.workers} workers are neither faster nor slower than that"
    return f"with {most.setting.workers} workers it is {speed_ratio(most, best):.2f} times as fast as at its best"


def _b(groups: Sequence[Group]) -> Iterator[str]:
    yield _over_workers(groups, (("step_ms", "step (ms)"), ("wait_ms", "loading (ms)")), expected=_expected_step)
    for loader in (TORCH, STOKER):
        mine = _of(groups, loader)
        off = [found.metric("step_ms").mean - _expected_step_ms(found) for found in mine]
        yield f"- {NAMES[loader]}: a step took {min(off):+.1f} to {max(off):+.1f} ms beside what the rule expects."


def _expected_step_ms(found: Group) -> float:
    workers = int(found.setting.workers or 0)
    return 50 + 15 if workers == 0 else max(15.0, 50 / workers)


def _expected_step(found: Group) -> str:
    return figure(_expected_step_ms(found))


def _c(groups: Sequence[Group]) -> Iterator[str]:
    yield "**Batch size** (one worker, no model; ms a batch, in brackets ms a sample, constant if growth is linear):"
    yield _growth_table(groups)
    yield (
        "**Peaks**: of all waiting after the first round of n batches, the part that falls on the "
        "dearest of the n places in a round (largest batch size, no model; even would be 1/n, all of it 100 %):"
    )
    yield _peaks_table(groups)
    yield "**The first batch and the rest**, with the slow model and two workers (ms):"
    yield _first_table(groups)


def _growth_table(groups: Sequence[Group]) -> str:
    chosen = [found for found in groups if found.setting.workers == 1 and not found.setting.sleep_s and found.records]
    sizes = sorted({found.setting.batch_size or 0 for found in chosen})
    rows = []
    for dataset in dict.fromkeys(found.setting.dataset for found in chosen):
        for loader in (TORCH, STOKER):
            mine = {
                found.setting.batch_size: found for found in _of(chosen, loader) if found.setting.dataset == dataset
            }
            cells = [
                f"{figure(mine[size].metric('wait_ms').mean)} ({figure(mine[size].metric('wait_ms').mean / size)})"
                for size in sizes
            ]
            rows.append((dataset.partition(":")[0], NAMES[loader], *cells))
    return _table(("dataset", "loader", *(f"batch {size}" for size in sizes)), rows)


def _peaks_table(groups: Sequence[Group]) -> str:
    largest = max(found.setting.batch_size or 0 for found in groups)
    chosen = [
        found for found in groups if not found.setting.sleep_s and found.setting.batch_size == largest and found.records
    ]
    counts = sorted({int(found.setting.workers or 0) for found in chosen} - {0, 1})
    rows = []
    for dataset in dict.fromkeys(found.setting.dataset for found in chosen):
        for loader in (TORCH, STOKER):
            mine = {found.setting.workers: found for found in _of(chosen, loader) if found.setting.dataset == dataset}
            rows.append((dataset.partition(":")[0], NAMES[loader], *(f"{peak_share(mine[n], n):.0%}" for n in counts)))
    heads = (f"{count} workers (even: {1 / count:.0%})" for count in counts)
    return _table(("dataset", "loader", *heads), rows)


def peak_share(found: Group, period: int) -> float:
    """The part of all waiting after the first round that falls on its dearest place, mean over the repeats.

    Only whole rounds are counted, so that no place has more batches than another.
    """
    shares = []
    for record in found.records:
        waits = record.measured.waits_s[period:]
        waits = waits[: len(waits) // period * period]
        places = [sum(waits[place::period]) for place in range(period)]
        shares.append(max(places) / sum(places) if sum(places) else 0.0)
    return mean(shares)


def _first_table(groups: Sequence[Group]) -> str:
    chosen = [found for found in groups if found.setting.sleep_s and found.setting.workers == 2 and found.records]
    rows = []
    for dataset in dict.fromkeys(found.setting.dataset for found in chosen):
        for size in sorted({found.setting.batch_size or 0 for found in chosen}):
            here = [found for found in chosen if (found.setting.dataset, found.setting.batch_size) == (dataset, size)]
            members = [_of(here, loader)[0] for loader in (TORCH, STOKER)]
            firsts = [with_deviation(found.metric("first_batch_ms")) for found in members]
            rows.append(
                (dataset.partition(":")[0], str(size), *firsts, *(figure(_later_ms(found)) for found in members))
            )
    heads = [
        f"{title}, {NAMES[loader]}" for title in ("first batch", "median later wait") for loader in (TORCH, STOKER)
    ]
    return _table(("dataset", "batch", *heads), rows)


def _later_ms(found: Group) -> float:
    return mean([1e3 * median(record.measured.waits_s[1:]) for record in found.records])


def _d(groups: Sequence[Group]) -> Iterator[str]:
    [synthetic] = [found for found in groups if found.setting.loader == SYNTHETIC]
    rows = []
    for loader in (TORCH, STOKER):
        for workers in dict.fromkeys(found.setting.workers for found in _of(groups, loader)):
            alone, real = _pair(groups, loader, workers)
            speeds = (found.metric("samples_per_s") for found in (alone, synthetic, real))
            rows.append((NAMES[loader], str(workers), *map(with_deviation, speeds), _judged(alone, synthetic, real)))
    heads = ("loader", "workers", "1. loader alone", "2. model alone", "3. both", "")
    yield "Samples per second:\n\n" + _table(heads, rows)


def _pair(groups: Sequence[Group], loader: str, workers: Any) -> tuple[Group, Group]:
    mine = [found for found in _of(groups, loader) if found.setting.workers == workers]
    return next(found for found in mine if not found.setting.model), next(
        found for found in mine if found.setting.model
    )


def _judged(alone: Group, synthetic: Group, real: Group) -> str:
    loads, trains = speed_ratio(alone, synthetic), speed_ratio(real, synthetic)
    limit = "loader is not the limit" if loads >= 1 else "loader is the limit"
    return f"{limit} (1 is {loads:.1f} × 2); both reach {trains:.0%} of the model alone"


def draw_throughputs(groups: Sequence[Group]) -> Any:
    """The three throughputs as bars, on a logarithmic scale: a loader alone may be a hundred times the rest."""
    [synthetic] = [found for found in groups if found.setting.loader == SYNTHETIC]
    drawn, [ax] = new_figure("Loader, model and both", 1)
    pairs = [(loader, workers) for workers in (0, 1, 2) for loader in (TORCH, STOKER)]
    for place, (loader, workers) in enumerate(pairs):
        alone, real = _pair(groups, loader, workers)
        for offset, found, colour, name in (
            (-0.2, alone, hue(loader), f"{NAMES[loader]}, loader alone"),
            (0.2, real, "#2a9d5c", "both"),
        ):
            speed = found.metric("samples_per_s")
            bar = {"width": 0.38, "color": colour, "capsize": 3}
            ax.bar(place + offset, speed.mean, yerr=speed.deviation, label=name, **bar)
    ax.axhline(synthetic.metric("samples_per_s").mean, color="black", linestyle="--", linewidth=1, label="model alone")
    ax.set_yscale("log")
    ax.set_ylabel("throughput (samples/s)")
    ax.set_xticks(range(len(pairs)), [f"{NAMES[loader]}\n{workers} workers" for loader, workers in pairs], fontsize=7.5)
    add_legend(drawn, [ax])
    return drawn


def _over_workers(
    groups: Sequence[Group],
    metrics: Sequence[tuple[str, str]],
    expected: Callable[[Group], str] | None = None,
) -> str:
    rows = []
    for workers in dict.fromkeys(found.setting.workers for found in groups):
        members = [
            next(found for found in _of(groups, name) if found.setting.workers == workers) for name in (TORCH, STOKER)
        ]
        cells = [with_deviation(found.metric(name)) for name, _title in metrics for found in members]
        rows.append((str(workers), *cells, *([expected(members[0])] if expected else [])))
    heads = [f"{title}, {NAMES[loader]}" for _name, title in metrics for loader in (TORCH, STOKER)]
    return _table(("workers", *heads, *(["step expected (ms)"] if expected else [])), rows)


def _of(groups: Iterable[Group], loader: str) -> list[Group]:
    return [found for found in groups if found.setting.loader == loader and found.records]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rules = ["---", *["--:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))
