"""What commands see of the file system: arguments for bubblewrap, and rights under Landlock.

bubblewrap. Everything is read-only, and the folders that commands may change are mounted over it. What is protected
beneath them is mounted read-only once more. Such a mount point cannot be renamed or removed; so that it cannot be moved
with a folder above it either, each folder between it and the writable one is a mount point, too. A path that does not
exist needs a mount point all the same. bubblewrap creates an empty folder there, a *placeholder*, which stays on the
host until it is removed (`cleanup.py`).

Landlock has no exceptions: a right to a folder is a right to everything beneath it. Around a path that is excepted, the
plan allows the entries beside it, and nothing new can be created in the folders above it. Names of files can be listed
everywhere. Protected files in a writable folder are not excepted, because then nothing could be created there; they are
compared and restored instead (`cleanup.py`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Literal

from parley.protocol.base import Struct
from parley.workspace.landlock import EVERY_RIGHT, EXECUTE, IOCTL_DEV, READ, READ_FILE, READ_FOLDER, WRITE_FILE
from parley.workspace.sandbox.base import SandboxPolicy

MountKind = Literal["writable", "read_only", "hidden", "empty"]
PRIVATE_TEMP = "/tmp"
HIDDEN_RUNTIME = "/run"
"""It contains the sockets of services."""
NAMESPACES = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--as-pid-1")
"""Our supervisor is the first process. That of bubblewrap has no system call filter, and commands could write to its
memory."""
HIDDEN = ("/dev", "/tmp", "/run")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""Not the pseudo-terminals: those of the user are among them."""


class MountPlan(Struct, frozen=True, kw_only=True):
    """The arguments, and what they should lead to."""

    arguments: tuple[str, ...]
    expected: tuple[tuple[str, int, int, bool], ...] = ()
    """What the supervisor finds in the sandbox: mount points with device and inode (0 for any), and if read-only."""


def plan_mounts(policy: SandboxPolicy, *, temp: str, empty: str, runtime: tuple[str, ...]) -> MountPlan:
    """`temp`: the private folder for /tmp. `empty`: an empty folder. `runtime`: paths that our own process needs."""
    # bubblewrap covers only what access(2) calls writable. A file of /proc/sys is writable for root all the same.
    proc = () if policy.weaker_nested else ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
    if policy.filesystem_disabled:
        return MountPlan(arguments=(*NAMESPACES, "--bind", "/", "/", "--dev", "/dev", *proc))
    kinds, _ = choose_mounts(policy, runtime)
    arguments = [*NAMESPACES, "--ro-bind", "/", "/", "--dev", "/dev", *proc]
    if HIDDEN_RUNTIME not in kinds:
        arguments += ["--tmpfs", HIDDEN_RUNTIME]
    if PRIVATE_TEMP not in kinds and not policy.writable:
        arguments += ["--tmpfs", PRIVATE_TEMP]  # commands that only read leave nothing in it
    elif PRIVATE_TEMP not in kinds:
        arguments += ["--bind", temp, PRIVATE_TEMP]
        kinds[temp] = "writable"
    for path in sorted(kinds, key=lambda path: PurePosixPath(path).parts):
        has_mounts = any(other != path and is_beneath(other, path) for other in kinds)
        arguments += mount_arguments(path, kinds[path], empty, has_mounts=has_mounts)
    hidden = [path for path, kind in kinds.items() if kind == "hidden" and os.path.isdir(path)]
    sealed = [word for path in hidden for word in ("--remount-ro", path)]
    return MountPlan(arguments=(*arguments, *sealed), expected=tuple(map(expect, kinds, kinds.values())))


def expect(path: str, kind: MountKind) -> tuple[str, int, int, bool]:
    if kind in ("hidden", "empty"):
        return path, 0, 0, True
    status = os.lstat(path)
    return path, status.st_dev, status.st_ino, kind == "read_only"


