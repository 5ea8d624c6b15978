"""Where programs are found.

Commands of the model have a PATH of absolute folders. Relative entries, empty entries and entries below /proc depend
on the working directory.

A program that we start ourselves, such as git or ripgrep, runs outside of the sandbox and without approval, so neither
the session nor the repository may choose it. `find_trusted` finds it; `with_trusted_path` is the PATH on which such a
program finds others.

    git = find_trusted("git", environment, ["/home/me/project"])     # folders that the session can change
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache

DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Used if PATH has no absolute folder. Bash's own default might include the current directory."""

MAX_LINKS = 40
"""Symbolic links on the way to one file, as in the kernel."""


@lru_cache(maxsize=64)
def folders(path: str | None) -> tuple[str, ...]:
    """The absolute folders of a PATH, in order."""
    entries = (path or "").split(":")
    kept = tuple(entry for entry in entries if entry.startswith("/") and not entry.lstrip("/").startswith("proc/"))
    return kept or tuple(DEFAULT.split(":"))


def with_absolute_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with only absolute folders in PATH."""
    return {**environment, "PATH": ":".join(folders(environment.get("PATH")))}


def with_trusted_path(environment: Mapping[str, str], changeable: Iterable[str]) -> dict[str, str]:
    """The environment for programs that we start ourselves: PATH has only folders that the session cannot change."""
    tops = list_untrusted(changeable, environment.get("HOME", ""))
    entries = folders(environment.get("PATH"))
    if "/" in tops:
        entries = tuple(entry for entry in entries if entry in DEFAULT.split(":"))
    return {**environment, "PATH": ":".join(entry for entry in entries if is_trusted(entry, tops)) or DEFAULT}


def environment_for(command: str, environment: Mapping[str, str], changeable: Iterable[str]) -> dict[str, str]:
    """The environment for a command line of the user's. Raises PermissionError if its program is not trusted.

    A program that the user names by a path is the user's choice. A name may lead to a file that the session can change
    through a symlink on the PATH.
    """
    import shlex

    changeable = tuple(changeable)
    trusted = with_trusted_path(environment, changeable)
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    program = next((word for word in words if "=" not in word), "")
    if "/" not in program and is_found_untrusted(program, trusted, changeable):
        raise PermissionError(errno.EACCES, "the program on the PATH is one that the session can change", program)
    return trusted


def find_trusted(name: str, environment: Mapping[str, str], changeable: Iterable[str]) -> str | None:
    """The program of that name for us to start: the first one that the session cannot change."""
    changeable = tuple(changeable)
    tops = list_untrusted(changeable, environment.get("HOME", ""))
    search_path = with_trusted_path(environment, changeable)["PATH"]
    candidates = (os.path.join(folder, name) for folder in search_path.split(":"))
    return next((file for file in candidates if is_program(file) and is_trusted(file, tops)), None)


def is_found_untrusted(name: str, environment: Mapping[str, str], changeable: Iterable[str]) -> bool:
    """Whether a command name runs a file that is not trusted. A builtin is not a file."""
    candidates = (f"{folder}/{name}" for folder in folders(environment.get("PATH")))
    file = name if "/" in name else next(filter(os.path.lexists, candidates), None)
    # A relative path depends on the folder of the shell, which the session can change.
    tops = list_untrusted(changeable, environment.get("HOME", ""))
    return file is not None and not (os.path.isabs(file) and is_trusted(file, tops))


def list_untrusted(changeable: Iterable[str], home: str = "") -> frozenset[str]:
    """The folders that the session can change and the repositories around them, under the given and the real names."""
    names = {name for folder in changeable for name in (os.path.abspath(folder), os.path.realpath(folder))}
    return frozenset(names).union(*(find_repositories(name, home, os.path.lexists) for name in names))


def find_repositories(folder: str, home: str, exists: Callable[[str], bool]) -> tuple[str, ...]:
    """The git repositories that a folder is in, also as a part of another one.

    The home folder, and what is above it, is not taken for a repository: its `.git`, if any, is the user's own.
    """
    found: list[str] = []
    while folder not in ("/", home):
        if exists(f"{folder}/.git"):
            found.append(folder)
        folder = os.path.dirname(folder)
    return tuple(found)


def is_trusted(path: str, tops: Collection[str]) -> bool:
    """Whether nothing on the way to a file or folder, links included, is in `tops` or in the hands of other users.

    Everything must belong to root or to us, and other users must not be able to replace it. The members of its group
    may: package managers such as Homebrew give their folders to a group of administrators.
    """
    try:
        found = list(walk_names(path))
    except OSError:
        return False
    return bool(found) and all(
        is_ours_alone(status, is_last=index == len(found) - 1)
        and not any(is_below(name, top) for top in tops if top != "/")
        for index, (name, status) in enumerate(found)
    )


def is_ours_alone(status: os.stat_result, *, is_last: bool) -> bool:
    """Whether other users cannot replace a file, folder or link. In /tmp they can only add files."""
    if status.st_uid not in (0, os.geteuid(), system_owner()):
        return False
    is_shared = bool(status.st_mode & stat.S_IWOTH) and not stat.S_ISLNK(status.st_mode)
    return not is_shared or (not is_last and bool(status.st_mode & stat.S_ISVTX))


@lru_cache(maxsize=1)
def system_owner() -> int:
    """Who owns the system's programs: root, whose number is another one in some containers."""
    try:
        return os.stat("/usr").st_uid
    except OSError:
        return 0


def walk_names(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every folder and every link that leads to a file, and the file itself. Raises OSError."""
    rest, place, links = path.split("/")[::-1], "/", 0
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        name = os.path.dirname(place) if part == ".." else os.path.join(place, part)
        status = os.lstat(name)
        yield name, status
        if not stat.S_ISLNK(status.st_mode):
            place = name
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(name)
        rest += target.split("/")[::-1]
        place = "/" if target.startswith("/") else place


def is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")


def is_program(file: str) -> bool:
    return os.access(file, os.X_OK) and os.path.isfile(file)


def with_absolute_python_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for another Python process of ours, which may start in an untrusted folder.

    A relative folder of PYTHONPATH stays the one that it is here; an empty entry, which means the working directory,
    is left out.
    """
    entries = [os.path.abspath(entry) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {**environment, **({"PYTHONPATH": os.pathsep.join(entries)} if "PYTHONPATH" in environment else {})}


def parse_interpreter(line: bytes) -> str | None:
    """The NAME of a first line `#!/usr/bin/env NAME`, or None."""
    words = line.split()
    if not words or not words[0].startswith(b"#!") or not words[0].endswith(b"/env"):
        return None
    names = (os.fsdecode(word) for word in words[1:] if not word.startswith(b"-") and b"=" not in word)
    return next(names, None)
