"""What torch's `default_collate` would do with a value, and that function itself without torch's shared memory.

torch looks a value's type up in a registry that users may extend (`default_collate_fn_map`). A value is written as rows
only where the registry still says what torch ships; anything else goes through torch's own `collate`. There, in a
worker, torch would make a new shared-memory file for every tensor: `collate_plainly` keeps the rest of torch's
behaviour and stacks into ordinary memory instead, since the result is copied into a slot anyway.
"""

from __future__ import annotations

import sys
from typing import Any

from stoker.batches.layout import Leaf, Misfit, numpy_leaf
from stoker.nested import is_plain_tensor


def leaf_of(value: Any, *, contiguous: bool = False) -> Leaf | None:
    """The column for this value, None for a container; Misfit where torch's own collate has to decide.

    `contiguous` refuses values whose memory is permuted: in the training process torch lets those decide the strides
    of the batch (channels last, for example), in a worker it does not.
    """
    if "torch" not in sys.modules:
        return _numpy_side(value, contiguous)
    _check_registry(value)
    import torch

    if isinstance(value, torch.Tensor):
        return _tensor_leaf(value, contiguous)
    return _numpy_side(value, contiguous)


def is_default_collate(collate_fn: Any) -> bool:
    """Whether this is torch's `default_collate` itself, so that batches may be made in any equal way."""
    from torch.utils.data import default_collate

    return collate_fn is default_collate


def collate_plainly(samples: list[Any]) -> Any:
    """torch's `default_collate`, its registry included, with tensors stacked into ordinary memory."""
    from torch.utils.data import default_collate

    avoid_shared_memory()
    return default_collate(samples)


def avoid_shared_memory() -> None:
    """In a worker: let `default_collate` stack into ordinary memory, also where a user's `collate_fn` calls it."""
    if "torch" not in sys.modules:
        return
    import torch
    from torch.utils.data._utils import collate as torch_collate

    registry = torch_collate.default_collate_fn_map
    if registry.get(torch.Tensor) is torch_collate.collate_tensor_fn:
        registry[torch.Tensor] = stack_plainly


def stack_plainly(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Stack tensors without shared memory; the kinds that torch refuses are left to torch's own error."""
    import torch

    if batch[0].is_nested or batch[0].layout is not torch.strided:
        from torch.utils.data._utils.collate import collate_tensor_fn

        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return torch.stack(batch, 0)


def _numpy_side(value: Any, contiguous: bool) -> Leaf | None:
    leaf = numpy_leaf(value)
    if leaf is not None and leaf.kind == "array" and contiguous and not value.flags.c_contiguous:
        raise Misfit
    return leaf


def _tensor_leaf(value: Any, contiguous: bool) -> Leaf:
    if not is_plain_tensor(value) or value.requires_grad:
        raise Misfit
    if contiguous and not value.is_contiguous():
        raise Misfit
    name = str(value.dtype).removeprefix("torch.")
    return Leaf("tensor", name, tuple(value.shape), value.numel() * value.element_size())


def _check_registry(value: Any) -> None:
    from torch.utils.data._utils import collate as torch_collate

    registry = torch_collate.default_collate_fn_map
    chosen = registry.get(type(value))
    if chosen is None:
        chosen = next((function for kind, function in registry.items() if isinstance(value, kind)), None)
    if chosen is not None and chosen is not stack_plainly and chosen.__module__ != torch_collate.__name__:
        raise Misfit
