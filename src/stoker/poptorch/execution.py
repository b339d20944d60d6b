"""How PopTorch would spread a model's layers over chips. Here a model runs on one torch device, layer after layer.

The names stay, so that scripts which annotate their layers run unchanged: a `Block` is entered and left, a strategy is
kept in the options, and neither changes what is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

M = TypeVar("M")


class ExecutionStrategy:
    """A plan for several chips, kept as it was given."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class PipelinedExecution(ExecutionStrategy):
    """Layers as stages that work at the same time."""


class ShardedExecution(PipelinedExecution):
    """Layers on several chips, one after another."""


class ParallelPhasedExecution(ExecutionStrategy):
    """Layers in phases, on alternating chips."""


class SerialPhasedExecution(ExecutionStrategy):
    """Layers in phases, one after another."""


class Stage:
    """Blocks that run together."""

    def __init__(self, *block_ids: str) -> None:
        self.blocks = list(block_ids)

    def ipu(self, ipu: int) -> Stage:
        """Which chip it would run on."""
        self._ipu = ipu
        return self


class Phase:
    """Stages that run at the same time."""

    def __init__(self, *stages: Any) -> None:
        self.stages = stages

    def ipus(self, *ipus: int) -> None:
        """Which chips they would run on."""
        for stage, ipu in zip(self.stages, ipus, strict=True):
            stage.ipu(ipu)


class Block:
    """Marks layers that belong together: a context manager, `Block.start(…)`, or a base class' name."""

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None) -> None:
        self.user_id, self.ipu_id = user_id, ipu_id

    @staticmethod
    def useAutoId() -> None:
        """Blocks without a name are numbered."""

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        """A block begins here and ends where the next begins."""

    def __enter__(self) -> Block:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was held."""


def BeginBlock(layer_to_call: M, user_id: str | None = None, ipu_id: int | None = None) -> M:
    """The layer itself: it would begin a block."""
    return layer_to_call


def BlockFunction(user_id: str | None = None, ipu_id: int | None = None) -> Callable[[M], M]:
    """A decorator that leaves the function as it is."""
    return lambda function: function


def removeBlocks(module: Any) -> None:
    """Nothing was added to the module."""
