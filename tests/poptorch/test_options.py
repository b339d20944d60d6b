"""PopTorch's options: set in chains, checked at once, frozen by use, thawed by a copy."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.poptorch.data import Numbers

import stoker
import stoker.poptorch as poptorch


def test_setters_chain_and_values_are_read_by_their_names() -> None:
    options = (
        poptorch.Options()
        .deviceIterations(3)
        .replicationFactor(4)
        .inputReplicaGrouping(2, poptorch.CommGroupType.Orthogonal)
    )
    options.Training.gradientAccumulation(5)
    assert (options.device_iterations, options.replication_factor, options.input_group_size) == (3, 4, 2)
    assert options.Training.gradient_accumulation == 5


def test_the_plan_of_a_step_is_the_product_of_the_options() -> None:
    options = poptorch.Options().deviceIterations(3).replicationFactor(4)
    options.inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    options.Training.gradientAccumulation(5)
    options.Distributed.configureProcessId(1, 6)
    assert options.plan(7) == stoker.BatchPlan(
        7, gradient_accumulation=5, replicas=4, device_iterations=3, hosts=6, input_group_size=2
    )
    assert options.plan(7).combined_batch == 7 * 5 * 3 * 4 // 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda options: options.deviceIterations(0), "deviceIterations should be at least 1, but got 0"),
        (lambda options: options.replicationFactor("2"), "replicationFactor should be a whole number"),
        (
            lambda options: options.inputReplicaGrouping(3, poptorch.CommGroupType.Consecutive),
            "do not divide 1 replicas",
        ),
        (lambda options: options.inputReplicaGrouping(1, poptorch.CommGroupType.All), "not for inputs"),
        (lambda options: options.outputMode(poptorch.OutputMode.EveryN), "EveryN needs output_return_period"),
        (lambda options: options.Training.gradientAccumulation(-1), "at least 1, but got -1"),
        (
            lambda options: options.Training.accumulationAndReplicationReductionType(
                poptorch.ReductionType.NoReduction
            ),
            "ReductionType.Mean or ReductionType.Sum",
        ),
        (lambda options: options.Distributed.configureProcessId(2, 2), "not one of 2 processes"),
        (lambda options: options.set(no_such_option=1), "there is no option 'no_such_option'"),
        (lambda options: options.set(device_iterations=1.5), "should be of type int"),
        (lambda options: options.enableSyntheticData(1), "should be True or False"),
        (lambda options: options.TensorLocations.numIOTiles(33), "even number from 32 to 192"),
    ],
)
def test_what_cannot_be_is_refused_at_once(wrong: Any, said: str) -> None:
    with pytest.raises(poptorch.Error, match=said):
        wrong(poptorch.Options())


def test_an_option_that_is_not_there_is_an_attribute_error() -> None:
    options = poptorch.Options()
    assert not hasattr(options, "random_seed")
    with pytest.raises(AttributeError, match="no option 'nonsense'"):
        _ = options.nonsense


def test_the_environment_names_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    options = poptorch.Options()
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (3, 4)
    options.Distributed.disable()
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (0, 1)
    monkeypatch.setenv("SIZE", "five")
    with pytest.raises(poptorch.Error, match="SIZE should hold a whole number, but it is 'five'"):
        options.Distributed.setEnvVarNames("SIZE", "RANK")


def test_a_random_seed_exists_once_set_and_seeds_torch() -> None:
    options = poptorch.Options()
    assert not options.exists("random_seed")
    options.randomSeed(7)
    assert options.exists("random_seed")
    drawn = torch.rand(())
    torch.manual_seed(7)
    assert torch.rand(()) == drawn


def test_use_freezes_every_namespace_and_a_copy_thaws() -> None:
    options = poptorch.Options()
    poptorch.DataLoader(options, Numbers(4))
    for change in (
        lambda of: of.randomSeed(42),
        lambda of: of.deviceIterations(2),
        lambda of: of.Training.gradientAccumulation(2),
        lambda of: of.Distributed.configureProcessId(1, 2),
        lambda of: of._Popart.set("some", "thing"),
        lambda of: of.TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage(True)),
    ):
        with pytest.raises(AttributeError, match="frozen"):
            change(options)
        change(copy.deepcopy(options))


def test_a_copy_shares_nothing() -> None:
    options = poptorch.Options().deviceIterations(5)
    twin = options.clone()
    options.deviceIterations(4).anchorTensor("short", "long")
    options.Training.gradientAccumulation(3)
    assert (twin.device_iterations, twin.Training.gradient_accumulation, twin.anchored_tensors) == (5, 1, {})


def test_options_come_from_json_and_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"deviceIterations": 2, "Training.gradientAccumulation": 3, "outputMode": ["OutputMode.EveryN", 2]}'
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", text)
    options = poptorch.Options()
    assert (options.device_iterations, options.Training.gradient_accumulation) == (2, 3)
    assert (options.output_mode, options.output_return_period) == (poptorch.OutputMode.EveryN, 2)


def test_printing_shows_what_was_set() -> None:
    options = poptorch.Options().replicationFactor(4).modelName("net").enableSyntheticData(True)
    options.Training.gradientAccumulation(9)
    shown = str(options)
    for part in ("replication_factor=4", "model_name='net'", "gradient_accumulation=9", "syntheticDataMode"):
        assert part in shown


def test_what_only_a_chip_reads_is_kept() -> None:
    options = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution()).logDir("here").useIpuId(1)
    options.Precision.setPartialsType(torch.half).enableStochasticRounding(True)
    options.TensorLocations.numIOTiles(64)
    kept = options.toDict()
    assert (kept["log_dir"], kept["ipu_id"], kept["partialsTypeMatMuls"], kept["numIOTiles"]) == ("here", 1, "half", 64)


def test_there_is_no_chip() -> None:
    assert not poptorch.ipuHardwareIsAvailable()
    assert not poptorch.isRunningOnIpu()
    with pytest.raises(poptorch.Error, match="no IPU"):
        poptorch.ipuHardwareVersion()
