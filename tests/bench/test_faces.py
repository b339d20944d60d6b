"""The drawn faces are real JPEG files, the same every time, and the dataset reads them as a course exercise would."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoker.bench.datasets.faces import FacesDataset, draw_faces

COUNT = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("faces")
    draw_faces(folder, COUNT)
    return folder


def test_every_file_is_a_jpeg_of_the_size_and_weight_of_a_photo(folder: Path) -> None:
    for path in folder.glob("*/*"):
        with Image.open(path) as photo:
            photo.load()
            assert (photo.format, photo.mode, photo.size) == ("JPEG", "RGB", (250, 250))
        assert 8_000 < path.stat().st_size < 18_000


def test_names_follow_the_layout_and_numbers_begin_at_one(folder: Path) -> None:
    for person in folder.iterdir():
        files = sorted(path.name for path in person.iterdir())
        assert files == [f"{person.name}_{number:04d}.jpg" for number in range(1, len(files) + 1)]


def test_the_same_seed_draws_the_same_bytes_and_another_seed_others(folder: Path, tmp_path: Path) -> None:
    again = draw_faces(tmp_path / "again", COUNT)
    assert [path.read_bytes() for path in again] == [
        (folder / path.relative_to(tmp_path / "again")).read_bytes() for path in again
    ]
    other = draw_faces(tmp_path / "other", 3, seed=1)
    assert not {path.read_bytes() for path in other} & {path.read_bytes() for path in again}


def test_no_two_photos_are_alike(folder: Path) -> None:
    assert len({path.read_bytes() for path in folder.glob("*/*.jpg")}) == COUNT


def test_what_exists_is_left_alone_and_what_is_missing_is_drawn(tmp_path: Path) -> None:
    paths = draw_faces(tmp_path, 4)
    kept, lost = paths[0], paths[3]
    before, expected = kept.stat().st_mtime_ns, lost.read_bytes()
    lost.unlink()
    draw_faces(tmp_path, 4)
    assert kept.stat().st_mtime_ns == before
    assert lost.read_bytes() == expected


def test_progress_counts_every_photo(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    draw_faces(tmp_path, 3, progress=lambda done, count: told.append((done, count)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_sample_is_the_decoded_photo_as_floats_and_its_persons_label(folder: Path) -> None:
    import torch

    dataset = FacesDataset(folder)
    assert len(dataset) == COUNT
    for index in range(COUNT):
        picture, label = dataset[index]
        pixels = np.asarray(Image.open(dataset.paths[index]))
        assert picture.dtype == torch.float32
        assert picture.is_contiguous()
        np.testing.assert_array_equal(picture.numpy(), pixels.transpose(2, 0, 1).astype(np.float32) / np.float32(255))
        assert dataset.names[label] == dataset.paths[index].parent.name


def test_a_transform_sees_the_picture_and_decides_the_sample(folder: Path) -> None:
    picture, _label = FacesDataset(folder, transform=lambda image: image.size)[0]
    assert picture == (250, 250)


def test_the_dataset_can_be_shipped_to_a_process(folder: Path) -> None:
    dataset = pickle.loads(pickle.dumps(FacesDataset(folder)))
    assert dataset[3][1] == FacesDataset(folder)[3][1]


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="draw_faces"):
        FacesDataset(tmp_path)
