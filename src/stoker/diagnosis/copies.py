"""What a step does with the bytes of its batch before it computes: how long it copies and converts, seen from outside.

Most steps begin with `inputs.to(device)`, `static.copy_(inputs)` or `inputs.float()`. torch lets a mode look over every
call on tensors, so these calls can be timed without changing the step. A call counts if it makes new bytes, on another
device or in another form, of a tensor that was not computed in the step: the batch, a view of it, or a copy of it. What
the step makes of its own results (`loss.cpu()`, a cast between two layers) is computing. Each call is waited for, or
else an asynchronous copy would be charged to whatever waits for it next.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_TENSOR = torch.Tensor
_METHODS = (
    *("to", "cuda", "cpu", "copy_", "clone", "contiguous", "pin_memory", "type", "type_as", "numpy", "tolist"),
    *("float", "double", "half", "bfloat16", "int", "long", "short", "byte", "char", "bool"),
)
_FUNCTIONS = ("tensor", "as_tensor", "asarray", "from_numpy", "stack", "cat", "concat", "clone")
_MOVERS = {getattr(_TENSOR, name): f".{name}" for name in _METHODS if hasattr(_TENSOR, name)} | {
    getattr(torch, name): f"torch.{name}" for name in _FUNCTIONS
}


class StepCopies(TorchFunctionMode):
    """While entered, adds up the seconds of copies and conversions of what was not computed, by the call's name."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, float] = {}
        self._computed: dict[int, weakref.ref[Any]] = {}  # forgotten when they are gone: numbers are used again

    @property
    def seconds(self) -> float:
        return sum(self.by_name.values())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = _MOVERS.get(func)
        moved = args[1:2] if func is _TENSOR.copy_ else args
        if name is None or self._is_computed(moved):
            made = func(*args, **(kwargs or {}))
            self._note(made, args)
            return made
        begun_at = time.perf_counter()
        made = func(*args, **(kwargs or {}))
        if func is _TENSOR.copy_ or _is_new(made, args):
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()
            self.by_name[name] = self.by_name.get(name, 0.0) + time.perf_counter() - begun_at
        return made

    def _is_computed(self, args: Any) -> bool:
        return any(part.requires_grad or id(part) in self._computed for part in _tensors(args))

    def _note(self, made: Any, args: Any) -> None:
        """What comes out of other calls is computed, unless it is a view of what was not."""
        sources = list(_tensors(args))
        from_batch = not self._is_computed(args)
        for part in _tensors((made,)):
            if not from_batch or (sources and not any(_shares(part, source) for source in sources)):
                self._remember(part)

    def _remember(self, part: Any) -> None:
        number = id(part)
        self._computed[number] = weakref.ref(part, lambda _: self._computed.pop(number, None))


def _is_new(made: Any, args: Any) -> bool:
    """Whether the call has made bytes of its own: `x.to(x.device)` gives x again."""
    sources = list(_tensors(args))
    if not isinstance(made, _TENSOR):
        return isinstance(made, list)
    return not any(_shares(made, source) for source in sources)


def _shares(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() != 0)
    except (RuntimeError, NotImplementedError):  # sparse, meta, or a subclass without a storage
        return False


def _tensors(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, _TENSOR):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
