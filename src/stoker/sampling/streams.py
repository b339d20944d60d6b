"""Which indices make the next batch, and how to find the place in them again.

Three kinds of streams, all counted in samples:

    OrderStream    arithmetic (`seed=`, `order=`): any place is found at once, for any number of ranks
    CutStream      torch's default samplers: the same numbers as torch's, cut from one array instead of handed out one
                   by one; found again by the seed, or the generator, that they came from
    SamplerStream  any other sampler: restored if it has a state of its own, else walked again

torch's samplers draw from a generator when the first index is asked for, and once more at the end; so do the streams,
so that whatever else uses that generator sees no difference.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from stoker.batches import has_state, restore, state_of, take_next, walk_again
from stoker.contracts import Keys
from stoker.sampling.epochs import epoch_of, tell_sampler
from stoker.sampling.ordered import OrderPlan

_NOTHING = object()


@dataclass(frozen=True)
class Draw:
    """The keys of one batch."""

    keys: Keys
    position: int  # of the first one in the epoch, or its number where a note says how to find that
    end: int  # samples of the epoch that are used up after this batch, over all ranks
    state: Any = None  # where a sampler with a state of its own stands now


@dataclass(frozen=True)
class Vacancy:
    """A row whose sample cannot be loaded."""

    position: int  # in the epoch
    batch: Keys  # as it was drawn, before any key was replaced
    row: int  # in that batch


@dataclass(frozen=True)
class Start:
    """Where in an epoch a stream begins, and what the epoch's order was drawn from."""

    epoch: int = 0
    position: int = 0
    batches: int = 0
    drawn: dict[str, Any] | None = None  # what `KeyStream.drawn` gave
    state: Any = None  # a Draw's state


class KeyStream(Iterator[Draw]):
    """The draws of one epoch."""

    def drawn(self) -> dict[str, Any]:
        """What the same order can be drawn from again."""
        return {}

    def leave(self) -> None:
        """The stream was taken up in the middle and is left there: draw what had been drawn when it was saved."""

    def begun(self) -> None:
        """The pass has begun, and asked for batches ahead if it does that: what a sampler is told now is news."""

    def epoch_moved_to(self) -> int | None:
        """The epoch that a sampler was told since the pass has begun; None if it still is in the same one."""
        return None

    @property
    def changes_with_epoch(self) -> bool:
        """Whether another epoch's number makes a difference before the first draw: to the order, or to samples."""
        return True

    @property
    def seed(self) -> int | None:
        """The seed that all ranks of this order share; None where they share none."""
        return None

    def reserve(self, chance: int, vacancy: Vacancy) -> Any:
        """Another sample of this epoch, picked by a large number; None where there is none to pick."""
        row = _other(vacancy.row, len(vacancy.batch), chance)
        return None if row is None else vacancy.batch[row]

    def __next__(self) -> Draw:
        raise NotImplementedError("each kind of stream draws its keys")


def key_stream(index_sampler: Any, batched: bool, start: Start) -> KeyStream:
    """The stream for what torch calls the index sampler: a batch sampler, or with batch_size=None a sampler."""
    plan = inside(index_sampler)
    if isinstance(plan, OrderPlan):
        return OrderStream(plan.fixed(), start)
    if batched and type(index_sampler) is BatchSampler:
        size, drop_last = index_sampler.batch_size, index_sampler.drop_last
        if _is_cuttable(index_sampler.sampler):
            return CutStream(index_sampler.sampler, size, drop_last, start)
        return SamplerStream(index_sampler.sampler, start, size, drop_last)
    if not batched and _is_cuttable(index_sampler):
        return CutStream(index_sampler, 1, False, start)
    return SamplerStream(index_sampler, start, None if batched else 0)


class OrderStream(KeyStream):
    """Arithmetic order: the place is a number."""

    def __init__(self, plan: OrderPlan, start: Start) -> None:
        self._plan, self._epoch = plan, start.epoch
        self._step = plan.step_at(start.position)
        self._steps = plan.steps

    def __next__(self) -> Draw:
        if self._step >= self._steps:
            raise StopIteration
        positions = self._plan.positions(self._step)
        keys = self._plan.order.indices(positions, self._epoch)
        self._step += 1
        return Draw(keys, self._plan.number_of(self._step - 1, positions), self._plan.position_after(self._step))

    @property
    def seed(self) -> int | None:
        return self._plan.seed

    def reserve(self, chance: int, vacancy: Vacancy) -> Any:
        position = _other(vacancy.position, self._plan.order.n, chance)
        if position is None:
            return None
        return int(self._plan.order.indices(np.array([position], dtype=np.int64), self._epoch)[0])


