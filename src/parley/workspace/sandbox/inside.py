"""The supervisor in the sandbox: it prepares what only an inside process can, then runs commands.

In bubblewrap everything is in place already. The supervisor checks it, because a command of another sandbox could have
replaced a folder by a symlink while bubblewrap mounted something there. With Landlock the supervisor itself is not
confined, so that commands cannot harm it; it confines each command between fork and exec.

Runs in a bare interpreter (`launcher.py`) and uses only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
from typing import Any

from parley.workspace.landlock import LandlockDomain
from parley.workspace.process import supervisor
from parley.workspace.process.tree import hide_memory


def main(control: int, hello: int, port: int, plan_file: int, alive: int) -> None:
    """`port`: where commands find the proxy, 0 for none. `alive`: a socket, kept open while the sandbox exists."""
    hide_memory()  # commands of the same user must not read the memory of their supervisor
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(plan_file, "rb") as file:
        plan: dict[str, Any] = json.load(file)
    keep_descriptors(control, hello, alive)
    check_mounts(plan.get("mounts", ()))
    confine = LandlockDomain(plan) if "paths" in plan else None
    if confine is None:
        # As the first process of a namespace it ends after all others, but its descriptors are closed before that.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(alive)) as cleaner:
            socket.send_fds(cleaner, [b"!"], [os.pidfd_open(os.getpid())])
    greeting = socket.socket(fileno=hello)
    if port:
        with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
            socket.send_fds(greeting, [b"!"], [listener.fileno()])
    greeting.close()
    supervisor.main(control, may_adopt=True, confine=confine)


def keep_descriptors(*kept: int) -> None:
    """Close all descriptors but these, and let no command inherit them."""
    for descriptor in kept:
        os.set_inheritable(descriptor, False)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(descriptor)


def check_mounts(expected: list[tuple[str, int, int, bool]]) -> None:
    """Check that the mount points are where they should be. Raises SystemExit."""
    if not expected:
        return
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = {fields[4]: fields[5].split(",") for fields in map(str.split, file)}
    for path, device, inode, is_read_only in expected:
        # The kernel writes blanks in paths as octal numbers.
        options = mounts.get(
            path.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011").replace("\n", "\\012")
        )
        found = os.lstat(path)
        is_same = not inode or (found.st_dev, found.st_ino) == (device, inode)
        if options is None or not is_same or (is_read_only and "ro" not in options):
            raise SystemExit(f"{path} was changed while the sandbox started; try again")
