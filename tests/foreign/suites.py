"""Which tests of which projects: those that load data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    """Tests of one project, in `folder` of the folder that the user gives."""

    name: str
    folder: str
    repository: str
    paths: tuple[str, ...]
    keep: str = ""  # pytest's -k
    refused: tuple[str, ...] = field(default=())  # tests of what Stoker refuses, by part of their names


SUITES = (
    Suite(
        "Lightning: utilities, combined loader, data connector, fetchers",
        "lightning/tests",
        "Lightning-AI/pytorch-lightning",
        (
            "tests_pytorch/utilities/test_data.py",
            "tests_pytorch/utilities/test_combined_loader.py",
            "tests_pytorch/utilities/test_auto_restart.py",
            "tests_pytorch/loops/test_fetchers.py",
            "tests_pytorch/trainer/connectors/test_data_connector.py",
            "tests_pytorch/trainer/test_dataloaders.py",
        ),
    ),
    Suite(
        "Lightning: Fabric",
        "lightning/tests",
        "Lightning-AI/pytorch-lightning",
        ("tests_fabric/utilities/test_data.py", "tests_fabric/test_wrappers.py", "tests_fabric/test_fabric.py"),
    ),
    Suite("accelerate", "accelerate", "huggingface/accelerate", ("tests/test_data_loader.py",)),
    Suite(
        "transformers: the Trainer's data tests",
        "transformers",
        "huggingface/transformers",
        (
            "tests/trainer/test_trainer.py",
            "tests/trainer/test_trainer_utils.py",
        ),
        keep="dataloader or sampler or iterable or num_workers or worker or TrainerUtils",
    ),
    Suite("PyG: loaders", "pyg", "pyg-team/pytorch_geometric", ("test/loader",)),
    Suite("ignite: engine", "ignite", "pytorch/ignite", ("tests/ignite/engine",)),
    Suite(
        "MONAI: loaders",
        "monai",
        "Project-MONAI/MONAI",
        (
            "tests/data/test_dataloader.py",
            "tests/data/test_thread_buffer.py",
            "tests/data/test_iterable_dataset.py",
            "tests/data/test_persistentdataset.py",
            "tests/data/test_dataset_summary.py",
        ),
    ),
    Suite("TorchIO", "torchio", "TorchIO-project/torchio", ("tests",), keep="loader or queue or sampler"),
    Suite("lhotse: datasets", "lhotse", "lhotse-speech/lhotse", ("test/dataset",)),
    Suite(
        "litdata: streaming",
        "litdata",
        "Lightning-AI/litData",
        (
            "tests/streaming/test_dataloader.py",
            "tests/streaming/test_combined.py",
        ),
    ),
    Suite(
        "speechbrain",
        "speechbrain",
        "speechbrain/speechbrain",
        (
            "tests/unittests/test_dataloader.py",
            "tests/unittests/test_data_pipeline.py",
            "tests/unittests/test_dataset.py",
        ),
        refused=("test_saveable_dataloader",),
    ),
)
