"""House rules that a script can see: private names stay at home, functions small, and arguments what they were.

A name is private if it begins with one underscore. It may be read through `self`, and anywhere in the module that
defines it. `FOREIGN` are private names of torch and of the standard library that there is no public way around: which
file reads them, and why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import stoker

SOURCE = Path(__file__).parents[1] / "src" / "stoker"
FILES = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py"))
MOST_LINES, MOST_BRANCHES = 40, 10

_DYNAMO = "torch: how code is hidden from dynamo"
FOREIGN = {
    "batches/packing.py": {
        "_cdata": "torch: whether two storages are the same",
        "_untyped_storage": "torch: the memory of a typed storage, without its warning",
    },
    "bench/calls.py": {"_num_samples": "torch: what a RandomSampler was asked for"},
    "bench/rebuild.py": {
        "_get_iterator": "torch: how to tell a loader that makes its passes in its own way",
        "_iterator": "torch: where a loader keeps the workers that persist",
        "_shutdown_workers": "torch: how they are let go",
    },
    "diagnosis/ground.py": {
        "_auto_collation": "torch: whether a loader makes batches",
        "_index_sampler": "torch: which of its two samplers a loader goes by",
    },
    "diagnosis/inside.py": {
        "_auto_collation": "torch: whether a loader makes batches",
        "_index_sampler": "torch: which of its two samplers a loader goes by",
    },
    "diagnosis/rig.py": {"_auto_collation": "torch: whether a loader makes batches"},
    "interrupts.py": {
        "_current_frames": "sys: where the main thread is",
        "_getframe": "sys: the same for this one",
    },
    "loader/dataloader.py": {
        "_auto_collation": "torch: whether a loader makes batches",
        "_shutdown_workers": "torch: what code written for its iterators calls",
    },
    "loader/dynamo.py": {
        "_C": _DYNAMO,
        "_FrameAction": _DYNAMO,
        "_FrameExecStrategy": _DYNAMO,
        "_dynamo": _DYNAMO,
        "_torchdynamo_disable": _DYNAMO,
        "_torchdynamo_disable_msg": _DYNAMO,
        "_torchdynamo_disable_recursive": _DYNAMO,
    },
    "passes/batch_pass.py": dict.fromkeys(("_C", "_autograd", "_profiler_enabled"), "torch: whether its profiler runs"),
    "prefetching/filling.py": {
        "_config": "multiprocessing: a filler may have children, and still goes with its parent",
        "_worker_info": "torch: what get_worker_info() gives",
    },
    "workers/ends.py": {
        "_popen": "multiprocessing: a process that somebody else reaped would stay among the living children"
    },
    "workers/identity.py": {"_worker_info": "torch: what get_worker_info() gives"},
    "workers/main.py": {"_exit": "os: the only way to leave a process without running what the parent registered"},
    "workers/seats.py": {
        "_name": "multiprocessing: a process's name is set before it starts, without what its setter checks"
    },
}


def test_no_module_reads_a_private_name_of_another() -> None:
    found = [
        f"{file}:{line} reads {text}: make it public where it is, or ask its owner for what you need"
        for file in FILES
        for line, name, text in _private_names(_parsed(file))
        if name not in FOREIGN.get(file, ())
    ]
    assert not found, "\n".join(found)


def test_every_foreign_name_is_still_read() -> None:
    read = {file: {name for _, name, _ in _private_names(_parsed(file))} for file in FOREIGN}
    assert read == {file: set(names) for file, names in FOREIGN.items()}


def test_functions_are_small() -> None:
    found = [
        f"{file}: {function.name} has {_length(function)} lines and {_branches(function)} branches: split it"
        for file in FILES
        for function in _functions(_parsed(file))
        if _length(function) > MOST_LINES or _branches(function) > MOST_BRANCHES
    ]
    assert not found, "\n".join(found)


def test_constructors_do_not_reassign_their_arguments() -> None:
    found = [
        f"{file}:{node.lineno} gives {node.id} another meaning"
        for file in FILES
        for function in _functions(_parsed(file))
        if function.name in ("__init__", "__post_init__")
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _arguments(function)
    ]
    assert not found, "\n".join(found)


def test_the_script_sees_what_it_should() -> None:
    seen = ast.parse(
        "class A:\n def f(self, b):\n  return self._x, b._y, super()._z, A._f, b.__len__\n def _f(self): ..."
    )
    assert [name for _, name, _ in _private_names(seen)] == ["_y"]
    assert [name for _, name, _ in _private_names(ast.parse("from stoker.slots.pool import _POOLS"))] == ["_POOLS"]
    (long,) = _functions(
        ast.parse("def f(x):\n  '''Says\n  much.'''\n  if x:\n    return 1\n  return 2 if x and x or x else 3")
    )
    assert (_length(long), _branches(long)) == (3, 4)


@cache
def _parsed(file: str) -> ast.Module:
    return ast.parse((SOURCE / file).read_text())


def _private_names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """(line, name, text) of every private name that is read and not defined here."""
    own = set(_defined(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            if not _is_own(node.value):
                yield node.lineno, node.attr, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stoker"):
            yield from ((node.lineno, one.name, ast.unparse(node)) for one in node.names if _is_private(one.name))


def test_every_error_of_the_loader_is_exported() -> None:
    errors = ast.parse((SOURCE / "errors.py").read_text())
    named = {node.name for node in errors.body if isinstance(node, ast.ClassDef)} - {"RemoteError", "_PlainRepr"}
    assert named <= set(stoker.__all__)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _is_own(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
            yield node.attr


def _functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def _branches(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Where the way through it parts: at each `if`, loop, handler and case, and at each `and` and `or`."""
    kinds = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)
    nodes = list(ast.walk(function))
    return sum(isinstance(node, kinds) for node in nodes) + sum(
        len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp)
    )


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    given = function.args
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
