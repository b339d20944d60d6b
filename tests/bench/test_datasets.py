"""Built-in datasets are made once, have the size and shape they are told to, and survive an interruption."""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from stoker.bench.datasets import DatasetOptions, default_cache, make_dataset
from stoker.bench.datasets.pictures import PictureFolder
from stoker.bench.datasets.simulated import SimulatedAsync


def make(text: str, cache: Path, samples: int | None = None) -> object:
    return make_dataset(text, DatasetOptions(cache, samples))


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


def test_photos_are_jpegs_of_varied_sizes_and_become_one_shape(tmp_path: Path) -> None:
    photos = make("photos:stored=6,samples=20", tmp_path)
    files = sorted((tmp_path / "photos").rglob("*.jpg"))
    assert len(files) == 6
    assert len({size_of(file) for file in files}) > 1
    assert 60_000 < np.mean([file.stat().st_size for file in files]) < 160_000
    picture, label = photos[19]  # type: ignore[index]
    assert (tuple(picture.shape), picture.dtype, label) == ((3, 224, 224), torch.float32, 1)
    assert torch.equal(picture, photos[1][0])  # type: ignore[index]
    assert len(photos) == 20  # type: ignore[arg-type]


def test_what_is_there_is_not_made_again_and_what_is_missing_is(tmp_path: Path) -> None:
    make("photos:stored=3,samples=3", tmp_path)
    files = sorted((tmp_path / "photos").rglob("*.jpg"))
    bytes_of_second = files[1].read_bytes()
    files[0].write_bytes(b"mine")
    files[1].unlink()
    make("photos:stored=3,samples=3", tmp_path)
    assert files[0].read_bytes() == b"mine"
    assert files[1].read_bytes() == bytes_of_second


def test_preprocessed_samples_are_rows_of_a_file(tmp_path: Path) -> None:
    dataset = make("preprocessed:stored=2,samples=5", tmp_path)
    [file] = tmp_path.glob("*.f32")
    assert file.stat().st_size == 2 * 4 * 3 * 224 * 224
    rows = np.fromfile(file, np.float32).reshape(2, 3, 224, 224)
    assert np.array_equal(dataset[3][0].numpy(), rows[1])  # type: ignore[index]
    with pytest.raises(IndexError):
        dataset[5]  # type: ignore[index]


def test_simulated_samples_have_their_bytes_and_their_index() -> None:
    dataset = make("simulated:bytes=7,samples=300", Path("unused"))
    assert dataset[258].tolist() == [2] * 7  # type: ignore[index]
    assert len(dataset) == 300  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        dataset[300]  # type: ignore[index]


def test_only_async_waiting_makes_a_dataset_async() -> None:
    assert not hasattr(make("simulated:sleep_ms=1", Path("unused")), "__agetitem__")
    dataset = make("simulated:async_ms=0.01", Path("unused"))
    assert isinstance(dataset, SimulatedAsync)
    assert np.array_equal(asyncio.run(dataset.__agetitem__(3)), dataset[3])


def test_tensors_have_the_shape_asked_for_and_are_the_same_every_time() -> None:
    first, again = (make("tensors:samples=4,shape=1x8x8", Path("unused")) for _ in range(2))
    assert tuple(first[3][0].shape) == (1, 8, 8)  # type: ignore[index]
    assert torch.equal(first[3][0], again[3][0])  # type: ignore[index]


def test_faces_repeat_what_is_stored(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    options = DatasetOptions(tmp_path, 7, lambda *progress: told.append(progress))
    faces = make_dataset("faces:stored=3", options)
    assert len(faces) == 7
    assert torch.equal(faces[6][0], faces[0][0])
    assert told == [("faces", 1, 3), ("faces", 2, 3), ("faces", 3, 3)]


def picture_bytes() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (250, 250), (9, 90, 200)).save(file, "JPEG")
    return file.getvalue()


def archive(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(picture_bytes())
            tar.addfile(info, io.BytesIO(picture_bytes()))
    return path


def test_the_real_collection_is_read_from_its_archive_or_its_folder(tmp_path: Path) -> None:
    path = archive(tmp_path / "lfw.tgz", "lfw/Ann_Lee/Ann_Lee_0001.jpg", "lfw/Bo_Li/Bo_Li_0001.jpg", "lfw/README")
    faces = make(f"faces:path={path}", tmp_path / "cache")
    assert len(faces) == 2  # type: ignore[arg-type]
    assert tuple(faces[1][0].shape) == (3, 250, 250)  # type: ignore[index]
    folder = tmp_path / "unpacked"
    (folder / "lfw" / "Ann_Lee").mkdir(parents=True)
    (folder / "lfw" / "Ann_Lee" / "Ann_Lee_0001.jpg").write_bytes(picture_bytes())
    assert len(make(f"faces:path={folder}", tmp_path / "cache")) == 1  # type: ignore[arg-type]


def test_an_archive_writes_nowhere_but_into_the_cache(tmp_path: Path) -> None:
    path = archive(tmp_path / "lfw.tgz", "../../../Evil/Evil_0001.jpg", "/../x.jpg", "Ann_Lee/Ann_Lee_0001.jpg")
    make(f"faces:path={path}", tmp_path / "cache")
    written = {file.relative_to(tmp_path).parts[0] for file in tmp_path.rglob("*.jpg")}
    assert written == {"cache"}
    assert len(list((tmp_path / "cache").rglob("*.jpg"))) == 2


@pytest.mark.parametrize("content", [b"no archive", None])
def test_an_archive_without_faces_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "lfw.tgz"
    path.write_bytes(content) if content else archive(path, "README")
    with pytest.raises(ValueError, match=r"neither a folder nor a tar archive|holds no NAME"):
        make(f"faces:path={path}", tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("lfw-*")) or content is None


def test_a_folder_of_pictures_has_its_folders_as_labels(tmp_path: Path) -> None:
    for name, size in (("cat/1.png", (300, 200)), ("dog/2.jpg", (100, 400)), ("dog/notes.txt", None)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("-") if size is None else Image.new("RGB", size).save(path)
    pictures = PictureFolder(tmp_path)
    assert [(tuple(picture.shape), label) for picture, label in (pictures[0], pictures[1])] == [
        ((3, 224, 224), 0),
        ((3, 224, 224), 1),
    ]


def test_the_cache_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache() == Path("/somewhere/stoker/datasets")
