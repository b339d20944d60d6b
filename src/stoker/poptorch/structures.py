"""Tensors inside whatever a batch or a model's result is made of: taken out in a fixed order, and put back.

Containers are walked (see `stoker.nested`); other classes are as soon as somebody registers an `ICustomArgParser` for
them. Everything else counts as a constant and stays where it is.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from stoker.nested import open_container
from stoker.poptorch.errors import Error

_PARSERS: dict[type, ICustomArgParser] = {}


class ICustomArgParser(abc.ABC):
    """Teaches the loader and the models where the tensors of a class of your own are."""

    @abc.abstractmethod
    def yieldTensors(self, struct: Any) -> Iterable[torch.Tensor]:
        """Every tensor of the object, always in the same order."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """A new object like the original, with the next tensors of the iterator in that order."""


def registerCustomArgParser(arg_data_type: type, arg_parser: ICustomArgParser | None) -> None:
    """Use this parser for a class and its subclasses; None forgets the one there is."""
    if arg_parser is None:
        _PARSERS.pop(arg_data_type, None)
        return
    if not isinstance(arg_parser, ICustomArgParser):
        raise Error(f"a parser must inherit from poptorch.ICustomArgParser, but got {type(arg_parser).__name__}")
    _PARSERS[arg_data_type] = arg_parser


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in a structure, in order."""
    return list(_walk(value))


def with_tensors(structure: Any, tensors: Iterable[Any]) -> Any:
    """The same structure around other tensors."""
    return _rebuild(structure, iter(tensors))


def concatenated(batches: list[Any]) -> Any:
    """Several batches of the same structure as one: their tensors along the first dimension."""
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(tensors_of(batch) for batch in batches), strict=True)
    return with_tensors(batches[0], [torch.cat(column) for column in columns])


def _walk(value: Any) -> Iterator[torch.Tensor]:
    parser = _parser_of(value)
    if parser is not None:
        yield from parser.yieldTensors(value)
    elif isinstance(value, torch.Tensor):
        yield value
    elif (container := open_container(value)) is not None:
        for part in container.parts:
            yield from _walk(part)


def _rebuild(value: Any, tensors: Iterator[Any]) -> Any:
    parser = _parser_of(value)
    if parser is not None:
        return parser.reconstruct(value, tensors)
    if isinstance(value, torch.Tensor):
        return next(tensors)
    container = open_container(value)
    return value if container is None else container.like([_rebuild(part, tensors) for part in container.parts])


def _parser_of(value: Any) -> ICustomArgParser | None:
    if not _PARSERS:
        return None
    return next((_PARSERS[kind] for kind in type(value).__mro__ if kind in _PARSERS), None)
