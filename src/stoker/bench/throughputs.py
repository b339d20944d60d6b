"""Three throughputs, and what they say together: is the loader what holds a model up?

    loader      a loop over the loader that does nothing with the batches
    synthetic   the model on data that are there already: what it could do if loading cost nothing
    real        the model on the loader's batches

A loader that works ahead beside the model is no limit while it is faster than the model alone, and both together then
come close to the model alone. The rest is where to look when they do not. `noise` is the share by which repeats of the
same measurement differ: two numbers that are closer than that are not told apart.
"""

from __future__ import annotations

from dataclasses import dataclass

_CLOSE = 0.9  # of the model alone: what is lost below that is worth a look (a guess)


@dataclass(frozen=True)
class Throughputs:
    """Items per second of the loader alone, of the model alone, and of both."""

    loader: float
    synthetic: float
    real: float
    noise: float = 0.05

    @property
    def headroom(self) -> float:
        """How many times the model's pace the loader could keep."""
        return self.loader / self.synthetic

    @property
    def reached(self) -> float:
        """The share of the model's pace that was reached with real data."""
        return self.real / self.synthetic

    def verdict(self) -> str:
        """One sentence: what is the limit, and what to try."""
        if self.reached > 1 + 2 * self.noise:
            return (
                f"Measure again: with real data the model was {self.reached:.2f} × as fast as with none to load, which "
                "only a machine that was busy with something else can explain."
            )
        numbers = f"the loader makes {self.headroom:.2f} × the model's pace, and both reach {self.reached:.0%} of it"
        if self.headroom >= 1 + self.noise:
            if self.reached >= _CLOSE:
                return f"The model is the limit, and loading is not: {numbers}."
            return (
                f"Neither alone is the limit: {numbers}. What is lost goes into bringing data to the device, or into "
                "cores that loading and model share: try more samples a step, narrower types, or fewer workers."
            )
        if self.headroom > 1 - self.noise:
            return f"Loader and model are about equally fast: {numbers}. Measure longer, and give the loader head-room."
        if self.real >= (1 - 2 * self.noise) * self.loader:
            return (
                f"The loader is the limit: {numbers}. Try more workers, more samples a step, or cheaper samples; for a "
                "slow start of each epoch, persistent workers and a larger buffer."
            )
        return (
            f"The loader is slower than the model, and slower still beside it: {numbers}. They take each other's "
            "cores, or take turns: load ahead (an asynchronous mode), and leave the model the cores it needs."
        )