def choose_mounts(policy: SandboxPolicy, runtime: tuple[str, ...]) -> tuple[dict[str, MountKind], list[str]]:
    """What is mounted at each path, and the paths that do not exist on the host."""
    kinds: dict[str, MountKind] = dict.fromkeys(policy.writable, "writable")
    placeholders: list[str] = []
    for path in (*runtime, *policy.readable):
        if os.path.lexists(path) and path not in kinds:
            kinds[path] = "writable" if find_root(path, policy.writable) else "read_only"
    kept: list[str] = []
    for path in (*policy.read_only, *policy.protected):
        root = find_root(path, policy.writable)
        if root is None or root == path:
            continue
        if os.path.lexists(path):
            kinds[path] = "read_only"
            kept.append(path)
        elif missing := first_missing(path, root):
            kinds[missing] = "empty"
            placeholders.append(missing)
            kept.append(missing)
    for path in policy.unreadable:
        if os.path.lexists(path):
            kinds[path] = "hidden"
            kept.append(path)
    for path in kept:
        for folder in folders_between(path, policy.writable):
            kinds.setdefault(folder, "writable")
    return kinds, list(dict.fromkeys(placeholders))


def mount_arguments(path: str, kind: MountKind, empty: str, *, has_mounts: bool) -> list[str]:
    if kind == "writable":
        return ["--bind", path, path]
    if kind == "read_only":
        return ["--ro-bind", path, path]
    if kind == "empty":
        return ["--ro-bind", empty, path]
    if is_folder(path):
        # Mount points in it must be found, although it cannot be listed.
        return ["--perms", "0111" if has_mounts else "0000", "--tmpfs", path]
    # A device cannot be opened in a mount without devices: reading fails instead of giving nothing.
    return ["--ro-bind", "/dev/null", path]


def find_root(path: str, folders: tuple[str, ...]) -> str | None:
    """The innermost of the folders that contains the path, or is it."""
    found = [folder for folder in folders if is_beneath(path, folder)]
    return max(found, key=len, default=None)


def is_beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def folders_between(path: str, writable: tuple[str, ...]) -> list[str]:
    """The folders above a path, up to the writable one that contains it."""
    root = find_root(path, writable)
    found: list[str] = []
    while root is not None and (path := os.path.dirname(path)) != root and is_beneath(path, root):
        found.append(path)
    return found


def first_missing(path: str, root: str) -> str | None:
    """The first part of a path beneath `root` that does not exist; None if a file is in its place."""
    current = root
    for part in PurePosixPath(path).relative_to(root).parts:
        if not is_folder(current):
            return None
        current = os.path.join(current, part)
        if not os.path.lexists(current):
            return current
    return None


def is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def plan_paths(policy: SandboxPolicy, runtime: tuple[str, ...], temp: str) -> list[tuple[str, int]]:
    hidden = (*HIDDEN, *policy.unreadable)
    found = [("/", READ_FOLDER), *allow_around("/", hidden, EXECUTE | READ)]
    found += [(f"/dev/{name}", READ_FILE | WRITE_FILE | IOCTL_DEV) for name in DEVICES]
    for path in runtime:
        found.append((path, EXECUTE | READ))
    for path in policy.readable:
        found += allow_around(
            path, tuple(each for each in policy.unreadable if not is_beneath(path, each)), EXECUTE | READ
        )
    for path in policy.writable:
        found += allow_around(path, policy.unreadable, EXECUTE | READ)
        found += allow_around(path, (*policy.read_only, *policy.unreadable), EVERY_RIGHT)
    return [*found, (temp, EVERY_RIGHT)]


def allow_around(path: str, excepted: tuple[str, ...], access: int) -> Iterator[tuple[str, int]]:
    """Allow a folder, or what is in it and is not excepted."""
    if any(is_beneath(path, each) for each in excepted):
        return
    inner = tuple(each for each in excepted if is_beneath(each, path))
    if not inner:
        yield path, access
        return
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        yield from allow_around(os.path.join(path, name), inner, access)
