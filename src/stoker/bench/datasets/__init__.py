"""Built-in datasets: something real to load, of any size, without a download.

`faces`         250×250 JPEG portraits in the layout of "Labeled Faces in the Wild";  `lfw`  that collection itself
`photos`        JPEG photographs around 500×375, 110 KB;  `pictures`  any, resized and cropped to 3×224×224
`preprocessed`  float32 3×224×224 from a memory-mapped file: bytes to move, nothing to decode
`simulated`     a given time of computing, of sleeping or of async waiting per sample, and given bytes
`digits`        MNIST's own files, or digits drawn in their likeness, for the examples that train

One more, `tensors`, is torch's TensorDataset in memory. Files are drawn on first use and kept in a cache folder.
`samples` is the dataset's length; `stored` is how many different ones exist on disk, and an index beyond them begins
again: an epoch may be long without filling a disk.

A dataset is named by a short text, `photos` or `photos:samples=1000,stored=200`; parameters are checked by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Progress = Callable[[str, int, int], None]  # what is being made, how many are done, of how many


def default_cache() -> Path:
    """Where datasets are kept if nobody says otherwise."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "stoker" / "datasets"


@dataclass(frozen=True)
class DatasetOptions:
    """Where files go, how long a dataset is if its text does not say, and whom to tell while it is made."""

    cache: Path = field(default_factory=default_cache)
    samples: int | None = None
    progress: Progress = lambda what, done, total: None

    def counting(self, what: str) -> Callable[[int, int], None]:
        """The progress of one thing."""
        return lambda done, total: self.progress(what, done, total)


def make_dataset(text: str, options: DatasetOptions) -> Any:
    """The dataset that 'name' or 'name:key=value,key=value' says, made now or taken from the cache.

    ValueError if a part has no '=', or for a parameter that the dataset does not have.
    """
    name, _, rest = text.partition(":")
    make, kinds = BUILT_IN[name]
    values: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, sign, value = (word.strip() for word in part.partition("="))
        if not sign:
            raise ValueError(f"{part!r} should read key=value, as in {name}:{_example(name)}")
        if key not in kinds:
            raise ValueError(f"{name} has no parameter {key!r}; it has {', '.join(kinds)}")
        values[key] = _value(key, value, kinds[key])
    if options.samples is not None:
        values.setdefault("samples", options.samples)
    return make(options, **values)


def _value(key: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"{key}={text}: {text!r} is not a {_KIND_NAMES[kind]}") from None
    if kind in (int, float) and value < 0:
        raise ValueError(f"{key}={text}: should not be negative")
    if key in ("samples", "stored") and value < 1:
        raise ValueError(f"{key}={text}: a dataset has at least one sample")
    return value


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def _faces(options: DatasetOptions, samples: int = 2000, stored: int = 600, path: Path | None = None) -> Any:
    from stoker.bench.datasets.faces import FacesDataset, draw_faces
    from stoker.bench.datasets.lfw import faces_folder
    from stoker.bench.datasets.pictures import Again

    if path is not None:
        return FacesDataset(faces_folder(path, options.cache, options.counting("faces")))
    folder = options.cache / "faces"
    paths = draw_faces(folder, min(samples, stored), progress=options.counting("faces"))
    return Again(FacesDataset(folder), samples, len(paths))


def _photos(options: DatasetOptions, samples: int = 2000, stored: int = 200) -> Any:
    from stoker.bench.datasets.photos import draw_photos
    from stoker.bench.datasets.pictures import Again, PictureFolder

    folder = options.cache / "photos"
    paths = draw_photos(folder, min(samples, stored), progress=options.counting("photos"))
    return Again(PictureFolder(folder, paths), samples, len(paths))


def _preprocessed(options: DatasetOptions, samples: int = 2000, stored: int = 256) -> Any:
    from stoker.bench.datasets.preprocessed import make_preprocessed

    return make_preprocessed(options.cache, samples, min(samples, stored), progress=options.counting("preprocessed"))


def _simulated(options: DatasetOptions, **parameters: Any) -> Any:
    from stoker.bench.datasets.simulated import make_simulated

    return make_simulated(**parameters)


def _tensors(options: DatasetOptions, samples: int = 10_000, shape: tuple[int, ...] = (3, 32, 32)) -> Any:
    import torch
    from torch.utils.data import TensorDataset

    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (samples,), generator=draw)
    return TensorDataset(torch.randn(samples, *shape, generator=draw), labels)


_FILES: dict[str, Callable[[str], Any]] = {"samples": int, "stored": int}
_SIMULATED: dict[str, Callable[[str], Any]] = {"compute_ms": float, "sleep_ms": float, "async_ms": float, "bytes": int}
BUILT_IN: dict[str, tuple[Callable[..., Any], dict[str, Callable[[str], Any]]]] = {
    "faces": (_faces, {**_FILES, "path": Path}),
    "photos": (_photos, _FILES),
    "preprocessed": (_preprocessed, _FILES),
    "simulated": (_simulated, {"samples": int, **_SIMULATED}),
    "tensors": (_tensors, {"samples": int, "shape": _shape}),
}
_KIND_NAMES: dict[Callable[[str], Any], str] = {
    int: "whole number",
    float: "number",
    Path: "path",
    _shape: "shape such as 1x128x128",
}


def _example(name: str) -> str:
    return "sleep_ms=50" if name == "simulated" else "samples=1000"
