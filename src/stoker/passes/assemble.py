"""Which job and which crew a pass needs, read off its setup once for every iterator.

Who makes what of a batch, the first that applies:

- iterable datasets, `batch_size=None` and a `collate_fn` of the user's own: whole batches, by one worker each, in
  torch's round robin;
- `Workers(share=…)`: as it says;
- `worker_init_fn`, or a dataset with a `state_dict`: whole batches, because code that prepares each worker differently
  can see who made a batch, and a worker's state is that after a whole batch;
- `in_order=False`: whole batches, because a worker that is behind is passed over;
- `reseed="sample"`: rows for whoever is free, because then it does not matter who loads what;
- a dataset that is asked for runs (`__getitems__`): whole batches, because one call for all of it may cost little more
  than one for a part (a query, a request), and nobody knows but its author;
- everything else is shared, in fixed parts (docs/decisions/0002); or, where the number of workers may change, rows for
  whoever is free.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.multiprocessing

from stoker.auto.size import Size
from stoker.batches import InlineBatches, Items, IterableJob, MapJob, Style, has_state, is_default_collate
from stoker.contracts import Crew, EpochNote, Job, Randomness
from stoker.errors import WorkersMismatch
from stoker.options import Workers
from stoker.passes.setup import Setup
from stoker.passes.window import Window, window_for
from stoker.resume.cursor import Cursor
from stoker.resume.place import Place
from stoker.sampling.datapipes import DataPipes
from stoker.sampling.reseed import SampleSeeds
from stoker.sampling.reserves import Reserves, ranks_of
from stoker.sampling.streams import KeyStream, Start, key_stream
from stoker.slots import PrivateArena, SlotPool
from stoker.sources.fetch import fetch_for, has_own_getitem, is_async
from stoker.workers import ProcessCrew, ThreadCrew
from stoker.workers.processes import Staff, arena_for


class Assembly:
    """Job, crew, slots and stream of keys, as the setup asks for them."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.workers, self.dataset, self.limits = setup.workers, setup.data.dataset, setup.limits
        self._pipes = DataPipes(self.dataset, setup.generator)
        self.is_iterable = setup.data.is_iterable
        self.is_inline = self.workers.processes == 0 and not self._needs_threads() and self.limits is None
        self.in_order = setup.in_order or self.is_inline
        self.prefetch_factor = 2 if setup.prefetch_factor is None else setup.prefetch_factor
        self.batch_size, self.drop_last = setup.data.batch_size, setup.drop_last
        self.batch_rows = max(1, self.batch_size or 1)
        self.share = self._share()
        self.as_rows = self.share != "batches"
        self.has_states = self.is_iterable or has_state(self.dataset)
        self.spread = getattr(setup.data.sampler, "spread", None)
        self.keeps_workers = setup.persistent_workers and (self.workers.processes > 0 or self.limits is not None)
        self.private = self.workers.processes > 0 and self.share != "rows" and self.limits is None

    def shared_seed(self) -> int:
        """DataPipes are seeded alike in all workers, anew for each epoch."""
        return self._pipes.draw_seed()

    def keys(self, start: Start) -> KeyStream | None:
        """The keys of each batch of an epoch; iterable datasets have none."""
        return None if self.is_iterable else key_stream(self.setup.data.index_sampler, self.setup.batched, start)

    def note(self, place: Place, base_seed: int, shared_seed: int) -> EpochNote:
        """What randomness that belongs to a sample is keyed by: the user's seed, else the epoch's base seed."""
        seed = base_seed if self.setup.seed is None else self.setup.seed
        return EpochNote(seed, place.epoch, shared_seed, self.spread)

    def cursor(self, place: Place) -> Cursor:
        """Where a pass that begins there has come to."""
        planned = self.setup.planned
        full_rows = planned.plan.combined_batch if planned is not None and planned.is_iterable else 0
        return Cursor(place, self.workers.processes, self.keeps_workers, self.has_states, full_rows)

    def reserves(self, keys: KeyStream | None, note: EpochNote) -> Reserves:
        """Who takes the place of samples that cannot be loaded."""
        planned = self.setup.planned
        keeps_size = planned is not None and planned.tail != "keep"
        return Reserves(keys, note, self.setup.policy.action == "drop", self.ranks, keeps_size)

    @property
    def ranks(self) -> int:
        """How many train together, as far as that can be known."""
        data, planned = self.setup.data, self.setup.planned
        return ranks_of(data.sampler, data.batch_sampler, None if planned is None else planned.shard.world)

    def items(self, state: Any) -> Items:
        """Walks an iterable dataset in the training process."""
        return Items(self.dataset, self.batch_size, self.drop_last, pending=state)

    def window(self) -> Window:
        """How many batches may be under way."""
        return self.window_of(self.workers, 1)

    def window_of(self, workers: Workers, ahead: int) -> Window:
        """How many batches may be under way with these workers; `ahead` times what they need."""
        return window_for(workers, ahead * self.prefetch_factor, self.batch_rows if self.as_rows else None)

    def first_pool(self) -> SlotPool:
        """The slots that a pass begins with; where hands may change, whoever comes first brings them."""
        return self.pool() if self.limits is None else SlotPool(PrivateArena())

    def pool(self) -> SlotPool:
        """Slots: shared with worker processes, or the training process's own."""
        processes, lanes = self._most()
        return SlotPool(arena_for(processes, lanes) if processes > 0 else PrivateArena())

    def _most(self) -> tuple[int, int]:
        """The most processes there may be, and lanes of each."""
        if self.limits is None:
            return self.workers.processes, self.workers.lanes
        return self.limits.most_processes, self.limits.most_lanes

    @property
    def most_processes(self) -> int:
        return self._most()[0]

    def growing_crew(self, arena: Any, base_seed: int, size: Size) -> ProcessCrew:
        """Start so many processes, whose number may change."""
        return ProcessCrew(self._job(in_process=False), arena, self._staff(base_seed, [], size))

    def crew(self, arena: Any, base_seed: int, place: Place) -> Crew:
        """Start whoever loads, each where it stood if the run is resumed."""
        workers, states = self.workers, self.states(place)
        if workers.processes > 0:
            return ProcessCrew(self._job(in_process=False), arena, self._staff(base_seed, states))
        state = states[0] if states else None
        return ThreadCrew(self._job(in_process=True), arena, workers.lanes, is_async(self.dataset), state)

    def states(self, place: Place) -> list[Any]:
        """Where each worker's dataset stood, for a run that is resumed."""
        if place.workers is None:
            return []
        saved = place.workers["count"]
        if saved != self.workers.processes:
            raise WorkersMismatch(
                f"the dataset keeps a state in each worker, and this state is of {saved} workers, but this loader has "
                f"{self.workers.processes}. Use num_workers={saved} to go on with the run.",
                differences=[("workers", saved, self.workers.processes)],
            )
        return list(place.workers["states"])

    @property
    def sets_generators(self) -> bool:
        """Whether the process's global generators are seeded for each sample."""
        return self.setup.reseed == "sample"

    def inline(self, pool: SlotPool) -> InlineBatches:
        """Makes batches in the training process."""
        self._pipes.shard_here()
        randomness, on_error = self._randomness(keep=True), self.setup.policy
        return InlineBatches(fetch_for(self.dataset, self.setup.batched), self._style(), pool, randomness, on_error)

    def _needs_threads(self) -> bool:
        awaited_only = is_async(self.dataset) and not has_own_getitem(self.dataset)
        return self.workers.are_threads or awaited_only

    def _share(self) -> str:
        if not self._is_made_of_rows():
            return "batches"
        if self.workers.share != "auto":
            return self.workers.share
        if self.workers.processes and (self.setup.worker_init_fn is not None or has_state(self.dataset)):
            return "batches"
        if not self.in_order:
            return "batches"  # torch's way: a worker that is behind is passed over
        if self.setup.reseed == "sample":
            return "rows"
        if fetch_for(self.dataset).by_runs:
            return "batches"
        return "parts" if self.limits is None else "rows"

    def _is_made_of_rows(self) -> bool:
        """Whether a batch is nothing but its samples, one beside the other."""
        return not self.is_iterable and self.setup.batched and is_default_collate(self.setup.collate_fn)

    def _staff(self, base_seed: int, states: list[Any], size: Size | None = None) -> Staff:
        context = self.setup.context
        if context is None:
            context = torch.multiprocessing.get_context()
        return Staff(
            *self._most(),
            context,
            base_seed,
            self._pipes.init_fn(self.setup.worker_init_fn),
            self.private,
            coroutines=is_async(self.dataset) and not self.is_iterable,
            states=states,
            options=self.workers,
            size=None if size is None else (size.processes, size.lanes),
        )

    def _job(self, in_process: bool) -> Job:
        fetch, style = fetch_for(self.dataset, self.setup.batched), self._style()
        if not self.is_iterable:
            return MapJob(
                fetch,
                style,
                in_process,
                randomness=self._randomness(),
                on_error=self.setup.policy,
                spread=self.spread,
                sample_timeout_s=self.workers.sample_timeout_s,
            )
        return self._pipes.job(IterableJob)(
            fetch, style, in_process, batch_size=self.batch_size, drop_last=self.drop_last
        )

    def _randomness(self, keep: bool = False) -> Randomness | None:
        return SampleSeeds(keep) if self.sets_generators else None

    def _style(self) -> Style:
        collate, batched = self.setup.collate_fn, self.setup.batched
        as_rows = is_default_collate(collate) and batched
        ships = as_rows and self.workers.processes > 0  # as a reference it would import torch in every worker
        return Style(None if ships else collate, as_rows, not batched)
