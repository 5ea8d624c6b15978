"""The paths that commands may use under Landlock, with their rights.

Landlock has no exceptions: a right to a folder is a right to everything beneath it. Around a path that is excepted, the
plan allows the entries beside it, and nothing new can be created in the folders above it. Names of files can be listed
everywhere. Protected files in a writable folder are not excepted, because then nothing could be created there; they are
compared and restored instead (`contents.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from parley.workspace.sandbox.base import SandboxPolicy
from parley.workspace.sandbox.landlocked import EVERY_RIGHT, IOCTL_DEV, READ, READ_DIR, READ_FILE, WRITE_FILE
from parley.workspace.sandbox.mounts import is_beneath

HIDDEN = ("/dev", "/tmp", "/run")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""Not the pseudo-terminals: those of the user are among them."""


def plan_paths(policy: SandboxPolicy, runtime: tuple[str, ...], temp: str) -> list[tuple[str, int]]:
    hidden = (*HIDDEN, *policy.unreadable)
    found = [("/", READ_DIR), *allow_around("/", hidden, READ)]
    found += [(f"/dev/{name}", READ_FILE | WRITE_FILE | IOCTL_DEV) for name in DEVICES]
    for path in runtime:
        found.append((path, READ))
    for path in policy.readable:
        found += allow_around(path, tuple(each for each in policy.unreadable if not is_beneath(path, each)), READ)
    for path in policy.writable:
        found += allow_around(path, policy.unreadable, READ)
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
