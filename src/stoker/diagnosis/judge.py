"""From facts and trials to one cause. First match wins:

    the model computes longer than it does alone       too many workers on its cores, or threads that hold the GIL
    … with fewer as well, or it hardly ever waits      the model
    the copy explains most of its waiting              copying to the device
    the first batch explains it                        the start of an epoch
    the loader keeps up, yet the model waits           too few workers, if nobody loads meanwhile; else too little ahead
    loading, by one of several workers of a stream     a stream that is not split
    few samples are far slower than the middle         slow samples among quick ones
    hands stood idle                                   slow batches among quick ones, or too many workers
    the largest part of a batch                        drawing indices, storage, decoding, the GIL, collating, moving
      computing, on fewer processes than cores         too few workers

"The loader keeps up" is the rule: it is not the bottleneck when it gives, without a model, at least as many samples a
second as the model takes without a loader.

Judged without trials, this is the suspicion that decides what is tried; what hands in each other's way are called
depends on whether fewer of them were quicker.
"""

from __future__ import annotations

from collections.abc import Sequence

from stoker.diagnosis.facts import WORTH_IT, Cause, Facts, GivenLoader, Sample, TriedChange
from stoker.diagnosis.parts import Parts, parts_of
from stoker.options import Workers

_FREE = 1.1  # an epoch that takes so much longer than its model is not called held up: a guess
_MOSTLY = 0.5
_SLOWED = 1.3
_FELT = 0.2  # a slow sample that takes less of a batch's time holds nobody up: a guess
_LOADING = ("waiting", "computing")
_PARTS = {
    "drawing": Cause.SAMPLER,
    "waiting": Cause.STORAGE,
    "collating": Cause.COLLATING,
    "moving": Cause.MOVING,
}
_FAR = 8.0  # times what the samples of a round explain: batches may also come in larger bursts than was thought
_BUSY_CORES = 0.5  # above this, a loader that cannot be looked into computes rather than waits: a guess


def judge(facts: Facts, tried: Sequence[TriedChange] = ()) -> Cause:
    """What holds the training loop up most."""
    if facts.model_s is not None:
        return _outside_the_loader(facts, facts.model_s, tried) or _inside_the_loader(facts, tried)
    if facts.alone.start_s() > _MOSTLY * facts.alone.epoch(facts.given.batches):
        return Cause.EPOCH_START
    return _inside_the_loader(facts, tried)


def lost_s(facts: Facts) -> float:
    """Seconds of an epoch in which the model waited: for a batch, or for its copy to the device."""
    return max(0.0, facts.whole.epoch(facts.given.batches) - _batches(facts) * _computing_s(facts))


def _computing_s(facts: Facts) -> float:
    """What the model takes for a step in the loader's company."""
    return max(facts.model_s or 0.0, facts.whole.model_s - facts.copy_s)


def _slowed_s(facts: Facts) -> float:
    """Seconds of an epoch that the model computed longer than it does alone."""
    return max(0.0, _batches(facts) * (facts.whole.model_s - facts.needed_s))


def keeps_up(facts: Facts) -> bool:
    """Whether the loader alone is at least as quick as the model alone."""
    return facts.model_s is not None and facts.alone.step_s <= facts.model_s


def is_held_up(facts: Facts) -> bool:
    """Whether an epoch takes noticeably longer than its model."""
    return facts.model_s is None or _waits(facts) or slows_the_model(facts)


def _waits(facts: Facts) -> bool:
    return lost_s(facts) > (_FREE - 1.0) * _batches(facts) * _computing_s(facts)


def slows_the_model(facts: Facts) -> bool:
    """Whether a step takes much longer while others load than it does alone."""
    return facts.model_s is not None and not facts.given.is_inline and facts.whole.model_s > _SLOWED * facts.needed_s


def _batches(facts: Facts) -> int:
    whole = facts.whole
    return whole.epoch_batches if whole.epoch_s is not None else facts.given.batches or 1000


def _outside_the_loader(facts: Facts, model_s: float, tried: Sequence[TriedChange]) -> Cause | None:
    lost = lost_s(facts)
    if slows_the_model(facts) and _slowed_s(facts) > lost:
        return _in_company(facts, _fewer(tried, facts.given, least=0))
    if not _waits(facts):
        return Cause.MODEL
    if facts.copy_s * _batches(facts) > _MOSTLY * lost:
        return Cause.COPYING
    if facts.whole.start_s() > _MOSTLY * lost:
        return Cause.EPOCH_START
    if _takes_turns(facts):
        return Cause.TOO_FEW_WORKERS if facts.alone.step_s <= _FREE * model_s else None
    return Cause.PREFETCH if keeps_up(facts) else None


def _in_company(facts: Facts, fewer: float | None) -> Cause:
    """Why the model computes longer than it does alone."""
    if fewer is not None and fewer < WORTH_IT:
        return Cause.MODEL  # with fewer workers too
    return Cause.GIL if _threads_hold_the_gil(facts) else Cause.TOO_MANY_WORKERS


def _threads_hold_the_gil(facts: Facts) -> bool:
    """Whether samples are computed by threads of the training process, which then cannot compute itself."""
    sample = facts.sample
    return facts.given.processes == 0 and sample is not None and sample.gil_held > _MOSTLY


