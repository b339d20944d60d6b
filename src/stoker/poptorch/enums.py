"""PopTorch's enumerations: the same names and numbers, because scripts store both.

Those that only speak of the chip (how its cores synchronise, where its memory lies) are here for scripts that set them;
nothing on a torch device reads them.
"""

from __future__ import annotations

import enum


class DataLoaderMode(enum.IntEnum):
    """How a loader works ahead of its consumer."""

    Sync = 0  # steps are made by the workers, ahead as far as the engine's window goes
    Async = 1  # a buffer of steps besides, which is filled between epochs too
    AsyncRebatched = 2  # the same, with one tail for the whole of an iterable dataset instead of one a worker


class SharingStrategy(enum.IntEnum):
    """How the processes that load are started, and so how the dataset gets there."""

    SharedMemory = 0  # spawn
    FileSystem = 1  # spawn as well: what is too large for a pipe is no concern of the engine's
    Fork = 2
    ForkServer = 3


class OutputMode(enum.IntEnum):
    """Which micro-batches' results a model returns."""

    Final = 0  # the last of each replica
    EveryN = 1  # those of every n-th device iteration
    All = 2
    Sum = 3  # per replica, the sum of all
    Default = 4  # All for inference, Final for training


class ReductionType(enum.IntEnum):
    """How gradients of micro-batches and replicas become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class CommGroupType(enum.IntEnum):
    """Which replicas read the same input."""

    All = 0  # not allowed for inputs
    Consecutive = 1  # {0, 1}, {2, 3}
    Orthogonal = 2  # {0, 2}, {1, 3}
    NoGrouping = 3


class MeanReductionStrategy(enum.IntEnum):
    """When a mean is divided; the result on a torch device is the same."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class ConnectionType(enum.IntEnum):
    """When to attach to a device. `Never` means that a model is not to be run."""

    Always = 0
    OnDemand = 1
    Never = 2


class HalfFloatCastingBehavior(enum.IntEnum):
    """Of the chip."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class SyncPattern(enum.IntEnum):
    """Of the chip."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class Liveness(enum.IntEnum):
    """Of the chip."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class AutoStage(enum.IntEnum):
    """Of the chip."""

    SameAsIpu = 0
    AutoIncrement = 1


class VariableRetrievalMode(enum.IntEnum):
    """Of the chip."""

    OnePerGroup = 0
    AllReplicas = 2


class MatMulSerializationMode(enum.Enum):
    """Of the chip."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class OverlapMode(enum.Enum):
    """Of the chip."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"
