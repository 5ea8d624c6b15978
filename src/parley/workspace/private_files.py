"""Open, replace and lock the program's own files: transcripts, leases, settings, debug logs.

    descriptor = open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, below=2)
    replace(path, data, below=2)                        # a reader sees the old content or the new one
    has_lock = lock(descriptor, timeout_seconds=0)      # False if another process holds it

`below` is the number of folders above the file that belong to the engine: 2 for `projects/<project>/<session>.jsonl`
in the configuration folder. The folder above those was named by the user and may be a symlink. Below it no symlink is
followed and everything must belong to this user. The file must be a regular file and, to be written, have no other
hard link. Missing files and folders are created with access for this user only. All checks apply to the opened object.

No other module locks files or replaces them by renaming; `tests/unit/test_private_writes.py` checks that.

See also: files of the working tree, in `safe_open.py`; SQLite files, in `private_database.py`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from parley.workspace import syscalls

TRAVERSE = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
LIST = os.O_DIRECTORY | os.O_CLOEXEC | os.O_RDONLY
# O_NONBLOCK: opening a pipe must not block.
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
WRITES = os.O_WRONLY | os.O_RDWR
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
PAUSE_SECONDS = 0.01
"""How long to wait between two attempts to lock a file."""
KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnsafeFile(OSError):
    """A file or folder that is not safe to use. `strerror` names it and the reason."""


def refuse(path: str | Path, reason: str) -> UnsafeFile:
    return UnsafeFile(errno.EPERM, f"{path} {reason}; refused", str(path))


def open_file(path: str | Path, flags: int, *, below: int = 0, make_folders: bool = True) -> int:
    """Open a regular file of this user. With O_CREAT its folders are created, too. Raises OSError, UnsafeFile."""
    make = make_folders and bool(flags & os.O_CREAT)
    path = path if isinstance(path, Path) else Path(path)
    with open_folder(path.parent, below=below, make=make) as (folder, owner):
        return open_in(folder, owner, str(path), flags)


def open_in(folder: int, owner: int, path: str, flags: int) -> int:
    """Like `open_file`, in an opened folder. `owner` is the other user that may own the file."""
    name = os.path.basename(path)
    writes = bool(flags & WRITES)
    # Check before opening, because opening a device can have side effects.
    with suppress(FileNotFoundError):
        if not flags & os.O_EXCL:
            check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), path, owner, writes=writes)
    # Truncate only after the check.
    file = os.open(name, (flags & ~os.O_TRUNC) | FILE, PRIVATE_FILE, dir_fd=folder)
    try:
        check_regular(os.fstat(file), path, owner, writes=writes)
        if flags & os.O_TRUNC:
            os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


@contextmanager
def open_folder(
    path: str | Path, *, below: int = 0, make: bool = False, to_list: bool = False, mode: int = PRIVATE_FOLDER
) -> Iterator[tuple[int, int]]:
    """Yield a folder's descriptor, and the owner of the folder that the user named. Raises OSError, UnsafeFile.

    The last `below` components of the path must not be symlinks. `mode` is the mode of new folders.
    """
    parts = (path if isinstance(path, Path) else Path(path)).parts
    at = max(len(parts) - below, 1 if os.path.isabs(path) else 0)
    top = os.path.join(*parts[:at]) if at else "."
    kind = LIST if to_list else TRAVERSE
    try:
        folder = os.open(top, kind)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):  # not a folder: reported below
            Path(top).mkdir(parents=True, exist_ok=True, mode=mode)
        folder = os.open(top, kind)
    try:
        owner = os.fstat(folder).st_uid
        for number, name in enumerate(parts[at:], at + 1):
            if name == "..":
                raise refuse(path, "is outside its folder")
            try:
                inner = step(folder, name, parts[:number], kind, owner)
            except FileNotFoundError:
                if not make:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(name, mode, dir_fd=folder)
                inner = step(folder, name, parts[:number], kind, owner)
            os.close(folder)
            folder = inner
        yield folder, owner
    finally:
        os.close(folder)


def step(folder: int, name: str, parts: tuple[str, ...], kind: int, owner: int) -> int:
    """Open a folder in an opened folder. `parts` is its path, for errors. Raises OSError, UnsafeFile."""
    try:
        inner = os.open(name, kind | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as exc:
        # For a symlink the error is ENOTDIR with O_PATH and ELOOP without it.
        if exc.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        if not stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise
        raise refuse(Path(*parts), "is a symbolic link, not a folder") from None
    try:
        check_owner(os.fstat(inner), parts, owner)
    except BaseException:
        os.close(inner)
        raise
    return inner


def check_regular(status: os.stat_result, path: str | Path, owner: int, *, writes: bool) -> None:
    """Raises UnsafeFile unless it is a regular file that is safe to use."""
    if not stat.S_ISREG(status.st_mode):
        raise refuse(path, f"is {KINDS.get(stat.S_IFMT(status.st_mode), 'not a regular file')}")
    check_owner(status, path, owner, writes=writes)
    if writes and status.st_nlink > 1:
        raise refuse(path, f"has {status.st_nlink} hard links, and a write would change all of them")


def check_owner(
    status: os.stat_result, path: str | Path | tuple[str, ...], owner: int, *, writes: bool = False
) -> None:
    """Raises UnsafeFile if it belongs to another user.

    Root may also use what belongs to the owner of the folder that the user named. Others may also read that, and what
    belongs to root.
    """
    me = os.getuid()
    others = (owner,) if me == 0 else () if writes else (0, owner)
    if status.st_uid != me and status.st_uid not in others:
        named = Path(*path) if isinstance(path, tuple) else path
        raise refuse(named, f"belongs to another user (uid {status.st_uid})")


def stat_file(path: str | Path, *, below: int = 0, writes: bool = False) -> os.stat_result:
    """The status of the file that `open_file` would open. Raises OSError, UnsafeFile."""
    with open_folder(Path(path).parent, below=below) as (folder, owner):
        status = os.stat(os.path.basename(path), dir_fd=folder, follow_symlinks=False)
        check_regular(status, path, owner, writes=writes)
        return status


def read(path: str | Path, *, below: int = 0) -> bytes:
    """Read a file. Raises OSError, UnsafeFile."""
    with open(open_file(path, os.O_RDONLY, below=below), "rb") as file:
        return file.read()


def write(path: str | Path, data: bytes, *, below: int = 0) -> None:
    """Create a file; it must not exist. Raises OSError, UnsafeFile."""
    with open(open_file(path, NEW, below=below), "wb") as file:
        file.write(data)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data, in several calls if need be. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def replace(path: str | Path, data: bytes, *, below: int = 0) -> None:
    """Replace a file atomically. Raises OSError, UnsafeFile."""
    name = os.path.basename(path)
    with open_folder(Path(path).parent, below=below, make=True) as (folder, owner):
        with suppress(FileNotFoundError):
            check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), path, owner, writes=True)
        with replacing(folder, name) as file:
            write_all(file, data)


@contextmanager
def replacing(
    folder: int,
    name: str,
    *,
    temp_name: str = "",
    mode: int = PRIVATE_FILE,
    sync: bool = False,
    is_new: bool = False,
    check: Callable[[], object] = lambda: None,
) -> Iterator[int]:
    """Yield the descriptor of a new file, which takes the name in the opened folder when the block ends.

    If the block or anything after it raises, the new file is removed, and a file that has the name keeps it.

    `sync`: the content is on disk before the file gets its name, and the name when this returns. `check` is called just
    before the rename and may raise. `is_new`: nothing has the name; if that changes, FileExistsError is raised.
    Raises OSError, and whatever `check` raises.
    """
    temp_name = temp_name or f".{name}.{os.getpid()}.{os.urandom(4).hex()}.new"
    try:
        file = os.open(temp_name, NEW | FILE, mode, dir_fd=folder)
    except FileExistsError:
        # Only we use such names: an earlier write was interrupted.
        os.unlink(temp_name, dir_fd=folder)
        file = os.open(temp_name, NEW | FILE, mode, dir_fd=folder)
    try:
        try:
            yield file
            if sync:
                os.fsync(file)
        finally:
            os.close(file)
        check()
        if is_new:
            rename_to_free_name(folder, temp_name, name)
        else:
            os.rename(temp_name, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temp_name, dir_fd=folder)
        raise
    if sync:
        sync_folder(folder)


def rename(path: str | Path, name: str, *, below: int = 0) -> None:
    """Give a complete file another name in its folder, atomically, also if a file has that name. Raises OSError."""
    with open_folder(Path(path).parent, below=below) as (folder, _):
        os.rename(os.path.basename(path), name, src_dir_fd=folder, dst_dir_fd=folder)


def rename_to_free_name(folder: int, old: str, new: str) -> None:
    """Rename without replacing. Raises FileExistsError if the name was taken in the meantime."""

    if syscalls.rename_to_free_name(folder, old, new):
        return
    # The system has no atomic rename without replacement. Check once more, then rename.
    with suppress(FileNotFoundError):
        os.stat(new, dir_fd=folder, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
    os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)


def sync_folder(folder: int) -> None:
    """Sync the names in a folder to disk, if it is readable: others cannot be opened for that. Raises OSError."""
    with suppress(PermissionError):
        opened = os.open(".", LIST, dir_fd=folder)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def lock(
    descriptor: int,
    *,
    shared: bool = False,
    timeout_seconds: float | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Lock an opened file or folder against other processes, or against other descriptors of this one.

    Waits for at most `timeout_seconds`, or as long as it takes if that is None. Returns False if the lock is still held
    then. The kernel releases the lock when the last copy of the descriptor is closed, also if the process is killed.
    Raises OSError if the file system does not support locks.
    """
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if timeout_seconds is None:
        fcntl.flock(descriptor, how)
        return True
    pauses = round(timeout_seconds / PAUSE_SECONDS)
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if pauses == 0:
                return False
            pauses -= 1
            pause(PAUSE_SECONDS)
        else:
            return True


def unlock(descriptor: int) -> None:
    """Release a lock whose descriptor stays open."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def remove(path: str | Path, *, below: int = 0) -> None:
    """Remove a file or a symlink. Raises OSError, UnsafeFile."""
    with open_folder(Path(path).parent, below=below) as (folder, _):
        os.unlink(os.path.basename(path), dir_fd=folder)


def remove_tree(path: str | Path, *, below: int = 0) -> None:
    """Remove a folder and its content. Raises OSError, UnsafeFile."""
    import shutil

    with open_folder(Path(path).parent, below=below) as (folder, _), suppress(FileNotFoundError):
        shutil.rmtree(os.path.basename(path), dir_fd=folder)
