"""`Options`: what a script tells the loader and the models, by PopTorch's names.

What counts here: `deviceIterations`, `replicationFactor`, `inputReplicaGrouping`, `Training.gradientAccumulation` (they
make the plan of a step: `options.plan(micro_batch)`), `Distributed` (which host this is), `randomSeed`, `outputMode`
and `enableSyntheticData`. Everything else is kept and shown, and has no effect on a torch device.

Setters return the options, so that calls can be chained. A loader or model freezes the options it is given.
"""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import torch

from stoker.plan import BatchPlan
from stoker.poptorch import enums
from stoker.poptorch.errors import Misuse
from stoker.poptorch.execution import ExecutionStrategy, PipelinedExecution
from stoker.poptorch.namespaces import (
    DistributedOptions,
    JitOptions,
    PopartOptions,
    PrecisionOptions,
    TensorLocationOptions,
    TensorLocationSettings,
    TrainingOptions,
)
from stoker.poptorch.settings import Settings, check_count, check_flag

__all__ = ["Options", "TensorLocationSettings"]


class Options(Settings):
    """How many samples a step takes, for whom, and what a model returns."""

    Training: TrainingOptions  # gradient accumulation and reduction
    Distributed: DistributedOptions  # which of several host processes this is
    TensorLocations: TensorLocationOptions  # where the chip would keep tensors
    Jit: JitOptions  # of PopTorch's former compiler
    Precision: PrecisionOptions  # of the chip's arithmetic

    def __init__(self) -> None:
        super().__init__(
            replication_factor=1,
            input_group_size=1,
            input_cgt=enums.CommGroupType.Consecutive,
            broadcast_buffers=True,
            device_iterations=1,
            log_dir=".",
            max_repeat_logs=4,
            auto_round_num_ipus=False,
            anchored_tensors={},
            output_mode=enums.OutputMode.Default,
            output_return_period=1,
            connection_type=enums.ConnectionType.Always,
            sync_pattern=enums.SyncPattern.Full,
            available_memory_proportion={},
        )
        self._Popart = popart = PopartOptions()
        self.__dict__.update(Training=TrainingOptions(popart), Distributed=DistributedOptions())
        self.__dict__.update(TensorLocations=TensorLocationOptions(), Jit=JitOptions())
        self.__dict__.update(Precision=PrecisionOptions(popart))
        self._execution_strategy: ExecutionStrategy = PipelinedExecution()
        self.from_json(os.environ.get("POPTORCH_DEFAULT_OPTIONS", "{}"))

    # What the plan of a step is made of.

    def deviceIterations(self, device_iterations: int) -> Options:
        """Updates (micro-batches, for inference) that one call of the model makes."""
        return self.set(device_iterations=check_count("deviceIterations", device_iterations))

    def replicationFactor(self, replication_factor: int) -> Options:
        """Copies of the model, each with micro-batches of its own."""
        return self.set(replication_factor=check_count("replicationFactor", replication_factor))

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: enums.CommGroupType) -> Options:
        """Let groups of `input_group_size` replicas read the same input."""
        if input_group_type == enums.CommGroupType.NoGrouping:
            input_group_size, input_group_type = 1, enums.CommGroupType.Consecutive
        if input_group_type == enums.CommGroupType.All:
            raise Misuse(
                "CommGroupType.All is not for inputs. Use Consecutive with a group size of replication_factor."
            )
        if self.replication_factor % check_count("input_group_size", input_group_size):
            raise Misuse(
                f"groups of {input_group_size} do not divide {self.replication_factor} replicas. Choose a divisor, and "
                "call replicationFactor before inputReplicaGrouping."
            )
        return self.set(input_group_size=input_group_size, input_cgt=input_group_type)

    def plan(self, micro_batch: int) -> BatchPlan:
        """How many samples a step takes with micro-batches of this size, and for whom."""
        orthogonal = self.input_cgt == enums.CommGroupType.Orthogonal
        return BatchPlan(
            micro_batch=micro_batch,
            gradient_accumulation=self.Training.gradient_accumulation,
            replicas=self.replication_factor,
            device_iterations=self.device_iterations,
            hosts=self.Distributed.numProcesses,
            input_group_size=self.input_group_size,
            input_grouping="orthogonal" if orthogonal else "consecutive",
        )

    # What a model returns, and from which data.

    def outputMode(self, output_mode: enums.OutputMode, output_return_period: int | None = None) -> Options:
        """Which micro-batches' results a call returns; the period, in device iterations, is for EveryN alone."""
        if not isinstance(output_mode, enums.OutputMode):
            raise Misuse(f"outputMode takes a poptorch.OutputMode, but got {output_mode!r}")
        if output_mode is not enums.OutputMode.EveryN:
            return self.set(output_mode=output_mode, output_return_period=1)
        if not output_return_period or output_return_period < 1:
            raise Misuse(
                f"OutputMode.EveryN needs output_return_period, a positive whole number that divides the device "
                f"iterations, but got {output_return_period!r}"
            )
        return self.set(output_mode=output_mode, output_return_period=output_return_period)

    def defaultOutputMode(self) -> bool:
        """Whether the output mode is left to the model."""
        return bool(self.output_mode == enums.OutputMode.Default)

    def randomSeed(self, random_seed: int) -> Options:
        """Seed torch's generator, and the order of shuffled data in every mode and on every host."""
        check_count("randomSeed", random_seed, least=0)
        self._check_thawed()
        torch.manual_seed(random_seed)
        return self.createOrSet(random_seed=random_seed)

    def enableSyntheticData(self, enabled: bool) -> Options:
        """Let models make up their inputs on the device, to see how fast they are when data cost nothing."""
        self._Popart.set("syntheticDataMode", 2 if check_flag("enableSyntheticData", enabled) else 0)
        return self

    @property
    def usesSyntheticData(self) -> bool:
        """Whether models make up their inputs."""
        return bool(self._Popart.options.get("syntheticDataMode", 0))

    # Kept for scripts that set them; no effect on a torch device.

    def setExecutionStrategy(self, strategy: ExecutionStrategy) -> Options:
        if not isinstance(strategy, ExecutionStrategy):
            raise Misuse(f"setExecutionStrategy takes poptorch.PipelinedExecution() or its kin, but got {strategy!r}")
        self._execution_strategy = strategy
        return self

    def anchorTensor(
        self,
        short_name: str,
        long_name: str,
        output_mode: enums.OutputMode | None = None,
        output_return_period: int | None = 1,
    ) -> Options:
        self._check_thawed()
        self.anchored_tensors[short_name] = [long_name, output_mode, output_return_period]
        return self

    def connectionType(self, connection_type: enums.ConnectionType) -> Options:
        return self.set(connection_type=connection_type)

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Options:
        self.createOrSet(ipu_version=ipu_version)
        return self.connectionType(enums.ConnectionType.Never)

    def syncPattern(self, sync_pattern: enums.SyncPattern) -> Options:
        return self.set(sync_pattern=sync_pattern)

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Options:
        return self.set(auto_round_num_ipus=auto_round_num_ipus)

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Options:
        return self.set(broadcast_buffers=broadcast_buffers)

    def logDir(self, log_dir: str) -> Options:
        return self.set(log_dir=log_dir)

    def setAvailableMemoryProportion(self, available_memory_proportion: dict[str, float]) -> Options:
        return self.set(available_memory_proportion=dict(available_memory_proportion))

    def maxRepeatLogs(self, max_lines: int | None) -> Options:
        self._check_thawed()
        self._values["max_repeat_logs"] = max_lines
        return self

    def modelName(self, name: str) -> Options:
        return self.createOrSet(model_name=name)

    def enableExecutableCaching(self, path: str) -> Options:
        return self.createOrSet(executable_cache=path)

    def useIpuModel(self, use_model: bool) -> Options:
        return self.createOrSet(ipu_model=use_model)

    def useIpuId(self, ipu_id: int) -> Options:
        return self.createOrSet(ipu_id=check_count("useIpuId", ipu_id, least=0))

    def enableStableNorm(self, enabled: bool) -> Options:
        return self.createOrSet(stable_norm=enabled)

    def logCycleCount(self, log_cycle_count: bool) -> Options:
        return self.createOrSet(log_cycle_count=log_cycle_count)

    def enableProfiling(self, profile_dir: str | None = None) -> Options:
        return self.createOrSet(profile_dir=profile_dir or "")

    def disableModuleNamescope(self) -> Options:
        return self.createOrSet(module_namescope=False)

    def updatableNamedBuffers(self, buffers: list[str]) -> Options:
        return self.createOrSet(updatable_named_buffers=list(buffers))

    def showCompilationProgressBar(self, show: bool = True) -> Options:
        return self.createOrSet(progress_bar=show)

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Options:
        return self.createOrSet(relax_optimizer_checks=relax)

    def sourceLocationExcludes(self, excludes: list[str]) -> Options:
        return self.createOrSet(location_excludes=list(excludes))

    def appendToLocationExcludes(self, *excludes: str) -> Options:
        kept = self.location_excludes if self.exists("location_excludes") else []
        return self.createOrSet(location_excludes=[*kept, *excludes])

    # The set as a whole.

    def from_json(self, string: str) -> Options:
        """Set options from `{"deviceIterations": 2, "Training.gradientAccumulation": 4}`."""
        for path, value in json.loads(string).items():
            setter: Any = self
            for name in path.split("."):
                setter = getattr(setter, name)
            arguments = value if isinstance(value, list) else [value]
            setter(*(_enum_or_itself(argument) for argument in arguments))
        return self

    def clone(self) -> Options:
        """A copy that can be changed."""
        return copy.deepcopy(self)

    def toDict(self) -> dict[str, Any]:
        """Every option of every namespace."""
        spaces = (self.Training, self.Distributed, self.TensorLocations)
        own = (super().toDict(), *(space.toDict() for space in spaces))
        return {**self._Popart.options, **{name: value for values in own for name, value in values.items()}}

    def __repr__(self) -> str:
        spaces = {name: getattr(self, name) for name in ("Training", "Distributed", "TensorLocations", "_Popart")}
        named = {**self._values, **spaces}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in named.items())})"


def _enum_or_itself(value: Any) -> Any:
    """`"OutputMode.All"` in JSON is the member of that name."""
    if not isinstance(value, str) or value.count(".") != 1:
        return value
    kind, member = value.split(".")
    return getattr(getattr(enums, kind, None), member, value)
