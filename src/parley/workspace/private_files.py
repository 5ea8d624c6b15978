"""Opening the files that the engine writes on its own account: transcripts, leases, databases, debug files.

    descriptor = open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, below=2)

`below` says how many of the folders above the file are the engine's own: 2 for `projects/<project>/<session>.jsonl` in
the config folder. The folder above those was named by the user, and may be a link. From there on no link is followed,
and everything must belong to this user. The file must be a regular one and, to be written, have no second name.
What is missing is made, for this user alone. What is checked is what was opened.

See also: files of the working tree, in `safe_open.py` and `atomic.py`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

LOOK = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
LIST = os.O_DIRECTORY | os.O_CLOEXEC | os.O_RDONLY
# O_NONBLOCK: to open a pipe must not hang us.
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
WRITES = os.O_WRONLY | os.O_RDWR
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
KINDS = (
    (stat.S_ISLNK, "is a symbolic link"),
    (stat.S_ISDIR, "is a folder"),
    (stat.S_ISFIFO, "is a named pipe"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


class Unsafe(OSError):
    """A file or folder that the engine does not use, and why; `strerror` names it."""


def refuse(path: str | Path, reason: str) -> Unsafe:
    return Unsafe(errno.EPERM, f"refused, {path} {reason}", str(path))


def open_file(path: str | Path, flags: int, *, below: int = 0, make_folders: bool = True) -> int:
    """A descriptor of a regular file of this user; with O_CREAT its folders are made, too. Raises OSError, Unsafe."""
    make = make_folders and bool(flags & os.O_CREAT)
    with opened_folder(Path(path).parent, below=below, make=make) as (folder, owner):
        return open_in(folder, owner, str(path), flags)


def open_in(folder: int, owner: int, path: str, flags: int) -> int:
    """The same, in a folder that is open. `owner` is who may own the file beside this user."""
    name = os.path.basename(path)
    writes = bool(flags & WRITES)
    # Looking before opening: to open a device can be an act of its own.
    with suppress(FileNotFoundError):
        if not flags & os.O_EXCL:
            check(os.stat(name, dir_fd=folder, follow_symlinks=False), path, owner, writes=writes)
    # A file is cut to nothing only after the check.
    file = os.open(name, (flags & ~os.O_TRUNC) | FILE, PRIVATE_FILE, dir_fd=folder)
    try:
        check(os.fstat(file), path, owner, writes=writes)
        if flags & os.O_TRUNC:
            os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


@contextmanager
def opened_folder(
    path: str | Path, *, below: int = 0, make: bool = False, to_list: bool = False, mode: int = PRIVATE_FOLDER
) -> Iterator[tuple[int, int]]:
    """A folder's descriptor, and who owns the folder that the user named. Raises OSError, Unsafe.

    The last `below` names of the path are not followed if they are links. `mode` is that of new folders.
    """
    parts = Path(path).parts
    at = max(len(parts) - below, 1 if os.path.isabs(path) else 0)
    top = Path(*parts[:at])
    if make:
        with suppress(FileExistsError):  # it is said below that it is no folder
            top.mkdir(parents=True, exist_ok=True, mode=mode)
    kind = LIST if to_list else LOOK
    folder = os.open(top, kind)
    try:
        owner = os.fstat(folder).st_uid
        for number, name in enumerate(parts[at:], at + 1):
            if name == "..":
                raise refuse(path, "leads out of its folder")
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, mode, dir_fd=folder)
            inner = step(folder, name, Path(*parts[:number]), kind, owner)
            os.close(folder)
            folder = inner
        yield folder, owner
    finally:
        os.close(folder)


def step(folder: int, name: str, path: Path, kind: int, owner: int) -> int:
    """A folder in an opened one. Raises OSError, Unsafe."""
    try:
        inner = os.open(name, kind | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as exc:
        # With O_PATH a link is no folder, without it a loop.
        if exc.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        if not stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise
        raise refuse(path, "is a symbolic link, not a folder") from None
    try:
        must_be_own(os.fstat(inner), path, owner)
    except BaseException:
        os.close(inner)
        raise
    return inner


def check(status: os.stat_result, path: str | Path, owner: int, *, writes: bool) -> None:
    """Raises Unsafe unless it is a regular file that is ours to use."""
    if not stat.S_ISREG(status.st_mode):
        raise refuse(path, kind_of(status) or "is no regular file")
    must_be_own(status, path, owner, writes=writes)
    if writes and status.st_nlink > 1:
        raise refuse(path, f"has {status.st_nlink} names (hard links), and a write would change all of them")


def kind_of(status: os.stat_result) -> str:
    """What it is, in words; empty for a regular file."""
    return next((words for test, words in KINDS if test(status.st_mode)), "")


def must_be_own(status: os.stat_result, path: str | Path, owner: int, *, writes: bool = False) -> None:
    """Raises Unsafe for what belongs to another user.

    Root may use what belongs to the owner of the folder that the user named; others may read that, and what root owns.
    """
    me = os.getuid()
    others = (owner,) if me == 0 else () if writes else (0, owner)
    if status.st_uid != me and status.st_uid not in others:
        raise refuse(path, f"belongs to another user (uid {status.st_uid})")


def look(path: str | Path, *, below: int = 0, writes: bool = False) -> os.stat_result:
    """What `open_file` would open, without opening it. Raises OSError, Unsafe."""
    with opened_folder(Path(path).parent, below=below) as (folder, owner):
        status = os.stat(os.path.basename(path), dir_fd=folder, follow_symlinks=False)
        check(status, path, owner, writes=writes)
        return status


def read(path: str | Path, *, below: int = 0) -> bytes:
    """Raises OSError, Unsafe."""
    with open(open_file(path, os.O_RDONLY, below=below), "rb") as file:
        return file.read()


def write(path: str | Path, data: bytes, *, below: int = 0) -> None:
    """A file that is not there yet. Raises OSError, Unsafe."""
    with open(open_file(path, NEW, below=below), "wb") as file:
        file.write(data)


def replace(path: str | Path, data: bytes, *, below: int = 0) -> None:
    """At every moment the file is the old one or the new one. Raises OSError, Unsafe."""
    name = os.path.basename(path)
    beside = f"{name}.{os.getpid()}.{os.urandom(4).hex()}.new"
    with opened_folder(Path(path).parent, below=below, make=True) as (folder, owner):
        with suppress(FileNotFoundError):
            check(os.stat(name, dir_fd=folder, follow_symlinks=False), path, owner, writes=True)
        try:
            with open(open_in(folder, owner, beside, NEW), "wb") as file:
                file.write(data)
            os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside, dir_fd=folder)
            raise


def remove(path: str | Path, *, below: int = 0) -> None:
    """Remove a file or a link. Raises OSError, Unsafe."""
    with opened_folder(Path(path).parent, below=below) as (folder, _):
        os.unlink(os.path.basename(path), dir_fd=folder)


def remove_tree(path: str | Path, *, below: int = 0) -> None:
    """Remove a folder with all that is in it. Raises OSError, Unsafe."""
    import shutil

    with opened_folder(Path(path).parent, below=below) as (folder, _), suppress(FileNotFoundError):
        shutil.rmtree(os.path.basename(path), dir_fd=folder)


COMPANIONS = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside a database. It follows no link to them itself, but opens whatever else is there."""


