"""A diagnosis in words: one sentence for the verdict, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stoker.diagnosis.facts import CROWDED, LOADED, TAKEN, Cause, Facts, GivenLoader, Pace, Sample, TriedChange
from stoker.diagnosis.judge import is_held_up, keeps_up, lost_s, slows_the_model
from stoker.diagnosis.parts import parts_of
from stoker.diagnosis.streams import HOW_TO_SPLIT, SAME, SPLIT
from stoker.diagnosis.suspects import suspects
from stoker.watch.stats import duration

_CROWDED = 1.3
_SWAPPED_BYTES = 20e6  # less is what any machine does now and then: a guess


def verdict(facts: Facts, cause: Cause) -> str:
    """The verdict, as one sentence; before it, what makes it doubtful."""
    doubts = "".join(f"{doubt} " for doubt in first_of_all(facts))
    did = f" {facts.auto}." if facts.auto else ""
    return f"{doubts}{_head(facts)} {cause.value}; {_BECAUSE[cause](facts)}.{did}"


def first_of_all(facts: Facts) -> Iterator[str]:
    """What is to be known before anything else: why numbers are worth little, or that the data is wrong."""
    if facts.is_crowded:
        yield f"This machine is crowded ({', '.join(_crowd(facts))}), so nothing is promised: measure when it is quiet."
    if facts.is_warmed:
        yield (
            "Samples were read again in some passes, and are quicker the second time, so no change is promised "
            "anything: give a larger dataset, or fewer --seconds."
        )
    if facts.given.processes > 1 and facts.inside.streams == SAME:
        yield (
            f"Every one of the {facts.given.processes} workers reads the whole stream, so that each sample comes "
            f"{facts.given.processes} times in an epoch."
        )


def _crowd(facts: Facts) -> Iterator[str]:
    if facts.load >= LOADED:
        yield f"its load average is {facts.load:.1f} times its cores"
    if facts.taken >= TAKEN:
        yield f"other programs use {facts.taken:.0%} of its cores"
    if facts.crowding >= CROWDED:
        yield f"computing takes {facts.crowding:.1f} times its time"


def _head(facts: Facts) -> str:
    alone, whole = _steady(facts.alone), _speed(facts, facts.whole)
    if not facts.alone.batches:
        return f"The loader gave no batch within {duration(facts.alone.step_s)}, and what holds it up is"
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
    if slows_the_model(facts):
        return _company(facts)
    spare = facts.model_s / max(1e-9, facts.alone.step_s)
    return f"a step takes {duration(facts.model_s)} and a batch {duration(facts.alone.step_s)}, {spare:.1f} times less"


def _storage(facts: Facts) -> str:
    sample = facts.sample
    if sample is None:
        return f"while a batch is waited for, {facts.alone.busy_cores:.1f} cores compute"
    source = "reading from a disk" if sample.read_bytes > 0 else "for storage, a network or a lock"
    return (
        f"a sample takes {duration(sample.seconds)}, {sample.waiting:.0%} of it waiting {source}, and "
        f"{_at_a_time(facts.given)}"
    )


def _decoding(facts: Facts) -> str:
    if facts.sample is None:
        return f"while a batch is waited for, {facts.alone.busy_cores:.1f} of {facts.given.cores} cores compute"
    computing = duration(facts.sample.computing_s)
    return f"a sample takes {computing} of computing, and all {facts.given.cores} cores are at it"


def _gil(facts: Facts) -> str:
    sample, given = facts.sample, facts.given
    assert sample is not None
    return (
        f"a sample computes for {duration(sample.computing_s)}, of which {sample.gil_held:.0%} hold the GIL, so the "
        f"{given.lanes} threads of a process take turns"
    )


def _collating(facts: Facts) -> str:
    if facts.inside.collate_s is None:
        return f"a batch takes {duration(facts.alone.step_s)}, all of it gathering rows"
    own = "your collate_fn takes" if facts.given.own_collate else "collating takes"
    return f"{own} {duration(facts.inside.collate_s)} for a batch of {facts.alone.rows:.0f}"


def _moving(facts: Facts) -> str:
    inside = facts.inside
    if inside.handed_s is None or inside.sample is None:
        return f"a batch takes {duration(facts.alone.step_s)} to be handed over by {_workers(facts.given)}"
    return (
        f"a batch of samples that lie in memory already takes {duration(inside.handed_s)} to come out of "
        f"{_workers(facts.given)}, while loading one in place would take "
        f"{duration(inside.sample.seconds * facts.alone.rows)}"
    )


def _copying(facts: Facts) -> str:
    own_s = sum(seconds for _, seconds in facts.copies)
    if own_s > 0.5 * facts.copy_s:
        calls = ", ".join(name for name, seconds in facts.copies if seconds > 0.1 * own_s)
        return f"the step copies and converts its batch for {duration(own_s)} ({calls}) before it computes with it"
    return f"a batch takes {duration(facts.copy_s)} to the device, and the model waits for it"


def _sampler(facts: Facts) -> str:
    drawn_s, rows = facts.inside.drawn_s, facts.alone.rows
    return (
        f"the sampler takes {duration(drawn_s)} to draw the indices of a batch ({duration(drawn_s / max(1.0, rows))} a "
        "sample), in the training process, whatever workers do"
    )


def _one_stream(facts: Facts) -> str:
    processes = facts.given.processes
    if facts.inside.streams == SAME:
        return f"each of the {processes} workers reads all of it, which takes as long as one alone"
    return f"one of the {processes} workers gives all the samples, and the others none"


def _too_few(facts: Facts) -> str:
    given = facts.given
    if given.is_inline and keeps_up(facts):
        return f"a batch takes {duration(facts.alone.step_s)} to load, and nobody loads while the model computes"
    if facts.sample is None:
        return "nobody loads while the model computes"
    computing = duration(facts.sample.computing_s)
    return f"a sample takes {computing} of computing, and {_at_a_time(given)} while there are {given.cores} cores"


def _too_many(facts: Facts) -> str:
    if slows_the_model(facts):
        return _company(facts)
    return f"{_workers(facts.given)} on {facts.given.cores} cores are in each other's way"


def _company(facts: Facts) -> str:
    with_s, alone_s = duration(facts.whole.model_s), duration(facts.needed_s)
    return f"a step takes {with_s} in the company of {_workers(facts.given)}, {alone_s} alone"


def _start(facts: Facts) -> str:
    whole, given = facts.whole, facts.given
    if not whole.batches:
        return f"{_workers(given)} had not given a batch after that time, though samples are quick"
    order = f", for {duration(facts.inside.order_s)} of which the sampler draws its first index"
    sampler = order if _starts_with_sampler(facts) else ""
    return (
        f"the first batch of an epoch takes {duration(whole.first_s)}{sampler}, a later one {duration(whole.step_s)}, "
        f"and an epoch has {given.batches or 'unknown'} batches"
    )


def _starts_with_sampler(facts: Facts) -> bool:
    """Whether a good part of an epoch's start is the sampler's."""
    return facts.inside.order_s > 0.3 * facts.whole.start_s()


def _prefetch(facts: Facts) -> str:
    return (
        f"batches take {duration(facts.alone.step_s)} in mean but not evenly, and {facts.given.prefetch} a worker are "
        "not enough to bridge the slow ones"
    )


def _stragglers(facts: Facts) -> str:
    sample = facts.sample
    assert sample is not None
    if not (sample.has_stragglers or sample.is_uneven):
        alone = facts.alone
        several = "a batch takes" if alone.round == 1 else f"{alone.round} batches take"
        return (
            f"{several} {duration(alone.middle_s)} in the middle but up to {duration(alone.longest_s)}, while of "
            f"{sample.count} samples that were looked at the slowest took {duration(sample.longest_s)}"
        )
    often = f" (one in {sample.count / sample.slow:.0f})" if sample.slow else ""
    return (
        f"a sample takes {duration(sample.median_s)} in the middle but up to {duration(sample.longest_s)}{often}, and "
        "whoever has it holds the others up"
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
    Cause.SAMPLER: _sampler,
    Cause.ONE_STREAM: _one_stream,
}


def advice(facts: Facts, cause: Cause, tried: Sequence[TriedChange] = ()) -> str:
    """What helps beside keyword arguments."""
    parts = [_CONVERTING if cause is Cause.COPYING and not facts.given.can_pin else ADVICE[cause]]
    if facts.given.dataset == "iterable" and cause in _BY_MORE_WORKERS:
        parts.append(_MORE_WORKERS if facts.inside.streams == SPLIT else _SPLITTING)
    if cause is Cause.EPOCH_START and _starts_with_sampler(facts):
        parts.append(
            "The sampler computes its order when an epoch starts: compute it once, or while the last one runs."
        )
    if facts.hurried:
        parts.append(f"There was little time ({facts.hurried}): more --seconds tell more.")
    parts.append("" if tried else _untried(facts))
    return "\n".join(filter(None, parts))


def _untried(facts: Facts) -> str:
    changes = suspects(facts) if is_held_up(facts) else []
    names = "; ".join(str(change) for change in changes)
    return f"There was no time to try what may help: {names}. Give more --seconds." if changes else ""


_BY_MORE_WORKERS = {Cause.STORAGE, Cause.DECODING, Cause.TOO_FEW_WORKERS, Cause.ONE_STREAM, Cause.GIL}
_MORE_WORKERS = "The stream is split over workers already, so more of them may help: try num_workers."
_SPLITTING = f"{HOW_TO_SPLIT}\nThen more workers read more at a time: give the loader num_workers."
_CONVERTING = (
    "Beside settings: let the dataset or collate_fn give what the model takes (dtype, layout), so that workers convert "
    "and not the step; fill a static buffer with fewer bytes (uint8), and convert them where the model computes."
)
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
    Cause.TOO_MANY_WORKERS: "Beside settings: a model that computes on the CPU shares its cores with the workers; with "
    "torch.set_num_threads it leaves some to them.",
    Cause.EPOCH_START: "Beside settings: open files and build indices once, not whenever a worker or an epoch starts.",
    Cause.PREFETCH: "Beside settings: spread what is slow over more samples.",
    Cause.STRAGGLERS: "Beside settings: look at the slowest samples; are their files larger than the others? What "
    'helps while they are there: workers=stoker.Workers(..., share="rows"), so that a slow sample idles nobody; a '
    "larger prefetch_factor, to bridge them; in_order=False, where the order does not matter; and "
    "stoker.Workers(sample_timeout_s=...) with on_error, to give up on samples that hang.",
    Cause.SAMPLER: "Beside settings: draw the indices of an epoch at once (NumPy or torch, no Python loop an index), "
    "or before training, and give the loader the finished list as sampler=; a batch_sampler likewise.",
    Cause.ONE_STREAM: "",
}


def _workers(given: GivenLoader) -> str:
    if given.processes == 0:
        return f"{given.lanes} threads" if given.lanes > 1 else "the training process"
    workers = "1 worker" if given.processes == 1 else f"{given.processes} workers"
    return f"{workers} × {given.lanes} threads" if given.lanes > 1 else workers


def _at_a_time(given: GivenLoader) -> str:
    return "one is loaded at a time" if given.hands == 1 else f"{given.hands} are loaded at a time"


def numbers(facts: Facts) -> tuple[tuple[str, str], ...]:
    """What was measured, as pairs of a name and a text."""
    return tuple(_numbers(facts))


def _numbers(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "loader without a model", _pace(facts, facts.alone)
    if facts.auto:
        yield "who loads", facts.auto
    if facts.model_s is not None:
        speed = f"{facts.alone.rows / facts.model_s:,.0f}" if facts.model_s else "∞"
        yield "model on a batch in memory", f"{speed} samples/s, {duration(facts.model_s)} a step"
    if facts.copy_s:
        yield "copy to the device", f"{duration(facts.copy_s)} a batch"
    if facts.together is not None:
        lost = lost_s(facts) / max(1e-12, facts.together.epoch(facts.given.batches))
        yield "both together", f"{_pace(facts, facts.together)}; {lost:.0%} of the time the model has no batch"
    if facts.whole.start_known:
        yield "first batch of an epoch", duration(facts.whole.first_s)
    else:
        yield "first batch of an epoch", "not known: no second epoch was begun in the time"
    for name, seconds in facts.copies:
        yield f"{name} in the step", f"{duration(seconds)} a step"
    yield from _inside(facts)
    if facts.hurried:
        yield "out of time", facts.hurried
    yield from _doubts(facts)


def _pace(facts: Facts, pace: Pace) -> str:
    if not pace.batches:
        return f"no batch within {duration(pace.step_s)}"
    steady, whole = _steady(pace), _speed(facts, pace)
    start = f"; {whole} with the start of the epoch" if pace.start_s() > 0.05 * pace.epoch(facts.given.batches) else ""
    return f"{steady} samples/s, {duration(pace.step_s)} a batch of {pace.rows:.0f}{start}"


def _inside(facts: Facts) -> Iterator[tuple[str, str]]:
    inside, sample = facts.inside, facts.sample
    if inside.drawn_s > 1e-4 or inside.order_s > 0.01:
        first = f"; the first of an epoch {duration(inside.order_s)} more" if inside.order_s > 0.01 else ""
        yield "drawing a batch's indices", duration(inside.drawn_s) + first
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
        drawing = f"drawing {duration(parts.drawing_s)}, " if parts.drawing_s > 0.02 * facts.alone.step_s else ""
        yield (
            "a batch's time",
            f"{drawing}waiting {duration(parts.waiting_s)}, computing {duration(parts.computing_s)}, collating "
            f"{duration(parts.collating_s)}, moving {duration(parts.moving_s)}, rest {duration(parts.rest_s)}",
        )
    if inside.trouble:
        yield "could not be looked into", inside.trouble


def _spread(sample: Sample) -> str:
    if not sample.is_uneven:
        return ""
    return f" ({duration(sample.median_s)} in the middle, up to {duration(sample.longest_s)})"


def _doubts(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.is_crowded:
        yield "beware", f"this machine is crowded: {', '.join(_crowd(facts))}"
    elif facts.crowding > _CROWDED:
        yield (
            "beware",
            f"this machine is busy with other programs: computing takes {facts.crowding:.1f} times its time, so "
            "measure again when it is quiet",
        )
    if facts.swapped_bytes > _SWAPPED_BYTES:
        yield (
            "beware",
            f"the machine moved {facts.swapped_bytes / 1e6:,.0f} MB to and from its swap meanwhile: memory is short, "
            "so fewer workers, a smaller prefetch_factor or smaller batches may be quicker",
        )
    sample = facts.sample
    if sample is not None and sample.is_remembered:
        yield (
            "beware",
            f"a sample takes {duration(sample.median_s)} when it is read for the first time and "
            f"{duration(sample.again_s or 0.0)} when it is read again; these numbers are of samples read for the first "
            "time" + (", though some passes had to read again" if facts.rereads else ""),
        )
    elif sample is not None and sample.read_bytes > 0 and facts.rereads:
        yield (
            "beware",
            "samples come from a disk, and some passes read what others had read, maybe from the page cache; with a "
            "larger dataset storage may be slower than here",
        )
