"""SharedList: what went in comes out, in every process, from the same memory, and nothing is left behind.

Children are real: fork, forkserver and spawn. They report through a pipe what they read and which inode they read it
from. Memory is measured as the kernel counts it (USS: pages that no other process shares).
"""

from __future__ import annotations

import copy
import gc
import math
import multiprocessing
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tracemalloc
from itertools import chain
from multiprocessing import context
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker import SharedList
from stoker.sources import shared_list as module

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**200), 2**200), st.floats(), any_text, st.binary()
)
keys = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), any_text, st.binary())
records = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(keys, st.tuples(keys, keys)), inner, max_size=4),
    ),
    max_leaves=12,
)
int64s = st.integers(-(2**63), 2**63 - 1)
any_items = st.one_of(
    st.lists(any_text),
    st.lists(st.binary()),
    st.lists(int64s),
    st.lists(st.integers()),
    st.lists(st.floats()),
    st.lists(records, max_size=8),
)


def fingerprint(item: Any) -> Any:
    """Type and value, so that True is not 1, -0.0 is not 0.0, a dict has an order, and NaN equals itself."""
    if isinstance(item, float):
        return "float", struct.pack("=d", item)
    if isinstance(item, (list, tuple)):
        return type(item), [fingerprint(part) for part in item]
    if isinstance(item, dict):
        return dict, [(fingerprint(key), fingerprint(value)) for key, value in item.items()]
    return type(item), item


def same(left: Any, right: Any) -> bool:
    return bool(fingerprint(list(left)) == fingerprint(list(right)))


# --- a sequence ----------------------------------------------------------------------------------------------------


@given(any_items)
def test_what_goes_in_comes_out(items: list[Any]) -> None:
    shared = SharedList(iter(items))
    assert len(shared) == len(items)
    assert same(shared, items)
    assert same([shared[place] for place in range(len(items))], items)


@given(any_items, st.data())
def test_slices_are_views_that_equal_a_lists_slices(items: list[Any], data: st.DataObject) -> None:
    cut = data.draw(st.slices(len(items)))
    again = data.draw(st.slices(len(items[cut])))
    view = SharedList(items)[cut]
    assert isinstance(view, SharedList)
    assert same(view, items[cut])
    assert same(view[again], items[cut][again])
    assert same(reversed(view), items[cut][::-1])


@given(any_items)
def test_pickle_and_deepcopy_keep_every_item(items: list[Any]) -> None:
    shared = SharedList(items)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert same(pickle.loads(pickle.dumps(shared, protocol)), items)
        assert same(pickle.loads(pickle.dumps(shared[1::2], protocol)), items[1::2])
    assert same(copy.deepcopy(shared), items)
    assert same(copy.copy(shared), items)


@pytest.mark.parametrize(
    ("items", "kind"),
    [
        (["a", "b"], "str"),
        ([b"a", b"b"], "bytes"),
        ([1, -(2**63)], "int"),
        ([1, 2**63], "mixed"),
        ([1.0, math.nan], "float"),
        ([1, 1.0], "mixed"),
        ([True, 1], "mixed"),
        ([("a", 1)], "mixed"),
        ([], "mixed"),
    ],
)
def test_the_kind_is_that_of_the_items(items: list[Any], kind: str) -> None:
    assert SharedList(items).kind == kind


@pytest.mark.parametrize("odd", [None, b"x", 2**70, ("a", 1)])
@pytest.mark.parametrize("kind", [str, float, int])
def test_a_list_that_turns_mixed_after_many_chunks_loses_nothing(kind: type, odd: Any) -> None:
    items = [kind(number) for number in range(3 * module._CHUNK_ITEMS)]
    items += [odd, *items]
    shared = SharedList(item for item in items)
    assert shared.kind == "mixed"
    assert same(shared, items)