def prepare_database(path: str | Path, *, below: int = 0, writes: bool = True) -> str:
    """The real path of a database that SQLite may open; one that is not there is made. Raises OSError, Unsafe.

    One that is there is not opened: to close it would take away the locks of this process's other connections, and
    who comes next would take the database for closed and throw away the log that they write to.
    """
    name, folders = os.path.basename(path), Path(path).parent
    with opened_folder(folders, below=below, make=True) as (folder, owner):
        with suppress(FileExistsError):
            if writes:
                os.close(os.open(name, NEW | FILE, PRIVATE_FILE, dir_fd=folder))
        check(os.stat(name, dir_fd=folder, follow_symlinks=False), path, owner, writes=writes)
        for ending in COMPANIONS:
            with suppress(FileNotFoundError):
                status = os.stat(f"{name}{ending}", dir_fd=folder, follow_symlinks=False)
                check(status, f"{path}{ending}", owner, writes=writes)
    inner = folders.parts[len(folders.parts) - below :] if below else ()
    top = Path(*folders.parts[: len(folders.parts) - len(inner)])
    return os.path.join(os.path.realpath(top), *inner, name)


def must_be_database(connection: sqlite3.Connection, real: str) -> None:
    """Raises Unsafe, sqlite3.Error unless a new connection is to the file with this real path, by no link."""
    opened = connection.execute("PRAGMA database_list").fetchone()[2]
    if opened != real:
        raise refuse(real, f"leads to {opened} by a link")