class CutStream(KeyStream):
    """torch's sequential order, or its plain shuffle, cut into batches."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool, start: Start) -> None:
        self._sampler, self._batch_size, self._drop_last = sampler, batch_size, drop_last
        self._position = start.position
        self._shuffles = type(sampler) is RandomSampler
        self._drawn = dict(start.drawn or {})
        self._generator: torch.Generator | None = None
        self._order: Any = None
        self._end = -1

    def drawn(self) -> dict[str, Any]:
        if self._shuffles and not self._drawn:
            self._drawn = draw_for(self._sampler)
        return self._drawn

    def __next__(self) -> Draw:
        if self._end < 0:
            self._begin()
        at, stop = self._position, min(self._position + self._batch_size, self._length)
        if at >= self._end:
            self._draw_the_last()
            raise StopIteration
        if stop - at < self._batch_size:
            self._draw_the_last()
        self._position = stop
        keys = np.arange(at, stop, dtype=np.int64) if self._order is None else self._order[at:stop]
        return Draw(keys, at, stop)

    def _draw_the_last(self) -> None:
        """When its indices run out, torch's sampler draws once more, for the zero samples that are left."""
        if self._generator is not None:
            torch.randperm(self._length, generator=self._generator)
            self._generator = None

    def leave(self) -> None:
        if self._end < 0:
            self._begin()
            if self._position == self._length and self._length % self._batch_size:
                self._draw_the_last()

    def reserve(self, chance: int, vacancy: Vacancy) -> Any:
        position = _other(vacancy.position, self._length, chance)
        if position is None:
            return None
        return position if self._order is None else int(self._order[position])

    def _begin(self) -> None:
        self._length = _length(self._sampler.data_source)
        self._end = self._length - self._length % self._batch_size if self._drop_last else self._length
        if self._shuffles:
            self._generator = _generator(self._sampler, self.drawn())
            self._order = torch.randperm(self._length, generator=self._generator).numpy()


class SamplerStream(KeyStream):
    """Any sampler or batch sampler: `group` samples a batch, None: it gives batches, 0: it gives single keys."""

    def __init__(self, sampler: Any, start: Start, group: int | None, drop_last: bool = False) -> None:
        self._group, self._drop_last = group, drop_last
        self._position = start.position
        self._sampler = sampler
        self._over = False
        self._drawn = dict(start.drawn or {})
        if "generator" in self._drawn:
            sampler.generator.set_state(_decode(self._drawn["generator"]))
        if "epoch" in self._drawn:
            tell_sampler(sampler, self._drawn["epoch"])
        self._epoch = self._epoch_then = epoch_of(sampler)  # now: some draw their order when asked for an iterator
        self._iterator = self._restore(start)
        both = ("iterator", self._iterator), ("sampler", self._sampler)
        self._keeper = next(((owner, thing) for owner, thing in both if has_state(thing)), None)

    def drawn(self) -> dict[str, Any]:
        if not self._drawn:
            self._drawn = {**draw_for(self._sampler), **self._epoch}
        return self._drawn

    def begun(self) -> None:
        self._epoch_then = epoch_of(self._sampler)  # some samplers count their passes themselves

    def epoch_moved_to(self) -> int | None:
        now = epoch_of(self._sampler)
        return None if now == self._epoch_then else now.get("epoch")

    @property
    def changes_with_epoch(self) -> bool:
        return bool(self._epoch)  # other samplers may not be walked twice

    def reserve(self, chance: int, vacancy: Vacancy) -> Any:
        if type(self._sampler) is DistributedSampler:  # which deals out all samples, to some rank or other
            own, samples = int(vacancy.batch[vacancy.row]), _length(self._sampler.dataset)
            return _other(own, samples, chance)
        return super().reserve(chance, vacancy)

    def __next__(self) -> Draw:
        self.drawn()  # as it is before the first key
        if self._over:
            raise StopIteration
        before = self._state()
        keys: list[Any] = self._next_keys()
        at, self._position = self._position, self._position + len(keys)
        if self._group and len(keys) < self._group and before is not None:
            # Taking these has exhausted the sampler, whose state may be that of its next epoch already.
            return Draw(keys, at, self._position, {**before, "ended": True})
        return Draw(keys, at, self._position, self._state())

    def _next_keys(self) -> list[Any]:
        if self._group is None:
            batch = next(self._iterator)
            return batch if isinstance(batch, list) else list(batch)
        if self._group == 0:
            return [next(self._iterator)]
        keys = take_next(self._iterator, self._group)
        if not keys or (self._drop_last and len(keys) < self._group):
            raise StopIteration
        return keys

    def _state(self) -> Any:
        if self._keeper is None:
            return None
        owner, thing = self._keeper
        return {"of": owner, "state": state_of(thing)}

    def _restore(self, start: Start) -> Any:
        place = start.state or {"of": None}
        if place["of"] == "sampler":
            restore(self._sampler, place["state"])
        iterator: Any = iter(self._sampler)
        if place["of"] == "iterator":
            restore(iterator, place["state"])
        elif place["of"] is None:
            walk_again(iterator, start.batches if not self._group else start.position, "sampler")
        if place.get("ended"):
            _exhaust(iterator)  # so that the sampler goes through its end, as it did then
            self._over = start.batches > 0
            return iter(self._sampler)
        return iterator


