"""Which settings there are for a dataset, which of them to look at first, and which lie beside each other.

    processes × lanes × prefetch × start methods × ways of sharing × batch sizes, without what does not exist (inline
    has no prefetch, threads of the training process have no start method) or could not be told apart

Where a dataset could be probed, `stoker.auto.forecast` (the same that `num_workers="auto"` goes by) says where to
begin, and which settings are not worth a trial. The forecast is coarse, so it only rules out what it expects to be far
behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from stoker.auto.forecast import Forecast, process_counts, ranked
from stoker.bench.settings import STOKER, Setting

LANES = (1, 2, 4, 8, 16, 32)
PREFETCH = (2, 1, 4)  # the first one is the loader's own default, and where a search begins
_HOPELESS = 2.5  # a forecast this far behind another's is believed: a guess, the forecast being off by less as a rule


@dataclass(frozen=True)
class Space:
    """Lists of values, the first of each list being where a search begins; processes and lanes rise."""

    dataset: str
    processes: tuple[int, ...]
    lanes: tuple[int, ...] = LANES
    prefetch: tuple[int, ...] = PREFETCH
    start_methods: tuple[str | None, ...] = (None,)
    batch_sizes: tuple[int | None, ...] = (None,)
    shares: tuple[str | None, ...] = (None,)

    def settings(self) -> list[Setting]:
        """All of them, each once."""
        every = product(self.batch_sizes, self.start_methods, self.shares, self.prefetch, self.processes, self.lanes)
        return list(dict.fromkeys(self._setting(*values) for values in every))

    def crews(self) -> list[Setting]:
        """All crews, with the first of everything else."""
        first = self.batch_sizes[0], self.start_methods[0], self.shares[0], self.prefetch[0]
        return list(dict.fromkeys(self._setting(*first, *crew) for crew in product(self.processes, self.lanes)))

    def axes(self, setting: Setting) -> Iterator[tuple[Setting, ...]]:
        """The settings along each axis through this one, in order of the axis; axes of one setting are left out."""
        lists: tuple[tuple[str, tuple[int | str | None, ...]], ...] = (
            ("workers", self.processes),
            ("lanes", self.lanes),
            ("batch_size", tuple(sorted(self.batch_sizes, key=lambda size: size or 0))),
            ("prefetch", tuple(sorted(self.prefetch))),
            ("start_method", self.start_methods),
            ("share", self.shares),
        )
        for name, values in lists:
            axis = tuple(dict.fromkeys(self._with(setting, name, value) for value in values))
            if len(axis) > 1 and setting in axis:
                yield axis

    def _with(self, setting: Setting, name: str, value: int | str | None) -> Setting:
        usual = {
            "prefetch": setting.prefetch or self.prefetch[0],
            "start_method": setting.start_method or self.start_methods[0],
        }
        return _existing(replace(setting, **{**usual, name: value}))  # type: ignore[arg-type]

    def _setting(self, size: Any, start_method: Any, share: Any, prefetch: int, processes: int, lanes: int) -> Setting:
        how = {"start_method": start_method, "share": share}
        return _existing(Setting(self.dataset, STOKER, size, processes, lanes, prefetch, **how))


def _existing(setting: Setting) -> Setting:
    """Without what means nothing to it: inline nothing is prefetched, and the training process is not started."""
    if setting.workers:
        return setting
    prefetch = None if setting.lanes == 1 else setting.prefetch
    return replace(setting, prefetch=prefetch, start_method=None, share=None)


def space_for(dataset: str, core_count: int, is_map: bool, gives_runs: bool = False) -> Space:
    """What is usually worth a look on this machine.

    An iterable dataset is read by one lane in each process; and only its author knows whether two workers share its
    samples or double them, so no more than one is tried unasked. A dataset that gives runs of samples (`__getitems__`)
    is asked for whole batches unless somebody says otherwise: here is who may find out.
    """
    if not is_map:
        return Space(dataset, (0, 1), lanes=(1,))
    shares = (None, "parts") if gives_runs else (None,)
    return Space(dataset, (0, *process_counts(core_count), 2 * core_count), shares=shares)


Foretell = Callable[[Setting], Forecast]


@dataclass(frozen=True)
class Foreseen:
    """The space with a forecast, if there is one: where to begin, and what to leave out."""

    space: Space
    foretell: Foretell | None = None

    def first(self) -> list[Setting]:
        """The best of each kind of crew, the most promising first, without the hopeless."""
        if self.foretell is None:
            return _plain_beginning(self.space)
        settings = {setting.crew: setting for setting in self.space.crews()}
        by_kind: dict[tuple[bool, bool], Setting] = {}
        for found in ranked(map(self.foretell, settings.values())):
            by_kind.setdefault((found.workers.processes == 0, found.workers.lanes == 1), settings[found.workers])
        return self._without_hopeless(by_kind.values())

    def axes(self, setting: Setting) -> Iterator[tuple[Setting, ...]]:
        """The axes through a setting, each without what is hopeless beside it."""
        for axis in self.space.axes(setting):
            hopeful = self._without_hopeless(axis, setting)
            if len(hopeful) > 1:
                yield tuple(hopeful)

    def _without_hopeless(self, settings: Iterable[Setting], beside: Setting | None = None) -> list[Setting]:
        settings = list(settings)
        if self.foretell is None:
            return settings
        expected_s = {setting: self.foretell(setting).epoch_s for setting in settings}
        bound_s = _HOPELESS * (min(expected_s.values()) if beside is None else expected_s[beside])
        return [setting for setting in settings if expected_s[setting] <= bound_s]


def _plain_beginning(space: Space) -> list[Setting]:
    """Without a forecast: inline, one process, and the most that is not above the cores (the last but one)."""
    alone = [setting for setting in space.crews() if setting.lanes == space.lanes[0]]
    return list(dict.fromkeys([alone[0], *alone[1:2], *alone[-2:-1]]))
