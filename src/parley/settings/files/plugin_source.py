"""Bring the files of a plugin here: from a folder, a zip file or a git repository.

    with staged(source, folder) as root: ...      # a new folder below `folder`, which is deleted at the end

Nothing is written outside of the new folder, and no link is followed or made: an archive with a path that leads out,
and every source with a symlink, is refused. No code of the plugin runs.

See also: `plugins.py` reads a plugin, `installed_plugins.py` keeps the list of installed ones.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import parley.workspace.git as git
from parley.errors import ToolError
from parley.settings.files.plugins import MANIFEST

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

MOST_FILES = 10_000
MOST_BYTES = 200_000_000
GIT_URL = re.compile(r"(https?|ssh|git|file)://.+|[\w.-]+@[\w.-]+:.+")
GIT_SECONDS = 300
PROTOCOLS = "file:git:http:https:ssh"
SKIPPED = (".git",)


class InvalidSource(Exception):
    """A plugin cannot be taken from a source. The text says why."""


@contextmanager
def staged(source: str, folder: Path) -> Iterator[Path]:
    """Copy, unpack or clone a source into a new folder. Raises InvalidSource."""
    target = make_staging(folder)
    try:
        fetch(source, target / "source")
        yield target / "source"
    finally:
        shutil.rmtree(target, ignore_errors=True)


def make_staging(folder: Path) -> Path:
    """Raises InvalidSource."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".staging-", dir=folder))
    except OSError as exc:
        raise InvalidSource(f"cannot write to {folder}: {exc.strerror}") from None


def fetch(source: str, target: Path) -> None:
    """Raises InvalidSource."""
    path = Path(source).expanduser()
    if GIT_URL.fullmatch(source) or (path.is_dir() and is_bare_repository(path)):
        clone(source if GIT_URL.fullmatch(source) else str(path), target)
    elif path.is_dir():
        copy_folder(path, target)
    elif path.is_file():
        unpack(path, target)
    else:
        raise InvalidSource(f"{source} is not a folder, a zip file or the URL of a git repository")


