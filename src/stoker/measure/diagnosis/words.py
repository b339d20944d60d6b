"""A diagnosis in words: one sentence for the verdict, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stoker.loader.stats import duration
from stoker.measure.diagnosis.facts import Cause, Facts, Given, Pace, Sample
from stoker.measure.diagnosis.judge import is_held_up, keeps_up, lost_s
from stoker.measure.diagnosis.parts import parts_of

_CROWDED = 1.3


def verdict(facts: Facts, cause: Cause) -> str:
    """The verdict, as one sentence."""
    return f"{_head(facts)} {cause.value}; {_BECAUSE[cause](facts)}."


def _head(facts: Facts) -> str:
    alone, whole = _steady(facts.alone), _speed(facts, facts.whole)
    if facts.model_s is None:
        return f"The loader gives {_speed(facts, facts.alone)} samples/s, and what holds it up is"
    model = f"{facts.alone.rows / facts.model_s:,.0f}" if facts.model_s else "any number of"
    if not is_held_up(facts):
        return f"The loader is not the bottleneck (it gives {alone} samples/s, the model takes {model}):"
    if keeps_up(facts):
        return f"The loader could keep up ({alone} samples/s, the model takes {model}), but together they make {whole}:"
    return f"The loader is the bottleneck (the model could take {model} samples/s and gets {whole}):"


def _steady(pace: Pace) -> str:
    """Samples a second after the first batch."""
    return f"{pace.rows / max(1e-12, pace.step_s):,.0f}"


def _speed(facts: Facts, pace: Pace) -> str:
    return f"{1 / max(1e-12, pace.per_sample(facts.given.batches)):,.0f}"


def _model(facts: Facts) -> str:
    assert facts.model_s is not None
    spare = facts.model_s / max(1e-9, facts.alone.step_s)
    return f"a step takes {duration(facts.model_s)} and a batch {duration(facts.alone.step_s)}, {spare:.1f} times less"


def _storage(facts: Facts) -> str:
    if facts.inside is None or facts.inside.sample is None:
        return f"while a batch is waited for, {facts.alone.busy_cores:.1f} cores compute"
    sample = facts.inside.sample
    source = "reading from a disk" if sample.read_bytes > 0 else "for storage, a network or a lock"
    return (
        f"a sample takes {duration(sample.seconds)}, {sample.waiting:.0%} of it waiting {source}, and "
        f"{_at_a_time(facts.given)}"
    )


def _decoding(facts: Facts) -> str:
    if facts.inside is None or facts.inside.sample is None:
        return f"while a batch is waited for, {facts.alone.busy_cores:.1f} of {facts.given.cores} cores compute"
    computing = duration(facts.inside.sample.computing_s)
    return f"a sample takes {computing} of computing, and all {facts.given.cores} cores are at it"


def _gil(facts: Facts) -> str:
    assert facts.inside is not None
    assert facts.inside.sample is not None
    sample, given = facts.inside.sample, facts.given
    return (
        f"a sample computes for {duration(sample.computing_s)}, of which {sample.gil_held:.0%} hold the GIL, so the "
        f"{given.lanes} lanes of a process take turns"
    )


def _collating(facts: Facts) -> str:
    if facts.inside is None or facts.inside.collate_s is None:
        return f"a batch takes {duration(facts.alone.step_s)}, all of it gathering rows"
    own = "your collate_fn takes" if facts.given.own_collate else "collating takes"
    return f"{own} {duration(facts.inside.collate_s)} for a batch of {facts.alone.rows:.0f}"


def _moving(facts: Facts) -> str:
    inside = facts.inside
    if inside is None or inside.handed_s is None or inside.sample is None:
        return f"a batch takes {duration(facts.alone.step_s)} to be handed over by {_workers(facts.given)}"
    return (
        f"a batch of samples that lie in memory already takes {duration(inside.handed_s)} to come out of "
        f"{_workers(facts.given)}, while loading one in place would take "
        f"{duration(inside.sample.seconds * facts.alone.rows)}"
    )


def _copying(facts: Facts) -> str:
    return f"a batch takes {duration(facts.copy_s)} to the device, and the model waits for it"


def _too_few(facts: Facts) -> str:
    given = facts.given
    if given.is_inline and keeps_up(facts):
        return f"a batch takes {duration(facts.alone.step_s)} to load, and nobody loads while the model computes"
    if facts.inside is None or facts.inside.sample is None:
        return "nobody loads while the model computes"
    computing = duration(facts.inside.sample.computing_s)
    return f"a sample takes {computing} of computing, and {_at_a_time(given)} while there are {given.cores} cores"


def _too_many(facts: Facts) -> str:
    company_s = facts.whole.model_s
    if facts.model_s is not None and company_s > 1.2 * facts.needed_s:
        return (
            f"a step takes {duration(company_s)} while {_workers(facts.given)} load, {duration(facts.needed_s)} alone"
        )
    return f"{_workers(facts.given)} on {facts.given.cores} cores are in each other's way"


def _start(facts: Facts) -> str:
    whole, given = facts.whole, facts.given
    return (
        f"the first batch of an epoch takes {duration(whole.first_s)}, a later one {duration(whole.step_s)}, and an "
        f"epoch has {given.batches or 'unknown'} batches"
    )


def _prefetch(facts: Facts) -> str:
    return (
        f"batches take {duration(facts.alone.step_s)} in mean but not evenly, and {facts.given.prefetch} a worker are "
        "not enough to bridge the slow ones"
    )


def _stragglers(facts: Facts) -> str:
    assert facts.inside is not None
    assert facts.inside.sample is not None
    sample = facts.inside.sample
    return (
        f"a sample takes {duration(sample.median_s)} in the middle but up to {duration(sample.longest_s)}, and whoever "
        "has it holds the others up"
    )


_BECAUSE: dict[Cause, Callable[[Facts], str]] = {
    Cause.MODEL: _model,
    Cause.STORAGE: _storage,
    Cause.DECODING: _decoding,
    Cause.GIL: _gil,
    Cause.COLLATING: _collating,
    Cause.MOVING: _moving,
    Cause.COPYING: _copying,
    Cause.TOO_FEW_WORKERS: _too_few,
    Cause.TOO_MANY_WORKERS: _too_many,
    Cause.EPOCH_START: _start,
    Cause.PREFETCH: _prefetch,
    Cause.STRAGGLERS: _stragglers,
}


ADVICE = {
    Cause.MODEL: "Leave the loader as it is: only a faster model would make training faster.",
    Cause.STORAGE: "Beside settings: fewer, larger files read in order, a local copy, or a cache.",
    Cause.DECODING: "Beside settings: a cheaper transform, smaller or preprocessed samples, a cache, or more cores.",
    Cause.GIL: "Beside settings: NumPy, torch or Pillow calls in place of Python loops let the GIL go.",
    Cause.COLLATING: "Beside settings: let collate_fn work on whole arrays, or do its work per sample in the dataset.",
    Cause.MOVING: "Beside settings: smaller samples (uint8 instead of float32), arrays in place of Python objects.",
    Cause.COPYING: "Beside settings: pin_memory=True with .to(device, non_blocking=True), so that the copy of a batch "
    "overlaps with the step before; smaller samples, converted on the device.",
    Cause.TOO_FEW_WORKERS: "",
    Cause.TOO_MANY_WORKERS: "",
    Cause.EPOCH_START: "Beside settings: open files and build indices once, not whenever a worker or an epoch starts.",
    Cause.PREFETCH: "Beside settings: spread what is slow over more samples.",
    Cause.STRAGGLERS: "Beside settings: look at the slowest samples; are their files larger than the others?",
}


def _workers(given: Given) -> str:
    if given.processes == 0:
        return f"{given.lanes} threads" if given.lanes > 1 else "the training process"
    workers = "1 worker" if given.processes == 1 else f"{given.processes} workers"
    return f"{workers} × {given.lanes} lanes" if given.lanes > 1 else workers


def _at_a_time(given: Given) -> str:
    return "one is loaded at a time" if given.hands == 1 else f"{given.hands} are loaded at a time"


def numbers(facts: Facts) -> tuple[tuple[str, str], ...]:
    """What was measured, as pairs of a name and a text."""
    return tuple(_numbers(facts))


def _numbers(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "loader without a model", _pace(facts, facts.alone)
    if facts.model_s is not None:
        speed = f"{facts.alone.rows / facts.model_s:,.0f}" if facts.model_s else "∞"
        yield "model on a batch in memory", f"{speed} samples/s, {duration(facts.model_s)} a step"
    if facts.copy_s:
        yield "copy to the device", f"{duration(facts.copy_s)} a batch"
    if facts.together is not None:
        lost = lost_s(facts) / max(1e-12, facts.together.epoch(facts.given.batches))
        yield "both together", f"{_pace(facts, facts.together)}; {lost:.0%} of the time the model has no batch"
    yield "first batch of an epoch", duration(facts.whole.first_s)
    yield from _inside(facts)
    yield from _doubts(facts)


def _pace(facts: Facts, pace: Pace) -> str:
    steady, whole = _steady(pace), _speed(facts, pace)
    start = f"; {whole} with the start of the epoch" if pace.start_s() > 0.05 * pace.epoch(facts.given.batches) else ""
    return f"{steady} samples/s, {duration(pace.step_s)} a batch of {pace.rows:.0f}{start}"


def _inside(facts: Facts) -> Iterator[tuple[str, str]]:
    inside = facts.inside
    if inside is None:
        return
    sample = inside.sample
    if sample is not None:
        read = f", {sample.read_bytes / 1e3:,.0f} KB from a disk" if sample.read_bytes else ""
        yield (
            "one sample, one thread",
            f"{duration(sample.seconds)}{_spread(sample)}, {sample.waiting:.0%} of it waiting; "
            f"{sample.gil_held:.0%} of computing holds the GIL; {sample.size_bytes / 1e3:,.1f} KB{read}",
        )
    if inside.collate_s is not None:
        yield "collating a batch", duration(inside.collate_s)
    if inside.handed_s is not None:
        yield "handing over a batch", f"{duration(inside.handed_s)}, samples lying in memory"
    parts = parts_of(facts)
    if parts is not None:
        yield (
            "a batch's time",
            f"waiting {duration(parts.waiting_s)}, computing {duration(parts.computing_s)}, collating "
            f"{duration(parts.collating_s)}, moving {duration(parts.moving_s)}, rest {duration(parts.rest_s)}",
        )
    if inside.trouble:
        yield "could not be looked into", inside.trouble


def _spread(sample: Sample) -> str:
    if not sample.is_uneven:
        return ""
    return f" ({duration(sample.median_s)} in the middle, up to {duration(sample.longest_s)})"


def _doubts(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.crowding > _CROWDED:
        yield (
            "beware",
            f"this machine is busy with other programs: computing takes {facts.crowding:.1f} times its time, so "
            "measure again when it is quiet",
        )
    sample = facts.inside.sample if facts.inside is not None else None
    if sample is not None and sample.read_bytes > 0 and facts.given.same_order:
        yield (
            "beware",
            "samples come from a disk, in the same order in every pass, so later passes may find them in the page "
            "cache; with shuffle=True, or a larger dataset, storage may be slower than here",
        )
