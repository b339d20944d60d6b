"""Who takes which positions: steps over an epoch, ranks over a step.

Step g takes positions [g·N, (g+1)·N), N being the samples all ranks take together, and of these a rank takes one
contiguous part. So what a step trains on does not depend on how many ranks there are, and a run can go on with another
number of them from the same step number. For that the world size must divide N.

The epoch seldom ends with a full step. The r < N samples left over are dealt with by `last`:

"drop"  there is no partial step. Up to N - 1 samples do not come this epoch.
"even"  each rank takes r // world of them, the r % world at the very end do not come: nothing is doubled, fewer samples
        than there are ranks are lost. If r < world there is no partial step.
"pad"   each rank takes ⌈r / world⌉ of them; the up to world - 1 that are missing are taken from the beginning of the
        epoch, as DistributedSampler does: nothing is lost, fewer than there are ranks are doubled.

Whatever the policy, all ranks have the same number of steps and the same number of samples in each: nobody waits for
ever in an all-reduce for a rank that has come to its end. With one rank, "even" and "pad" are torch's drop_last=False.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stoker.order.permutation import Numbers
from stoker.order.protocol import check_count

LastStep = Literal["drop", "pad", "even"]
LAST_STEP: tuple[LastStep, ...] = ("drop", "pad", "even")


@dataclass(frozen=True)
class Shard:
    """One rank of a world of them."""

    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        check_count("world", self.world, least=1)
        check_count("rank", self.rank, least=0)
        if self.rank >= self.world:
            raise ValueError(f"rank {self.rank} is not one of {self.world}: ranks go from 0 to {self.world - 1}")


def steps_per_epoch(n: int, per_step: int, world: int = 1, last: LastStep = "drop") -> int:
    """How many steps, partial last one included, every rank makes in an epoch of n samples."""
    check_division(per_step, world)
    full, left = divmod(check_count("n", n, least=0), per_step)
    return full + (_share(left, world, last) > 0)


def rank_positions(step: int, n: int, per_step: int, shard: Shard, last: LastStep = "drop") -> Numbers:
    """The positions a rank takes in a step, in order. `per_step` counts the samples of all ranks."""
    steps = steps_per_epoch(n, per_step, shard.world, last)
    if not 0 <= step < steps:
        raise ValueError(f"step {step} is not in the epoch: {n} samples make {steps} steps of {per_step}")
    full = n // per_step
    share = per_step // shard.world if step < full else _share(n - full * per_step, shard.world, last)
    first = step * per_step + shard.rank * share
    if first + share <= n:
        return np.arange(first, first + share, dtype=np.int64)
    # Only a padded step reaches past the end: there the epoch's beginning comes again, more than once if n is tiny.
    return (np.arange(first - n, first - n + share, dtype=np.int64)) % n


def step_positions(step: int, n: int, per_step: int, world: int = 1, last: LastStep = "drop") -> Numbers:
    """The positions all ranks together take in a step, rank after rank."""
    return np.concatenate([rank_positions(step, n, per_step, Shard(rank, world), last) for rank in range(world)])


def check_division(per_step: int, world: int) -> None:
    """A ValueError that names the way out, unless `world` ranks can share a step evenly."""
    check_count("samples per step", per_step, least=1)
    check_count("world", world, least=1)
    if per_step % world == 0:
        return
    fitting = " or ".join(str(size) for size in _nearest_divisors(per_step, world))
    below, above = per_step - per_step % world, per_step - per_step % world + world
    steps = f"{below} or {above}" if below else f"{above}"
    raise ValueError(
        f"a step of {per_step} samples cannot be shared evenly by {world} ranks. "
        f"Run it on {fitting} ranks, or take {steps} samples per step (that changes what each step trains on)."
    )


def _share(left: int, world: int, last: LastStep) -> int:
    """What each rank takes of the samples left over behind the full steps."""
    if last == "drop":
        return 0
    if last == "even":
        return left // world
    if last == "pad":
        return -(-left // world)
    raise ValueError(f"last should be one of {LAST_STEP}, but got {last!r}")


def _nearest_divisors(number: int, near: int) -> list[int]:
    """The largest divisor below `near` and the smallest above, if there is one."""
    below = next(size for size in range(min(near, number), 0, -1) if number % size == 0)
    above = next((size for size in range(near, number + 1) if number % size == 0), None)
    return [below] if above is None else [below, above]
