"""The namespaces of `Options`: `Training`, `Distributed`, and those that only a chip would read.

What the loader and the models use is in the first two. The others keep what scripts set, so that they run unchanged and
`print(options)` shows it; on a torch device none of it has an effect.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

import torch

from stoker.poptorch.enums import MeanReductionStrategy, ReductionType
from stoker.poptorch.errors import Misuse
from stoker.poptorch.logs import log
from stoker.poptorch.settings import Settings, check_count, check_flag

L = TypeVar("L", bound="TensorLocationSettings")


class DistributedOptions(Settings):
    """Which of several host processes this is. By default what OpenMPI's environment variables say."""

    def __init__(self) -> None:
        super().__init__(num_distributed_processes=1, distributed_process_id=0, ipuof_configs={})
        self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self) -> DistributedOptions:
        """One process, whatever the environment says."""
        return self.configureProcessId(0, 1)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> DistributedOptions:
        """Read the number of processes and the number of this one from these environment variables, now."""
        return self.configureProcessId(_from_environment(var_process_id, 0), _from_environment(var_num_processes, 1))

    def configureProcessId(self, process_id: int, num_processes: int) -> DistributedOptions:
        """Set both by hand."""
        count = check_count("num_processes", num_processes)
        number = check_count("process_id", process_id, least=0)
        if number >= count:
            raise Misuse(f"process_id {number} is not one of {count} processes: they are counted from 0 to {count - 1}")
        return self.set(distributed_process_id=number, num_distributed_processes=count)

    @property
    def processId(self) -> int:
        """Number of this process, from 0."""
        return int(self._values["distributed_process_id"])

    @property
    def numProcesses(self) -> int:
        """How many processes there are."""
        return int(self._values["num_distributed_processes"])


def _from_environment(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise Misuse(f"the environment variable {name} should hold a whole number, but it is {text!r}") from None


class PopartOptions(Settings):
    """Anything a script tells the chip's compiler. Kept under `options`, read by nobody but `enableSyntheticData`."""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["options"] = {}

    def set(self, *key_value: Any, **changes: Any) -> PopartOptions:
        """`set(key, value)`."""
        self._check_thawed()
        if key_value:
            changes = {**changes, key_value[0]: key_value[1]}
        self.__dict__["options"].update(changes)
        return self

    def setEngineOptions(self, engine_options: dict[str, str]) -> PopartOptions:
        return self.set("engineOptions", engine_options)

    def setPatterns(self, patterns: dict[str, bool], level: int = 2) -> PopartOptions:
        self.set("patterns", patterns)
        return self.set("patterns_level", check_count("level", level, least=0))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__dict__['options']})"


class TrainingOptions(Settings):
    """How many micro-batches make one update of the weights, and how their gradients are joined."""

    def __init__(self, popart: PopartOptions) -> None:
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=MeanReductionStrategy.Post,
        )
        self.__dict__["_popart"] = popart

    def gradientAccumulation(self, gradient_accumulation: int) -> TrainingOptions:
        """Micro-batches of a replica that make one update."""
        return self.set(gradient_accumulation=check_count("gradientAccumulation", gradient_accumulation))

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> TrainingOptions:
        """Mean (the default) or sum over the micro-batches of an update and over replicas."""
        if reduction_type not in (ReductionType.Mean, ReductionType.Sum) or not isinstance(
            reduction_type, ReductionType
        ):
            raise Misuse(
                f"accumulationAndReplicationReductionType takes ReductionType.Mean or ReductionType.Sum, but got "
                f"{reduction_type!r}"
            )
        return self.set(accumulation_and_replication_reduction_type=reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: MeanReductionStrategy
    ) -> TrainingOptions:
        return self.set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)

    def setAutomaticLossScaling(self, enabled: bool) -> TrainingOptions:
        self._popart.set("automaticLossScalingSettings.enabled", check_flag("setAutomaticLossScaling", enabled))
        return self

    def setConvolutionDithering(self, enabled: bool) -> TrainingOptions:
        self._popart.set("convolutionOptions", {"enableConvDithering": str(enabled).lower()})
        return self