def test_indices_behave_as_a_lists_do() -> None:
    shared = SharedList(["a", "b", "c"])
    int64: Any = np.int64(1)
    assert [shared[-1], shared[-3], shared[int64], shared[True]] == ["c", "a", "b", "b"]
    for index in (3, -4):
        with pytest.raises(IndexError, match=rf"SharedList index out of range: index {index}, but it has 3 items"):
            shared[index]
    with pytest.raises(TypeError, match="SharedList indices must be integers or slices, not str"):
        shared["a"]  # type: ignore[call-overload]


def test_search_and_membership_work() -> None:
    shared = SharedList(["a", "b", "a", ""])
    assert "b" in shared
    assert "z" not in shared
    assert (shared.index("a", 1), shared.count("a"), shared.index("")) == (2, 2, 3)
    with pytest.raises(ValueError, match=r"^$"):
        shared.index("z")


def test_equality_is_a_lists() -> None:
    items = ["a", "b"]
    shared = SharedList(items)
    assert shared == items
    assert items == shared
    assert shared == SharedList(items)
    assert shared != ["a"]
    assert shared != SharedList(["a", "c"])
    assert shared != ("a", "b")
    not_a_number = SharedList([math.nan])
    assert not_a_number == not_a_number[:]
    with pytest.raises(TypeError, match="unhashable"):
        hash(shared)