def draw_for(sampler: Any) -> dict[str, Any]:
    """What an epoch of this sampler is made from.

    Its generator as it is and the epoch that it was told, or for torch's plain shuffle a new seed.
    """
    generator = getattr(sampler, "generator", None)
    if isinstance(sampler, OrderPlan):
        return {}  # its epoch is the loader's
    if isinstance(generator, torch.Generator):
        return {"generator": _encode(generator.get_state()), **epoch_of(sampler)}
    if type(sampler) is RandomSampler and _is_cuttable(sampler):
        return {"seed": draw_seed()}
    return epoch_of(sampler)


def is_drawn_for(sampler: Any, drawn: dict[str, Any]) -> bool:
    """Whether this sampler's epoch can be drawn from that."""
    if isinstance(sampler, OrderPlan) or not drawn:
        return True
    if "generator" in drawn and not _is_generator(drawn["generator"]):
        return False
    if _is_cuttable(sampler):
        return type(sampler) is SequentialSampler or "seed" in drawn or "generator" in drawn
    return "seed" not in drawn and (
        "generator" not in drawn or isinstance(getattr(sampler, "generator", None), torch.Generator)
    )


def state_between_epochs(sampler: Any, last: Any) -> Any:
    """The state of a sampler that has one, when no epoch is under way; `last` is that of the last draw, if any."""
    if last is not None:
        return {**last, "ended": True} if last["of"] == "sampler" else None
    return {"of": "sampler", "state": state_of(sampler)} if has_state(sampler) else None


def is_cuttable(index_sampler: Any) -> bool:
    """Whether the order is torch's sequential one or its plain shuffle, which give each sample once."""
    return _is_cuttable(inside(index_sampler))


def inside(index_sampler: Any) -> Any:
    """The sampler that indices are drawn from: of torch's batch sampler, the one inside it."""
    return index_sampler.sampler if type(index_sampler) is BatchSampler else index_sampler


def draw_seed(generator: torch.Generator | None = None) -> int:
    """A seed, drawn as torch's loader and samplers draw theirs."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def length_or_none(sized: Any) -> int | None:
    """How many samples there are; None where nobody says."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def _is_cuttable(sampler: Any) -> bool:
    if type(sampler) is not RandomSampler:
        return type(sampler) is SequentialSampler
    return not sampler.replacement and sampler.num_samples == len(sampler.data_source) > 0


def _generator(sampler: Any, drawn: dict[str, Any]) -> torch.Generator:
    if "seed" in drawn:
        return torch.Generator().manual_seed(drawn["seed"])
    generator: torch.Generator = sampler.generator if sampler.generator is not None else torch.Generator()
    generator.set_state(_decode(drawn["generator"]))
    return generator


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _decode(text: str) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), np.uint8).copy())


def _is_generator(text: str) -> bool:
    try:
        torch.Generator().set_state(_decode(text))
    except (ValueError, RuntimeError):  # not base 64; not what a generator can be set to
        return False
    return True


def _exhaust(iterator: Iterator[Any]) -> None:
    while next(iterator, _NOTHING) is not _NOTHING:
        pass


def _other(place: int, places: int, chance: int) -> int | None:
    """Any place but this one (padding counts on from the end); None if there is no other."""
    return (place + 1 + chance % (places - 1)) % places if places > 1 else None


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError as error:
        raise TypeError(
            f"{error}: a map-style dataset needs __len__ for sequential order. Give it one, pass a sampler, or make "
            "it a torch.utils.data.IterableDataset."
        ) from None
