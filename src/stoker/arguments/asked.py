"""What a loader was asked for: its arguments as they were given, and who sees those that torch does not have.

`loader.asked` is this record, and `dataclasses.replace(loader.asked, …)` is another loader's call: nothing is guessed
back from attributes. What follows from the arguments is `settle`'s matter.

The public names of our own arguments (`loader.seed`, `loader.workers`, …) are for people, and for trainers that make a
loader anew from its attributes (Lightning, ignite), which pass on what is in `vars(loader)`. Only `order`, `shard` and,
without a plan, `last` are not there: such trainers pass a sampler, and it says all that they would.

Words like `device` and `order` are short and useful, so a subclass may want them for itself. Then they are the
subclass's, however it takes them: set before or after our constructor, as a property, a method, a slot or a value of
its class.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

import torch
from torch.utils.data import IterableDataset, Sampler

from stoker.options import OnError, Workers
from stoker.order import Order
from stoker.plan import BatchPlan

V = TypeVar("V")
Last = Literal["drop", "keep", "even", "pad"]
LASTS: tuple[Last, ...] = ("drop", "keep", "even", "pad")
_SHOWN = ("seed", "reseed", "snapshot_every_n_steps", "on_error", "plan", "device", "tuned")


@dataclass(frozen=True)
class Asked:
    """The arguments of `stoker.DataLoader`, in its order and with its defaults."""

    dataset: Any
    batch_size: int | None = 1
    shuffle: bool | None = None
    sampler: Sampler[Any] | Iterable[Any] | None = None
    batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None
    num_workers: int | Literal["auto"] = 0
    collate_fn: Callable[[Any], Any] | None = None
    pin_memory: bool = False
    drop_last: bool = False
    timeout: float = 0
    worker_init_fn: Callable[[int], Any] | None = None
    multiprocessing_context: Any = None
    generator: torch.Generator | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    pin_memory_device: str = ""
    in_order: bool = True
    workers: Workers | None = None
    seed: int | None = None
    order: Order | Literal["sequential", "shuffle"] | None = None
    shard: tuple[int, int] | None = None
    last: Last | None = None
    reseed: Literal["sample"] | None = None
    snapshot_every_n_steps: int = 1
    on_error: OnError | Literal["raise", "skip", "drop", "retry"] = "raise"
    plan: BatchPlan | None = None
    device: torch.device | str | int | None = None
    tuned: str | os.PathLike[str] | None = None

    @classmethod
    def among(cls, given: Mapping[str, Any]) -> Asked:
        """The record of arguments that are among these local variables of a constructor."""
        return cls(**{name: given[name] for name in _NAMES})

    def arguments(self) -> dict[str, Any]:
        """The call again, by name."""
        return {name: getattr(self, name) for name in _NAMES}

    @property
    def policy(self) -> OnError:
        """What to do with samples that cannot be loaded."""
        return self.on_error if isinstance(self.on_error, OnError) else OnError(self.on_error)

    @property
    def is_iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the loader itself says which samples come next."""
        return not self.has_sampler and not self.is_iterable

    @property
    def has_sampler(self) -> bool:
        return self.sampler is not None or self.batch_sampler is not None

    def show_on(self, loader: Any, workers: Workers) -> None:
        """Let a loader have our arguments as attributes, as far as their names are free; with `workers` as chosen."""
        shown = {"workers": workers, **{name: getattr(self, name) for name in _SHOWN}}
        if self.plan is not None:
            shown["last"] = self.last
        for name, value in shown.items():
            if name not in vars(loader) and isinstance(getattr(type(loader), name, None), GivesWay | None):
                vars(loader)[name] = value


_NAMES = tuple(field.name for field in dataclasses.fields(Asked))


class GivesWay(Generic[V]):
    """A property that gives way: a subclass may set an attribute of the same name, or define what it likes."""

    def __init__(self, get: Callable[[Any], V]) -> None:
        self._get, self.__doc__ = get, get.__doc__

    @overload
    def __get__(self, instance: None, owner: Any) -> GivesWay[V]: ...

    @overload
    def __get__(self, instance: Any, owner: Any) -> V: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else self._get(instance)