def test_repr_says_count_kind_and_bytes() -> None:
    shared = SharedList(["abc", "d"])
    assert repr(shared) == f"SharedList(2 items, kind='str', {shared.size_bytes} bytes shared)"
    assert repr(shared[:1]) == f"SharedList(1 of 2 items, kind='str', {shared.size_bytes} bytes shared)"
    assert shared.size_bytes == 8 + 3 * 8  # four characters, padded, and three offsets


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        (pathlib.PurePosixPath("a"), "pathlib.PurePosixPath"),
        (np.int64(1), "numpy.int64"),
        ({1}, "set"),
        (Text("a"), f"{__name__}.Text"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_other_types_are_refused_by_position_and_name(bad: Any, name: str, nested: bool) -> None:
    position = module._CHUNK_ITEMS + 3
    items = ["a"] * position + [{"key": [bad]} if nested else bad]
    with pytest.raises(TypeError, match=rf"item {position} of a SharedList holds a {name}, .*Convert it first"):
        SharedList(items)


def test_a_record_that_contains_itself_is_refused() -> None:
    record: list[Any] = []
    record.append(record)
    with pytest.raises(ValueError, match="item 1 of a SharedList is nested deeper than 64 levels, or contains itself"):
        SharedList(["a", record])


def test_long_parts_of_records_keep_their_size() -> None:
    items = [["x" * 254], ["x" * 255], [b"y" * 70_000], list(range(300)), [2**5000]]
    assert same(SharedList(items), items)


# --- the memory ----------------------------------------------------------------------------------------------------


def descriptors() -> set[int]:
    """Open descriptors, without the one that looks at them."""
    gc.collect()
    return {int(fd) for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")}


def inode(shared: SharedList[Any]) -> int:
    return os.fstat(shared.fileno()).st_ino


@linux
def test_one_descriptor_a_list_and_none_after_it() -> None:
    before = descriptors()
    shared = SharedList(["a"] * 10_000)
    views = [shared[start:] for start in range(100)]
    assert descriptors() - before == {shared.fileno()}
    last = views[-1]
    del shared, views
    assert last[0] == "a"
    del last
    assert descriptors() == before


@linux
def test_the_mapping_goes_with_the_last_view() -> None:
    shared = SharedList([1, 2, 3])
    view = shared[1:]
    number = inode(shared)
    del shared
    assert list(view) == [2, 3]
    assert mapped(number)
    del view
    gc.collect()
    assert not mapped(number)


def mapped(inode_number: int) -> bool:
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return any("stoker-list" in line and line.split()[4] == str(inode_number) for line in lines)


@pytest.mark.parametrize("odd", [[], [None]])
def test_packing_streams(odd: list[None]) -> None:
    """100 000 strings would take 10 MB as a list; packing them takes a chunk and eight bytes an item."""
    items = chain((f"/data/imagenet/train/n{number % 1000:08}/{number:012}.jpeg" for number in range(100_000)), odd)
    tracemalloc.start()
    try:
        shared = SharedList(items)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(shared) == 100_000 + len(odd)
    assert peak_bytes < 4_000_000


@linux
def test_a_failed_packing_leaves_no_descriptor() -> None:
    before = descriptors()
    with pytest.raises(TypeError, match="item 5000"):
        SharedList(["a"] * 5000 + [{1}])
    assert descriptors() == before


@linux
def test_the_memory_cannot_be_written() -> None:
    shared = SharedList(["a", "b"])
    with pytest.raises(TypeError):
        shared._memory.mapping[0] = 1
    with pytest.raises(PermissionError):
        os.pwrite(shared.fileno(), b"z", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(shared.fileno(), 0)
    assert list(shared) == ["a", "b"]


def test_without_memfd_an_unlinked_file_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    shared = SharedList(["a", "b", None])
    assert list(pickle.loads(pickle.dumps(shared))) == ["a", "b", None]
    assert os.fstat(shared.fileno()).st_nlink == 0


def test_a_taken_descriptor_number_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may open a file between foreseeing the number and mapping; here it does, twice."""
    opened: list[int] = []
    close = os.close

    def close_and_let_another_thread_open(fd: int) -> None:
        close(fd)
        if len(opened) < 2:
            opened.append(os.open(os.devnull, os.O_RDONLY))

    monkeypatch.setattr(os, "close", close_and_let_another_thread_open)
    shared = SharedList(["a"])
    monkeypatch.undo()
    for fd in opened:
        os.close(fd)
    assert len(opened) == 2
    assert shared.fileno() not in opened
    assert module._refers_to(shared.fileno(), shared._memory.identity)


def test_pickle_buffers_travel_out_of_band() -> None:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(SharedList(["a" * 100_000]), 5, buffer_callback=buffers.append)
    assert len(data) < 1000
    assert pickle.loads(data, buffers=buffers)[0] == "a" * 100_000


def test_a_small_views_pickle_does_not_carry_the_whole_list() -> None:
    shared = SharedList(["a" * 100] * 10_000)
    assert len(pickle.dumps(shared[5:10])) < 2000


# --- other processes -----------------------------------------------------------------------------------------------


def report(connection: Connection, shared: SharedList[Any], view: SharedList[Any]) -> None:
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    modes = {line.split()[1] for line in maps if "stoker-list" in line}
    held = sum(module._refers_to(int(fd), shared._memory.identity) for fd in os.listdir("/proc/self/fd"))
    connection.send((list(shared), list(view), inode(shared), inode(view), modes, held))


def ask(method: str, target: Any, *arguments: Any) -> Any:
    methods: Any = multiprocessing.get_context(method)
    ours, theirs = methods.Pipe()
    child = methods.Process(target=target, args=(theirs, *arguments))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        child.join()
        ours.close()
        child.close()


@linux
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_children_of_every_kind_read_the_same_memory(method: str) -> None:
    items = [f"images/{number:06}.jpg" for number in range(2000)] + [None, ("label", 3)]
    shared = SharedList(items)
    for _ in range(3):  # the descriptor stays good for child after child
        got, view, own, of_view, modes, held = ask(method, report, shared, shared[::-7])
        assert (got, view) == (items, items[::-7])
        assert own == of_view == inode(shared)
        assert modes == {"r--s"}
        assert held == 1


class Recorder:
    """Stands where a starting process stands, and notes the descriptors to hand over."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        self.fds.append(fd)
        return fd

    def DupFd(self, fd: int) -> Handle:  # noqa: N802 - multiprocessing's name
        return Handle(fd)


class Handle:
    def __init__(self, fd: int) -> None:
        self.fd = fd

    def detach(self) -> int:
        return self.fd


def message_for_children(*values: Any) -> tuple[bytes, list[int]]:
    recorder: Any = Recorder()
    context.set_spawning_popen(recorder)
    try:
        return bytes(ForkingPickler.dumps(values)), recorder.fds
    finally:
        context.set_spawning_popen(None)


REPLAY = """
import os, pickle, sys
first = pickle.loads(bytes.fromhex(sys.argv[1]))[0]
second = pickle.loads(bytes.fromhex(sys.argv[1]))[0]
assert second._memory is first._memory
print(os.fstat(first.fileno()).st_ino, *first)
"""


@linux
def test_one_message_can_be_replayed_to_several_children_and_twice_in_each() -> None:
    shared = SharedList(["a", "b", "c"])
    message, fds = message_for_children(shared, shared[1:])
    assert fds == [shared.fileno()]  # once, though two views of it travel
    here = str(pathlib.Path(__file__).parent)
    path = os.pathsep.join([here, *sys.path])
    for _ in range(3):
        child = subprocess.run(
            [sys.executable, "-c", REPLAY, message.hex()],
            pass_fds=fds, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert child.stdout.split() == [str(inode(shared)), "a", "b", "c"], child.stderr


@linux
def test_a_message_read_in_its_own_process_gives_the_list_itself() -> None:
    before = descriptors()
    shared = SharedList(["a"])
    message, _ = message_for_children(shared)
    again = pickle.loads(message)[0]
    assert again._memory is shared._memory
    assert module._refers_to(again.fileno(), shared._memory.identity)  # reading the message did not close it
    del shared, again
    assert descriptors() == before


@linux
def test_a_message_whose_list_is_gone_says_so_instead_of_reading_another_file() -> None:
    shared = SharedList(["a"])
    message, fds = message_for_children(shared)
    del shared
    with open(os.devnull) as other:
        os.dup2(other.fileno(), fds[0])
    try:
        with pytest.raises(RuntimeError, match=rf"1 items was handed over as descriptor {fds[0]}, which is not"):
            pickle.loads(message)
        os.fstat(fds[0])  # a stranger's descriptor was not closed
    finally:
        os.close(fds[0])


def touch_all(connection: Connection, items: Any) -> None:
    """Read every item, tell how much private memory that took, and stay alive until told otherwise."""
    gc.freeze()  # as a worker does: a collection would write into every object that the whole suite has made so far
    process = psutil.Process()
    process.memory_full_info()  # once before, so that psutil's own first use is not counted
    before = process.memory_full_info().uss
    for item in items:
        len(item)
    connection.send(process.memory_full_info().uss - before)
    connection.recv()


def private_growth(items: Any, children: int = 4) -> int:
    """Bytes that `children` forked readers of `items` add up to, all alive at the same time."""
    forks = multiprocessing.get_context("fork")
    pipes = [forks.Pipe() for _ in range(children)]
    processes = [forks.Process(target=touch_all, args=(theirs, items)) for _, theirs in pipes]
    for process in processes:
        process.start()
    growth = sum(int(ours.recv()) for ours, _ in pipes)
    for (ours, theirs), process in zip(pipes, processes, strict=True):
        ours.send("go")
        process.join()
        process.close()
        ours.close()
        theirs.close()
    return growth


@linux
def test_forked_readers_share_the_pages_that_a_list_would_copy() -> None:
    items = [f"/data/imagenet/train/n{number % 1000:08}/{number:012}.jpeg" for number in range(200_000)]
    shared = SharedList(items)
    of_list = private_growth(items)
    of_shared = private_growth(shared)
    assert of_list > 4 * 10_000_000  # the list's strings, copied in each child: what this class is for
    assert of_shared < of_list / 10
