"""Statistics where a training run's other curves are: TensorBoard, Lightning's loggers, or any function.

    stoker.log_stats(loader, SummaryWriter())                    TensorBoard, every 50 steps
    stoker.log_stats(loader, lightning_logger)                   any logger with log_metrics(values, step)
    stoker.log_stats(loader, lambda values, step: ...)           anything else

    Trainer(callbacks=[StatsCallback()])                         Lightning, with the trainer's own steps and loggers

Targets are known by what they can do, so that none of their packages is imported here. What is logged is what happened
since the last time: a rate that falls is seen at once. Names are those of `Stats.as_dict`, "stoker/wait_share" first of
all: the share of the time that the training loop waited for data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stoker.integrations.lightning_package import lightning_package
from stoker.loader import DataLoader
from stoker.watch.stats import Stats
from stoker.whole_numbers import check_whole

Log = Callable[[dict[str, float], int], object]


def log_stats(loader: Any, target: Any, every: int = 50, prefix: str = "stoker/") -> None:
    """Log the loader's statistics to `target` every so many steps, from now on."""
    if not isinstance(loader, DataLoader):
        raise TypeError(f"log_stats needs a stoker.DataLoader, but got {type(loader).__name__}")
    log = log_to(target)
    DataLoader.on_stats(loader, lambda stats, step: log(stats.as_dict(prefix), step), every)


def log_to(target: Any) -> Log:
    """How to log to this: a SummaryWriter, a logger with `log_metrics`, or a function of (values, step)."""
    if hasattr(target, "add_scalar"):
        return lambda values, step: [target.add_scalar(name, value, step) for name, value in values.items()]
    if hasattr(target, "log_metrics"):
        return lambda values, step: target.log_metrics(values, step=step)
    if callable(target):
        log: Log = target
        return log
    raise TypeError(
        "statistics are logged to something with add_scalar(name, value, step), as TensorBoard's SummaryWriter has, "
        "with log_metrics(values, step), as Lightning's loggers have, or to a function of (values, step), but got "
        f"{type(target).__name__}"
    )


class _Logs:
    """What the callback for Lightning does, whichever of Lightning's two packages it belongs to."""

    def __init__(self, every: int = 50, prefix: str = "stoker/") -> None:
        self.every, self.prefix = check_whole("every", every, 1, "steps"), prefix
        self._earlier: dict[str, Stats] = {}
        self._batches = 0  # over all epochs, which may be shorter than `every`

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._earlier = {name: loader.stats(memory=False) for name, loader in self._loaders(trainer)}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._batches += 1
        if self._batches % self.every == 0:
            self._log(trainer)

    def _log(self, trainer: Any) -> None:
        for name, loader in self._loaders(trainer):
            stats = loader.stats(memory=False)
            earlier = self._earlier.get(name)
            self._earlier[name] = stats
            lately = stats.since(earlier) if earlier is not None and earlier.steps <= stats.steps else stats
            for logger in trainer.loggers:
                logger.log_metrics(lately.as_dict(self.prefix + name), step=trainer.global_step)

    def _loaders(self, trainer: Any) -> Iterator[tuple[str, DataLoader[Any]]]:
        """The trainer's loaders that are Stoker's; one has no name, several are told apart."""
        found = list(_walk(trainer.train_dataloader, ""))
        for name, loader in found:
            if isinstance(loader, DataLoader):
                yield name if len(found) > 1 else "", loader


def _walk(loaders: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(loaders, Mapping):
        for key, loader in loaders.items():
            yield from _walk(loader, f"{name}{key}/")
    elif isinstance(loaders, list | tuple):
        for number, loader in enumerate(loaders):
            yield from _walk(loader, f"{name}{number}/")
    else:
        yield name, loaders


def __getattr__(name: str) -> Any:
    """`StatsCallback` is made when first asked for: only then must Lightning be there."""
    if name != "StatsCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    doc = "Logs the statistics of the trainer's Stoker loaders to its loggers, every so many batches."
    made = type(name, (_Logs, lightning_package().Callback), {"__module__": __name__, "__doc__": doc})
    globals()[name] = made  # by this name it is found again when it was pickled
    return made
