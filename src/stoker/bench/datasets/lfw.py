"""The real "Labeled Faces in the Wild", where somebody has it: a folder, or the archive as it is downloaded.

An archive is unpacked into the cache once. Only files that look like NAME/NAME_0001.jpg are taken, each read and
written by us under a name made of its last two parts, so an archive cannot write anywhere else.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

Progress = Callable[[int, int], None]


def faces_folder(path: Path, cache: Path, progress: Progress) -> Path:
    """The folder whose folders are people: given, inside the given one, or unpacked from an archive."""
    if path.is_dir():
        return _people_in(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; path= takes a folder in LFW's layout, or lfw.tgz")
    if not tarfile.is_tarfile(path):
        raise ValueError(f"{path} is neither a folder nor a tar archive; path= takes lfw.tgz or what it unpacks to")
    target = cache / f"lfw-{path.name}-{path.stat().st_size}"
    if not target.exists():
        _unpack(path, target, progress)
    return target


def _people_in(path: Path) -> Path:
    """The folder itself, or the one folder in it (lfw/, lfw_funneled/) that holds the people."""
    for folder in (path, *sorted(child for child in path.iterdir() if child.is_dir())):
        if next(folder.glob("*/*.jpg"), None) is not None:
            return folder
    raise FileNotFoundError(f"no NAME/NAME_0001.jpg under {path}")


def _unpack(archive: Path, target: Path, progress: Progress) -> None:
    partial = target.with_name(target.name + ".partial")
    if partial.exists():
        shutil.rmtree(partial)
    with tarfile.open(archive) as tar:
        members = [member for member in tar.getmembers() if member.isfile() and _place(member.name) is not None]
        for done, member in enumerate(members, start=1):
            _write(tar, member, partial)
            progress(done, len(members))
    if not members:
        raise ValueError(f"{archive} holds no NAME/NAME_0001.jpg")
    partial.replace(target)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    place, content = _place(member.name), tar.extractfile(member)
    assert place is not None
    assert content is not None
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    with content:
        path.write_bytes(content.read())


def _place(name: str) -> Path | None:
    """The last two parts of a picture's name; None if it is none."""
    parts = PurePosixPath(name).parts
    if len(parts) < 2 or not parts[-1].lower().endswith(".jpg") or ".." in parts[-2:] or parts[-2] == "/":
        return None
    return Path(*parts[-2:])
