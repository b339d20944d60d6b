"""Hugging Face's accelerate: a loader that shards itself, prepared without being taken apart.

`accelerator.prepare` makes a torch loader of every loader it is given and deals its batches out to the ranks. A Stoker
loader with `seed=` or `order=` shards itself, says so, and comes out of `accelerator.prepare` as it went in: on the
device that its `device=` names, its state in what `accelerator.save_state` writes. Others are replaced as torch's own
would be, which is right as well, only not Stoker any more.

`prepare` here is for what accelerate expects of its loaders beyond that: batches on the accelerator's device, the last
batch known as the last (gradient accumulation ends there, `gather_for_metrics` leaves out what only filled it up).

    loader = stoker.integrations.accelerate.prepare(accelerator, stoker.DataLoader(dataset, 32, shuffle=True, seed=7))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stoker.extras import brought_by
from stoker.loader.dataloader import DataLoader, asked_of
from stoker.sampling.ordered import OrderPlan

with brought_by("accelerate"):
    from accelerate.data_loader import DataLoaderStateMixin
    from accelerate.state import GradientState
    from accelerate.utils import send_to_device


def prepare(accelerator: Any, loader: DataLoader[Any]) -> PreparedLoader:
    """The loader as this accelerator wants it; `accelerator.prepare` leaves the result alone."""
    if accelerator.num_processes > 1 and not isinstance(loader.sampler, OrderPlan):
        raise ValueError(
            f"{accelerator.num_processes} processes would each load all samples: this loader does not share them out. "
            "Give it seed=… (with shuffle=True, if the samples should be shuffled), or let accelerator.prepare make a "
            "torch loader of it."
        )
    prepared: PreparedLoader = accelerator.prepare_data_loader(PreparedLoader(accelerator, loader))
    return prepared


class PreparedLoader(DataLoaderStateMixin):  # type: ignore[misc]
    """A Stoker loader with the names and habits of accelerate's own; everything else is the loader's."""

    _is_accelerate_prepared = True
    use_stateful_dataloader = True  # its state belongs into accelerate's checkpoints

    def __init__(self, accelerator: Any, loader: DataLoader[Any]) -> None:
        self.base_dataloader, self.gradient_state = loader, GradientState()
        plan = loader.sampler if isinstance(loader.sampler, OrderPlan) else None
        self._drop_last = loader.drop_last if plan is None else plan.drop_last
        self._device = accelerator.device if asked_of(loader).device is None else None
        self._ranks = accelerator.num_processes
        self._state: dict[str, Any] | None = None  # after the batch that was handed over last

    def __getattr__(self, name: str) -> Any:
        if name == "base_dataloader":
            raise AttributeError(name)
        return getattr(self.base_dataloader, name)

    def __len__(self) -> int:
        return len(self.base_dataloader)

    @property
    def total_batch_size(self) -> int:
        """Samples in a step of all processes."""
        return int((self.base_dataloader.batch_size or 1) * self._ranks)

    @property
    def total_dataset_length(self) -> int:
        dataset: Any = self.base_dataloader.dataset
        return len(dataset)

    def set_epoch(self, epoch: int) -> None:
        self.base_dataloader.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        self.begin()
        try:
            yield from self._marking_the_last(iter(self.base_dataloader))
        finally:
            self.end()

    def _marking_the_last(self, batches: Iterator[Any]) -> Iterator[Any]:
        """One batch is taken ahead of the loop, and not counted in the state until it is handed over."""
        batch = next(batches, self)  # this object itself stands for the end
        while batch is not self:
            self._state = self.base_dataloader.state_dict()
            coming = next(batches, self)
            self.end_of_dataloader = coming is self
            if coming is self:
                self._state = None
            yield batch if self._device is None else send_to_device(batch, self._device, non_blocking=True)
            batch = coming

    def state_dict(self) -> dict[str, Any]:
        return self.base_dataloader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.base_dataloader.load_state_dict(state_dict)
        self._state = None
