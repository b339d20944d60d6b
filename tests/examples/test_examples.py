"""The examples run, on tiny data, and what they draw is what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from examples import lfw_dataset, overlap, train_ddp, train_mnist
from PIL import Image

import stoker
from stoker.bench import load_record

EXAMPLES = Path(lfw_dataset.__file__).parent
FACES = ["-draw", "12", "-batch_size", "4"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Faces are drawn once for all tests here."""
    return tmp_path_factory.mktemp("cache")


def faces(cache: Path, out: Path, *more: str) -> None:
    assert lfw_dataset.main([*FACES, "-cache", str(cache), "-out", str(out), *more]) == 0


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that the faces example saves."""
    saved: list[Any] = []
    save = lfw_dataset.save_figure

    def keep(figure: Any, path: Path, formats: Any) -> list[Path]:
        saved.append(figure)
        return save(figure, path, formats)

    monkeypatch.setattr(lfw_dataset, "save_figure", keep)
    return saved


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("[a-z]*.py")))
def test_an_example_tells_its_commands_first(script: str) -> None:
    text = (EXAMPLES / script).read_text()
    commands = re.findall(rf"^    (?:python|torchrun) .*examples/{script}", text, re.MULTILINE)
    assert len(commands) >= 3
    assert text.index(commands[0]) < 300


def test_faces_run_without_arguments(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lfw_dataset, "DRAWN", 12)
    monkeypatch.setattr(lfw_dataset, "default_cache", lambda: cache)
    monkeypatch.chdir(tmp_path)
    assert lfw_dataset.main([]) == 0
    said = capsys.readouterr().out
    assert re.search(r"a batch: \(12, 3, 250, 250\) torch.float32, of \w+_\w+ and others", said)
    assert list(tmp_path.iterdir()) == []


def test_the_grid_shows_every_face_of_a_batch_with_a_name(cache: Path, tmp_path: Path, figures: list[Any]) -> None:
    faces(cache, tmp_path, "-visualize_batch")
    with Image.open(tmp_path / "batch.png") as picture:
        assert picture.width > 500
    [grid] = figures
    shown = [ax for ax in grid.axes if ax.images]
    known = {path.name.replace("_", " ") for path in (cache / "faces-12").iterdir()}
    assert len(shown) == 4
    assert {ax.get_title() for ax in shown} <= known
    assert all(ax.images[0].get_array().std() > 0.05 for ax in shown)


def test_timing_is_a_mean_and_a_deviation(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faces(cache, tmp_path, "-get_timing", "-batches_to_check", "2", "-loader", "torch")
    assert re.search(r"torch, 0 workers: 2 batches of 4 in \d+\.\d+ ± \d+\.\d+ s \(5 times\)", capsys.readouterr().out)


def test_the_sweep_has_error_bars_labels_and_units(
    cache: Path, tmp_path: Path, figures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lfw_dataset, "REPEATS", 2)
    faces(cache, tmp_path, "-sweep", "0", "1", "-batches_to_check", "1", "-heavy")
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
    [ax] = figures[0].axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("workers", "time of the pass (s)")
    assert {bars.get_label() for bars in ax.containers} == {"torch", "stoker"}
    assert all(bars.has_yerr for bars in ax.containers)
    assert "heavy augmentation" in ax.get_title()


def test_the_augmentation_belongs_to_the_sample_not_to_the_worker(cache: Path) -> None:
    dataset = lfw_dataset.LFWDataset(lfw_dataset.find_folder(None, cache, 12), lfw_dataset.Heavy())
    one, two = (list(stoker.DataLoader(dataset, 6, seed=1, num_workers=workers)) for workers in (0, 2))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(one, two, strict=True))


def test_an_affine_change_of_nothing_changes_nothing(cache: Path) -> None:
    dataset = lfw_dataset.LFWDataset(lfw_dataset.find_folder(None, cache, 12), lambda picture: picture)
    unchanged = lfw_dataset.LFWDataset(dataset.paths[0].parents[1], lfw_dataset.RandomAffine(0, 0, 0, 0))
    assert torch.equal(dataset[0][0], unchanged[0][0])
    changed = lfw_dataset.LFWDataset(dataset.paths[0].parents[1], lfw_dataset.RandomAffine())
    assert not torch.equal(dataset[0][0], changed[0][0])


@pytest.mark.parametrize("real", [[], ["--real"]], ids=["pretended", "real"])
def test_overlap_saves_what_it_prints(tmp_path: Path, real: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "overlap.json"
    assert overlap.main(["--triple", "1", "2", "1", "--rounds", "1", "--steps", "2", "--save", str(file), *real]) == 0
    [case] = load_record(file).cases.values()
    step, ahead, torchs, alone = (
        case.series[f"{kind}, ms a step"][0] for kind in ("stoker", "stoker, device", "torch", "without overlap")
    )
    assert min(step, ahead, torchs, alone) > 0
    if not real:
        assert [found.measured for found in case.findings] == pytest.approx([step / 2, ahead / 2])
    said = capsys.readouterr().out
    assert f"{step:.1f} ms a step" in said
    assert f"{torchs:.1f} ms a step" in said


def test_a_step_is_the_sum_or_the_longer_of_both() -> None:
    triple = overlap.Triple(40, 120, 2)
    assert (triple.together_ms, triple.longer_ms) == (160, 60)
    assert overlap.Triple(40, 120, 4).longer_ms == 40
    assert len(overlap.TRIPLES) == 5


def losses(*arguments: str) -> list[float]:
    args = train_mnist.parse(["--samples", "96", "--batch-size", "16", "--epochs", "2", "--threads", "1", *arguments])
    torch.manual_seed(1)
    net = train_mnist.make_net()
    return list(train_mnist.train(net, train_mnist.Digits(args.data, True, args.samples), args))


def test_digits_are_learned_alike_with_either_loader() -> None:
    expected = losses("--loader", "torch")
    assert len(expected) == 12
    assert losses() == expected
    assert losses("--workers", "1") == expected


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns_nearly_the_same(precision: str) -> None:
    full, half = losses(), losses("--precision", precision)
    assert half != full
    assert half == pytest.approx(full, rel=0.05)


def test_digits_in_parallel_say_what_they_run_on(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--samples", "32", "--tests", "32", "--threads", "1", "--device", "cpu"]
    assert train_mnist.main([*small, "--parallel", "--inference", "2", "8"]) == 0
    said = capsys.readouterr().out
    if torch.cuda.device_count() < 2:
        assert "it runs the model as it is" in said
    assert re.search(r"^ +8 +\d+\.\d+ +\d+\.\d+$", said, re.MULTILINE)
    assert re.search(r"32 digits to test with: \d+\.\d% right", said)


def test_one_process_trains_without_a_launcher_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["--samples", "64", "--batch-size", "16", "--workers", "0", "--every", "3"]
    run += ["--checkpoint", str(tmp_path / "run.pt"), "--curve", str(tmp_path / "curve.jsonl")]
    assert train_ddp.main([*run, "--epochs", "1"]) == 0
    assert train_ddp.main([*run, "--epochs", "2"]) == 0
    assert "epoch 0, step 3" in capsys.readouterr().out
    assert len((tmp_path / "curve.jsonl").read_text().splitlines()) == 4 + 1 + 4


@pytest.mark.slow
def test_torchrun_starts_two_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(EXAMPLES / "train_ddp.py"), "--samples", "64", "--epochs", "1", "--batch-size", "8"]
    command += ["--curve", str(tmp_path / "curve.jsonl")]
    environment = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path), "PATH": ""}
    subprocess.run(command, check=True, timeout=100, env=environment, capture_output=True)
    assert len((tmp_path / "curve.jsonl").read_text().splitlines()) == 4