def is_bare_repository(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and not (path / MANIFEST).exists()


def expand_place(place: str, config: Path) -> list[str]:
    """The folders of plugins that a folder or zip file of the command line holds; itself if there are none.

    A zip file is unpacked once, to a folder of the config directory that is named by its content. Raises InvalidSource.
    """
    path = Path(place)
    if path.is_file():
        path = unpack_once(path, config / "plugins" / "inline")
    try:
        roots = find_roots(path) if path.is_dir() else []
    except OSError as exc:
        raise InvalidSource(f"cannot read {path}: {exc.strerror}") from None
    return [str(root) for root in roots] or [str(path)]


def unpack_once(path: Path, folder: Path) -> Path:
    """Raises InvalidSource."""
    from hashlib import file_digest

    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidSource(f"{path} is larger than {MOST_BYTES:,} bytes")
        with path.open("rb") as opened:
            target = folder / file_digest(opened, "sha256").hexdigest()[:40]
    except OSError as exc:
        raise InvalidSource(f"cannot read {path}: {exc.strerror}") from None
    if target.is_dir():
        return target
    with staged(str(path), folder) as source:
        try:
            os.rename(source, target)
        except OSError:
            if not target.is_dir():  # else another session was faster
                raise InvalidSource(f"cannot write to {folder}") from None
    return target


def find_roots(folder: Path) -> list[Path]:
    """The plugins in a folder: the folder itself, or else the folders in it that have a manifest."""
    if (folder / MANIFEST).is_file():
        return [folder]
    return sorted(inner for inner in folder.iterdir() if (inner / MANIFEST).is_file() and not inner.is_symlink())


class Quota:
    """Limits how much a source may bring."""

    def __init__(self) -> None:
        self._files = 0
        self._bytes = 0

    def take(self, size_bytes: int) -> None:
        """Raises InvalidSource."""
        self._files += 1
        self._bytes += size_bytes
        if self._files > MOST_FILES or self._bytes > MOST_BYTES:
            raise InvalidSource(f"the source has more than {MOST_FILES:,} files or {MOST_BYTES:,} bytes")


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder without its repository. Raises InvalidSource."""
    quota = Quota()
    target.mkdir(0o700)
    try:
        for folder, folders, files in os.walk(source, onerror=raise_error):
            relative = Path(folder).relative_to(source)
            folders[:] = [name for name in folders if name not in SKIPPED]
            for name in folders:
                check_kind(Path(folder, name), relative / name, stat.S_ISDIR)
                (target / relative / name).mkdir(0o700)
            for name in files:
                if name in SKIPPED:
                    continue
                status = check_kind(Path(folder, name), relative / name, stat.S_ISREG)
                quota.take(status.st_size)
                copy_file(Path(folder, name), target / relative / name, status.st_mode)
    except OSError as exc:
        raise InvalidSource(f"cannot copy {exc.filename or source}: {exc.strerror}") from None


def raise_error(exc: OSError) -> None:
    raise exc


def check_kind(path: Path, shown: Path, is_kind: Callable[[int], bool]) -> os.stat_result:
    """Raises InvalidSource for a link, a pipe or a device."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise InvalidSource(f"{shown} is a symlink; plugins with symlinks are refused")
    if not is_kind(status.st_mode):
        raise InvalidSource(f"{shown} is not a regular file")
    return status


def copy_file(source: Path, target: Path, mode: int) -> None:
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened, target.open("xb") as new:
        shutil.copyfileobj(opened, new)
    target.chmod(0o700 if mode & stat.S_IXUSR else 0o600)


def unpack(path: Path, target: Path) -> None:
    """Unpack a zip file. Raises InvalidSource."""
    from zipfile import BadZipFile, ZipFile

    target.mkdir(0o700)
    try:
        with ZipFile(path) as archive:
            quota = Quota()
            for entry in archive.infolist():
                unpack_entry(archive, entry, target, quota)
    except BadZipFile as exc:
        raise InvalidSource(f"{path} is not a zip file: {exc}") from None
    except (OSError, RuntimeError, NotImplementedError, EOFError, ValueError) as exc:
        raise InvalidSource(f"{path} cannot be unpacked: {exc}") from None


def unpack_entry(archive: ZipFile, entry: ZipInfo, target: Path, quota: Quota) -> None:
    """Raises InvalidSource."""
    name, mode = entry.filename, entry.external_attr >> 16
    parts = Path(name).parts
    if name.startswith(("/", "\\")) or "\\" in name or "\0" in name or ".." in parts or (name[1:2] == ":"):
        raise InvalidSource(f"the archive has a path that points outside it: {name!r:.200}")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise InvalidSource(f"{name!r:.200} is not a regular file or a folder; such archives are refused")
    place = target.joinpath(*parts)
    if entry.is_dir():
        place.mkdir(0o700, parents=True, exist_ok=True)
        return
    if parts and parts[0] in SKIPPED:
        return
    quota.take(entry.file_size)
    place.parent.mkdir(0o700, parents=True, exist_ok=True)
    with archive.open(entry) as packed, place.open("xb") as new:
        copy_exactly(packed, new, entry.file_size, name)
    place.chmod(0o700 if mode & stat.S_IXUSR else 0o600)


def copy_exactly(packed: IO[bytes], new: IO[bytes], size_bytes: int, name: str) -> None:
    """Copy a file whose size the archive states. Raises InvalidSource if it is longer."""
    left = size_bytes
    while chunk := packed.read(1 << 16):
        left -= len(chunk)
        if left < 0:
            raise InvalidSource(f"{name!r:.200} is larger than the size stated in the archive")
        new.write(chunk)


def clone(url: str, target: Path) -> None:
    """Clone the newest state of a repository, without its submodules and hooks. Raises InvalidSource."""
    import subprocess

    checkout = target.with_name("checkout")
    origin = url if GIT_URL.fullmatch(url) else os.path.abspath(url)
    args = ("clone", "--quiet", "--depth=1", "--no-recurse-submodules", "--", origin, str(checkout))
    try:
        command = git.prepare(args, os.environ, [os.getcwd()], protocols=PROTOCOLS)
        done = subprocess.run(
            command.argv,
            cwd=checkout.parent,  # the repository of the working directory has no say
            env=command.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_SECONDS,
            check=False,
        )
    except ToolError as exc:
        raise InvalidSource(str(exc)) from None
    except subprocess.TimeoutExpired:
        raise InvalidSource(f"git did not finish within {GIT_SECONDS} s") from None
    if done.returncode != 0:
        raise InvalidSource(f"git clone failed: {' '.join(done.stderr.split())[-300:]}")
    copy_folder(checkout, target)
