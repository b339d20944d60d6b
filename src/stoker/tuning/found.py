"""What a search found, in forms to be used: a call to copy, a file for `DataLoader(tuned=…)`, rows for a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stoker.auto.tuned import Tuned
from stoker.bench.groups import Group
from stoker.bench.records import now
from stoker.bench.settings import Setting
from stoker.bench.statistics import median
from stoker.tuning.aim import Aim


@dataclass(frozen=True)
class TriedSetting:
    """A setting with its trials, what an epoch's sample costs with it, and why it cannot win, if it cannot."""

    group: Group
    sample_s: float
    step_s: float
    trouble: str = ""

    @property
    def setting(self) -> Setting:
        return self.group.setting

    @property
    def samples_per_s(self) -> float:
        return 1 / self.sample_s if self.sample_s > 0 else 0.0

    @property
    def cpu_s(self) -> float:
        """Processor time for a sample, in the middle of the trials."""
        return median([record.cpu_s_per_sample for record in self.group.records])

    @property
    def peak_bytes(self) -> int:
        return max((record.peak_pss_bytes for record in self.group.records), default=0)


@dataclass(frozen=True)
class Tuning:
    """What was found: the best setting, and everything that was tried, the best first."""

    target: str
    aim: Aim
    best: TriedSetting
    tried: tuple[TriedSetting, ...]
    took_s: float
    cores: int

    @property
    def call(self) -> str:
        """The winning call, to be copied."""
        return call_of(self.best.setting)

    @property
    def tuned(self) -> Tuned:
        """The same for `DataLoader(dataset, tuned=…)`."""
        from stoker import __version__

        setting = self.best.setting
        found: dict[str, str | int | float] = {
            "target": self.target,
            "goal": self.aim.goal,
            "samples_per_s": float(f"{self.best.samples_per_s:.4g}"),
            "trials": sum(len(tried.group.records) for tried in self.tried),
            "measured_at": now(),
            "stoker": __version__,
        }
        return Tuned(
            processes=int(setting.workers or 0),
            lanes=setting.lanes,
            start_method=setting.start_method,
            prefetch_factor=setting.prefetch,
            batch_size=setting.batch_size,
            share=setting.share,
            cores=self.cores,
            found=found,
        )

    def save(self, path: str | Path) -> None:
        """Write `stoker.toml`."""
        self.tuned.save(path)


def call_of(setting: Setting) -> str:
    """The call that makes a loader of this setting."""
    arguments = ["dataset"]
    if setting.batch_size is not None:
        arguments.append(f"batch_size={setting.batch_size}")
    if setting.workers or setting.lanes > 1:
        crew = [f"processes={setting.workers}"]
        crew += [f"lanes={setting.lanes}"] if setting.lanes > 1 else []
        crew += [f'start_method="{setting.start_method}"'] if setting.start_method is not None else []
        crew += [f'share="{setting.share}"'] if setting.share is not None else []
        arguments.append(f"workers=stoker.Workers({', '.join(crew)})")
    if setting.prefetch is not None:
        arguments.append(f"prefetch_factor={setting.prefetch}")
    return f"stoker.DataLoader({', '.join(arguments)})"
