"""The arguments that torch's loader does not have: what was asked, and who sees it.

The loader itself reads `loader._asked` only. Their public names (`loader.seed`, `loader.workers`, …) are for people,
and for trainers that make a loader anew from its attributes (Lightning, ignite), which pass on what is in
`vars(loader)`. Only `order`, `shard` and `uneven` are not there: such trainers pass a sampler, and it says all that
they would.

Words like `device` and `order` are short and useful, so a subclass may want them for itself. Then they are the
subclass's, however it takes them: set before or after our constructor, as a property, a method, a slot or a value of
its class.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

import torch

from stoker.contracts import OnError, Workers
from stoker.order import Order
from stoker.plan import BatchPlan, Tail

V = TypeVar("V")


@dataclass(frozen=True)
class OwnArguments:
    """What a loader was asked for beyond torch's arguments; `workers` is what was chosen."""

    workers: Workers
    seed: int | None = None
    order: Order | Literal["sequential", "shuffle"] | None = None
    shard: tuple[int, int] | None = None
    uneven: Literal["pad", "even", "drop"] | None = None
    reseed: Literal["sample"] | None = None
    snapshot_every_n_steps: int = 1
    on_error: OnError | Literal["raise", "skip", "drop", "retry"] = "raise"
    plan: BatchPlan | None = None
    tail: Tail | None = None
    device: torch.device | str | int | None = None
    tuned: str | os.PathLike[str] | None = None

    def show_on(self, loader: Any) -> None:
        """Let the loader have its arguments as attributes, as far as their names are free."""
        for field in dataclasses.fields(self):
            if field.name not in vars(loader) and not hasattr(type(loader), field.name):
                vars(loader)[field.name] = getattr(self, field.name)


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