class PrecisionOptions(Settings):
    """Of the chip's arithmetic: on a torch device the model's own dtypes decide."""

    def __init__(self, popart: PopartOptions) -> None:
        super().__init__()
        self.__dict__["_popart"] = popart

    def enableFloatingPointExceptions(self, enabled: bool) -> PrecisionOptions:
        self._popart.set("enableFloatingPointChecks", check_flag("enableFloatingPointExceptions", enabled))
        return self

    def enableStochasticRounding(self, enabled: bool) -> PrecisionOptions:
        self._popart.set("enableStochasticRounding", check_flag("enableStochasticRounding", enabled))
        return self

    def setPartialsType(self, dtype: torch.dtype) -> PrecisionOptions:
        if dtype not in (torch.float32, torch.float16):
            raise Misuse(f"setPartialsType takes torch.float or torch.half, but got {dtype}")
        self._popart.set("partialsTypeMatMuls", "float" if dtype is torch.float32 else "half")
        return self

    def halfFloatCasting(self, half_float_casting: Any) -> PrecisionOptions:
        log.info("Precision.halfFloatCasting has no effect: torch's own rules hold")
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> PrecisionOptions:
        log.info("Precision.runningStatisticsAlwaysFloat has no effect: torch's own rules hold")
        return self


class JitOptions(Settings):
    """Of PopTorch's former compiler."""

    def traceModel(self, trace_model: bool) -> JitOptions:
        if trace_model:
            raise Misuse("Jit.traceModel(True) is not supported: models run as they are. Leave it out.")
        return self


class TensorLocationSettings(Settings):
    """Where the chip would keep a tensor."""

    def minElementsForOffChip(self: L, min_elements: int) -> L:
        return self.createOrSet(minElementsForOffChip=check_count("min_elements", min_elements, least=0))

    def minElementsForReplicatedTensorSharding(self: L, min_elements: int) -> L:
        return self.createOrSet(
            minElementsForReplicatedTensorSharding=check_count("min_elements", min_elements, least=0)
        )

    def useOnChipStorage(self: L, use: bool | None = True) -> L:
        if use is None:
            self.deleteIfExists("onChip")
            return self
        return self.createOrSet(onChip=int(check_flag("useOnChipStorage", use)))

    def useReplicatedTensorSharding(self: L, use: bool = True) -> L:
        return self.createOrSet(useReplicatedTensorSharding=int(check_flag("useReplicatedTensorSharding", use)))

    def useIOTilesToLoad(self: L, use: bool = True) -> L:
        return self.createOrSet(useIOTilesToLoad=int(check_flag("useIOTilesToLoad", use)))

    def useIOTilesToStore(self: L, use: bool = True) -> L:
        return self.createOrSet(useIOTilesToStore=int(check_flag("useIOTilesToStore", use)))


class TensorLocationOptions(Settings):
    """Where the chip would keep weights, activations and the optimizer's state."""

    def numIOTiles(self, num_tiles: int) -> TensorLocationOptions:
        if not (32 <= check_count("numIOTiles", num_tiles) <= 192) or num_tiles % 2:
            raise Misuse(f"numIOTiles takes an even number from 32 to 192, but got {num_tiles}")
        return self.createOrSet(numIOTiles=num_tiles)

    def setActivationLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        return self._place(location_activation=location)

    def setWeightLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        return self._place(location_weight=location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        return self._place(location_optimizer=location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        return self._place(location_accumulator=location)

    def _place(self, **locations: TensorLocationSettings) -> TensorLocationOptions:
        for name, location in locations.items():
            if not isinstance(location, TensorLocationSettings):
                raise Misuse(f"{name} should be a poptorch.TensorLocationSettings, but got {location!r}")
            self.createOrSet(**{name: location.toDict()})
        return self
