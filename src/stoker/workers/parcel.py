"""A dataset (and the job around it) serialised once for all workers, not once per worker.

With spawn and forkserver a process's arguments are pickled while it is being started, once for each process; for a
dataset of millions of paths that is minutes. A parcel pickles its content the first time, into anonymous memory, and
gives every further worker the same bytes. Content that hands descriptors to the child (shared tensors, SharedList,
semaphores) does so by number while it is pickled; the parcel writes those numbers down and hands out the same ones
again to every worker, and pickles anew if a start method should number them differently. With fork nothing is pickled
at all.
"""

from __future__ import annotations

import io
import os
from multiprocessing import context, reduction
from typing import Any, cast

from stoker.slots.arena import open_anonymous


class Parcel:
    """Carries `content` into worker processes."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self._fd: int | None = None
        self._size = 0
        self._handed: list[tuple[int, Any]] = []  # (descriptor, the number the child knows it by)

    def __reduce__(self) -> tuple[Any, ...]:
        popen = context.get_spawning_popen()
        if popen is None:
            return Parcel, (self.content,)
        if self._fd is None or not self._hand_out_again(popen):
            self._pickle(popen)
        return _open_parcel, (reduction.DupFd(cast(int, self._fd)), self._size)

    def close(self) -> None:
        """Free the serialised copy; the workers that started have read theirs."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _pickle(self, popen: Any) -> None:
        recorder = _Recorder(popen)
        context.set_spawning_popen(cast(Any, recorder))
        try:
            stream = io.BytesIO()
            reduction.ForkingPickler(stream, 5).dump(self.content)
        finally:
            context.set_spawning_popen(popen)
        self.close()
        self._handed, self._size = recorder.handed, stream.tell()
        self._fd = open_anonymous()
        _write_all(self._fd, stream.getbuffer())

    def _hand_out_again(self, popen: Any) -> bool:
        return [(fd, popen.duplicate_for_child(fd)) for fd, _ in self._handed] == self._handed


class _Recorder:
    """Stands in for the process being started, and writes down which descriptors it is given."""

    def __init__(self, popen: Any) -> None:
        self._popen = popen
        self.handed: list[tuple[int, Any]] = []

    def duplicate_for_child(self, fd: int) -> Any:
        number = self._popen.duplicate_for_child(fd)
        self.handed.append((fd, number))
        return number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._popen, name)


def _open_parcel(handle: Any, size: int) -> Parcel:
    with os.fdopen(handle.detach(), "rb") as file:
        file.seek(0)
        data = _read_all(file.fileno(), size)
    return Parcel(reduction.ForkingPickler.loads(data))


def _write_all(fd: int, data: memoryview) -> None:
    at = 0
    while at < len(data):
        at += os.pwrite(fd, data[at:], at)


def _read_all(fd: int, size: int) -> bytearray:
    data, at = bytearray(size), 0
    while at < size:
        at += os.preadv(fd, [memoryview(data)[at:]], at)
    return data
