"""What a person wants measured, from the words on a command line.

    module:function            calls it; it returns a dataset, or a loader that is ready to be iterated
    photos                     a built-in dataset (stoker.bench.datasets), made on first use
    simulated:sleep_ms=50      the same with parameters
    path/to/folder             every image under a folder

Whatever is wrong is a TargetError that says what was looked for, what was found, and which line to change. The current
folder is importable, as it is for `python -m`.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.bench.blame import trouble_of
from stoker.bench.datasets import BUILT_IN, DatasetOptions, make_dataset
from stoker.errors import StokerError


class TargetError(StokerError, ValueError):
    """A target that cannot be measured."""


@dataclass(frozen=True)
class Target:
    """Something to measure: a dataset for the sweep's loaders, or a loader with settings of its own."""

    name: str
    thing: Any
    is_loader: bool = False
    is_map: bool = False  # a dataset with indices, which can be shuffled


def resolve(text: str, options: DatasetOptions) -> Target:
    """The target that the text names; TargetError if there is none."""
    name = text.partition(":")[0]
    if name in BUILT_IN:
        return _built_in(text, options)
    if Path(text).is_dir():
        return _folder(text)
    if ":" in text:
        return judge(text, call(text))
    close = difflib.get_close_matches(text, BUILT_IN, n=1)
    raise TargetError(
        f"{text!r} is no target."
        + (f" Did you mean {close[0]!r}?" if close else "")
        + f" A target is a built-in dataset ({', '.join(BUILT_IN)}), a folder of images, or module:function."
    )


def judge(name: str, thing: Any) -> Target:
    """Whether what a function returned is a dataset or a loader."""
    if thing is None:
        raise TargetError(f"{name} returned None: end the function with `return dataset`, or `return loader`.")
    if _is_a(thing, "DataLoader"):
        return Target(name, thing, is_loader=True)
    if _is_a(thing, "IterableDataset"):
        return Target(name, thing)
    if hasattr(thing, "__getitem__") and hasattr(thing, "__len__") and not isinstance(thing, str | bytes | dict):
        return _judge_map(name, thing)
    if isinstance(thing, Iterator):
        raise TargetError(
            f"{name} returned a {type(thing).__name__}, which can be iterated only once; a bench needs many passes. "
            "Return an object whose __iter__ begins anew, such as the loader that made it."
        )
    if hasattr(thing, "__iter__") and not isinstance(thing, str | bytes | dict):
        return Target(name, thing, is_loader=True)
    raise TargetError(
        f"{name} returned {type(thing).__name__} ({thing!r:.60}), which is neither a dataset (__getitem__ and __len__, "
        "or torch's IterableDataset) nor a loader (__iter__)."
    )


def _judge_map(name: str, thing: Any) -> Target:
    if len(thing) == 0:
        raise TargetError(f"{name} returned a dataset of length 0: there is nothing to load.")
    return Target(name, thing, is_map=True)


def _is_a(thing: Any, torch_class: str) -> bool:
    """isinstance of a class in torch.utils.data, without importing torch for something that cannot be one."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(thing, getattr(data, torch_class))


def resolve_training(text: str) -> tuple[Any, Callable[[Any], object] | None]:
    """The loader that `module:function` returns, and the step function if it returns one beside it."""
    if ":" not in text:
        raise TargetError(f"{text!r} is no module:function: write a function that returns (loader, step), or a loader.")
    thing = call(text)
    loader, step = thing if isinstance(thing, tuple) and len(thing) == 2 else (thing, None)
    if step is not None and not callable(step):
        raise TargetError(
            f"{text} returned a {type(step).__name__} beside the loader, which cannot be called as a step."
        )
    target = judge(text, loader)
    if not target.is_loader:
        raise TargetError(
            f"{text} returned a {type(loader).__name__}, which is a dataset: return the loader that your training "
            "iterates, for example `return torch.utils.data.DataLoader(dataset, batch_size=32), step`."
        )
    return loader, step


def _built_in(text: str, options: DatasetOptions) -> Target:
    try:
        dataset = make_dataset(text, options)
    except (ValueError, OSError) as error:
        raise TargetError(f"{text}: {error}") from None
    return Target(text, dataset, is_map=True)


def _folder(text: str) -> Target:
    from stoker.bench.datasets.pictures import PictureFolder

    try:
        return Target(text, PictureFolder(Path(text)), is_map=True)
    except FileNotFoundError as error:
        raise TargetError(str(error)) from None


def call(text: str) -> Any:
    """What `module:function` gives when it is called; TargetError if it cannot be found, or raises."""
    function = _import(text)
    try:
        return function()
    except Exception as error:
        raise TargetError(f"{text} raised {trouble_of(error)}") from error


def _import(text: str) -> Callable[[], Any]:
    module_name, _, function_name = text.partition(":")
    module = _import_module(module_name, text)
    if not hasattr(module, function_name):
        close = difflib.get_close_matches(function_name, dir(module), n=3)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise TargetError(f"module {module_name!r} ({module.__file__}) has no {function_name!r}.{hint}")
    function: Any = getattr(module, function_name)
    if not callable(function):
        raise TargetError(
            f"{text} is a {type(function).__name__}, not a function: write a function that returns it, "
            f"for example `def make(): return {function_name}`."
        )
    return function  # type: ignore[no-any-return]


def _import_module(name: str, text: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise TargetError(
                f"{text}: importing {name!r} failed, because it imports {error.name!r}: {error}"
            ) from error
        raise TargetError(
            f"{text}: there is no module {error.name!r}; looked in {here} and in the installed packages. Run the "
            "command in the folder that holds it, or put that folder on PYTHONPATH."
        ) from None
    except Exception as error:
        raise TargetError(f"{text}: importing {name!r} raised {trouble_of(error)}") from error
