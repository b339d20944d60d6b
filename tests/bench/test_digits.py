"""Digits: MNIST's files are read as they are, drawn ones are always the same, damaged files are refused."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from stoker.bench.datasets.digits import draw_digits, load_digits, read_idx, read_mnist


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder: Path, part: str, pictures: np.ndarray, labels: np.ndarray, zipped: bool) -> None:
    for name, array in ((f"{part}-images-idx3-ubyte", pictures), (f"{part}-labels-idx1-ubyte", labels)):
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(idx(array)) if zipped else idx(array))


@pytest.mark.parametrize("zipped", [True, False])
def test_mnists_files_are_read_gzipped_or_not(tmp_path: Path, zipped: bool) -> None:
    pictures = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)
    labels = np.array([7, 2, 1], np.uint8)
    write_mnist(tmp_path, "t10k", pictures, labels, zipped)
    read, known = read_mnist(tmp_path, train=False)
    assert np.array_equal(read, pictures)
    assert (known.tolist(), known.dtype) == ([7, 2, 1], np.int64)
    assert len(load_digits(tmp_path, False, 2)[0]) == 2


def test_a_folder_without_the_files_is_told_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte"):
        read_mnist(tmp_path, train=True)


@pytest.mark.parametrize(
    ("damaged", "why"),
    [(b"\x89PNG", "not an idx file"), (b"", "not an idx file"), (idx(np.zeros(9, np.uint8))[:-1], "cut short")],
)
def test_damaged_files_are_refused(tmp_path: Path, damaged: bytes, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=why):
        read_idx(path)


def test_files_of_two_collections_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, "train", np.zeros((3, 28, 28), np.uint8), np.zeros(2, np.uint8), False)
    with pytest.raises(ValueError, match="3 pictures but 2 labels"):
        read_mnist(tmp_path, train=True)


def test_drawn_digits_are_the_same_every_time_and_more_of_them_begin_alike() -> None:
    pictures, labels = draw_digits(30)
    assert (pictures.shape, pictures.dtype, labels.dtype) == ((30, 28, 28), np.uint8, np.int64)
    assert set(labels.tolist()) <= set(range(10))
    more, more_labels = draw_digits(40)
    assert np.array_equal(more[:30], pictures)
    assert np.array_equal(more_labels[:30], labels)
    other, _ = draw_digits(30, seed=1)
    assert not np.array_equal(other, pictures)


def test_drawn_digits_of_a_kind_resemble_each_other_more_than_others() -> None:
    pictures, labels = draw_digits(200)
    flat = pictures.reshape(200, -1).astype(float)
    means = np.stack([flat[labels == digit].mean(0) for digit in range(10)])
    nearest = ((flat[:, None] - means[None]) ** 2).sum(-1).argmin(1)
    assert (nearest == labels).mean() > 0.4  # a tenth would be chance
