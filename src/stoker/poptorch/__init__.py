"""PopTorch's names on Stoker: change the import, and a script's loading runs on any torch device.

    import stoker.poptorch as poptorch

`options`, `namespaces`, `settings`, `enums`   what a script asks for
`request`, `steps`, `hosts`, `grouping`        which samples make a step, in which order
`dataloader`, `passes`, `accessor`             who hands the steps over
`model`, `structures`, `optim`                 models that take a step at a time
`execution`, `hardware`, `logs`, `errors`      the rest

It translates: a step's arithmetic is `stoker.BatchPlan`, loading is `stoker.DataLoader`, the buffer is
`stoker.prefetch`, and output modes are those of `stoker.training`. What differs from PopTorch by intent is listed
in docs/poptorch-parity.md.
"""

from stoker.poptorch import enums, optim, options
from stoker.poptorch.accessor import AsynchronousDataAccessor
from stoker.poptorch.dataloader import DataLoader
from stoker.poptorch.enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from stoker.poptorch.errors import (
    Error,
    FetchError,
    Misuse,
    OptionError,
    RecoverableError,
    StartError,
    Terminated,
    UnrecoverableError,
)
from stoker.poptorch.execution import (
    BeginBlock,
    Block,
    BlockFunction,
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    removeBlocks,
)
from stoker.poptorch.hardware import ipuHardwareIsAvailable, ipuHardwareVersion, isRunningOnIpu
from stoker.poptorch.logs import setLogLevel
from stoker.poptorch.model import PoplarExecutor, identity_loss, inferenceModel, trainingModel
from stoker.poptorch.options import Options, TensorLocationSettings
from stoker.poptorch.structures import ICustomArgParser, registerCustomArgParser

__all__ = [
    "AsynchronousDataAccessor",
    "AutoStage",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "CommGroupType",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "FetchError",
    "HalfFloatCastingBehavior",
    "ICustomArgParser",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "Misuse",
    "OptionError",
    "Options",
    "OutputMode",
    "OverlapMode",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "PoplarExecutor",
    "RecoverableError",
    "ReductionType",
    "SerialPhasedExecution",
    "ShardedExecution",
    "SharingStrategy",
    "Stage",
    "StartError",
    "SyncPattern",
    "TensorLocationSettings",
    "Terminated",
    "UnrecoverableError",
    "VariableRetrievalMode",
    "enums",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "optim",
    "options",
    "registerCustomArgParser",
    "removeBlocks",
    "setLogLevel",
    "trainingModel",
]