def _takes_turns(facts: Facts) -> bool:
    """Whether nobody loads while the model computes; of a loader that hides its workers, whether it looks so."""
    if facts.given.dataset != "hidden":
        return facts.given.is_inline
    return facts.whole.step_s > 0.9 * (facts.alone.step_s + facts.needed_s)


def _inside_the_loader(facts: Facts, tried: Sequence[TriedChange]) -> Cause:
    parts, sample, fewer = parts_of(facts), facts.sample, _fewer(tried, facts.given)
    if parts is None or sample is None:
        return _seen_from_outside(facts)
    is_unexplained = parts.rest_s > _MOSTLY * facts.alone.step_s
    if is_unexplained and facts.given.processes and not facts.alone.batches:
        return Cause.EPOCH_START  # no batch came in time, and samples do not explain it: nobody has begun yet
    slow = _slow_ones(facts, parts, sample, fewer)
    if slow is None and is_unexplained:
        slow = _beside_samples(facts, parts, sample, fewer)
    return slow or _largest(parts, facts.given, sample, fewer)


def _slow_ones(facts: Facts, parts: Parts, sample: Sample, fewer: float | None) -> Cause | None:
    """A stream, samples or batches that hold the others up."""
    if parts.leading in _LOADING:
        if _is_one_stream(facts):
            return Cause.ONE_STREAM
        if sample.has_stragglers and _is_felt(facts, sample):
            return Cause.STRAGGLERS
    if _has_slow_batches(facts, parts):
        return Cause.STRAGGLERS if fewer is None or fewer < WORTH_IT else Cause.TOO_MANY_WORKERS
    return None


def _is_felt(facts: Facts, sample: Sample) -> bool:
    """Whether the slowest sample is a good part of a batch's time."""
    return sample.longest_s > _FELT * facts.alone.step_s


def _beside_samples(facts: Facts, parts: Parts, sample: Sample, fewer: float | None) -> Cause | None:
    """What most of a batch's time goes into, if what was seen of its samples does not explain it."""
    if _threads_hold_the_gil(facts) and parts.leading == "computing":
        return Cause.GIL
    idle = _idle_hands(facts, sample.is_uneven and _is_felt(facts, sample), fewer)
    if idle is None and facts.inside.handed_s is None and facts.given.processes:
        return Cause.MOVING  # it could not be measured apart, and nothing else explains it
    return idle


def _idle_hands(facts: Facts, uneven: bool, fewer: float | None) -> Cause | None:
    """What a batch takes beyond what was seen of its samples."""
    if fewer is not None and fewer >= WORTH_IT:
        return Cause.TOO_MANY_WORKERS
    if uneven and facts.given.hands > 1:
        return Cause.STRAGGLERS
    return Cause.TOO_MANY_WORKERS if fewer is None and facts.given.hands > 1 else None


def _has_slow_batches(facts: Facts, parts: Parts) -> bool:
    """Whether few rounds of batches took far longer than samples explain: slow ones that the look did not meet."""
    alone = facts.alone
    explained_s = alone.round * (alone.step_s - parts.rest_s)
    return alone.is_uneven and parts.rest_s > _FELT * alone.step_s and alone.longest_s > _FAR * explained_s


def _is_one_stream(facts: Facts) -> bool:
    """Whether several workers read the same stream, or one of them all of it."""
    return facts.given.processes > 1 and facts.inside.streams in ("same", "one")


def without_crowd(facts: Facts) -> Cause:
    """The cause if hands were not in each other's way."""
    parts, sample = parts_of(facts), facts.sample
    if parts is None or sample is None:
        return _seen_from_outside(facts)
    return _largest(parts, facts.given, sample, None)


def _largest(parts: Parts, given: GivenLoader, sample: Sample, fewer: float | None) -> Cause:
    if parts.leading != "computing":
        return _PARTS[parts.leading]
    if given.lanes > 1 and sample.gil_held > _MOSTLY and given.processes < given.cores:
        return Cause.GIL
    if given.hands < given.cores:
        return Cause.TOO_FEW_WORKERS
    return Cause.TOO_MANY_WORKERS if fewer is not None and fewer >= WORTH_IT else Cause.DECODING


def _seen_from_outside(facts: Facts) -> Cause:
    """What can be said of a loader that is only iterated: whether anybody computes meanwhile."""
    if facts.given.dataset == "arrays":
        return Cause.MOVING if facts.given.processes else Cause.COLLATING
    return Cause.DECODING if facts.alone.busy_cores > _BUSY_CORES else Cause.STORAGE


def _fewer(tried: Sequence[TriedChange], given: GivenLoader, least: int = 1) -> float | None:
    """What fewer processes of the same kind have gained, at best; None if that was not tried."""
    gains = [found.gain for found in tried if least <= _processes(found, given) < given.processes]
    return max(gains, default=None)


def _processes(found: TriedChange, given: GivenLoader) -> int:
    """How many processes a change of nothing else asks for; as many as there are, if it is about something else."""
    if found.change.kind or len(found.change.arguments) != 1:
        return given.processes
    workers = found.change.arguments.get("workers")
    if isinstance(workers, Workers):
        return workers.processes if workers.lanes == given.lanes and workers.share == "auto" else given.processes
    return int(found.change.arguments.get("num_workers", given.processes))
