"""The supervisor in the sandbox: it prepares what only an inside process can, then runs commands.

In bubblewrap everything is in place already; the supervisor only opens the port of the proxy. With Landlock the
supervisor itself is not confined, so that commands cannot harm it; it confines each command between fork and exec.

Runs in a bare interpreter (`launcher.py`) and uses only the standard library.
"""

from __future__ import annotations

import json
import resource
import socket

from parley.workspace.process import supervisor
from parley.workspace.process.child import Confine
from parley.workspace.process.tree import hide_memory


def main(control: int, hello: int, port: int, plan: int) -> None:
    """`port`: where commands find the proxy, 0 for none. `plan`: a file for Landlock, -1 in bubblewrap."""
    hide_memory()  # commands of the same user must not read the memory of their supervisor
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    confine = None if plan < 0 else prepare_landlock(plan)
    greeting = socket.socket(fileno=hello)
    if port:
        with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
            socket.send_fds(greeting, [b"!"], [listener.fileno()])
    greeting.close()
    supervisor.main(control, may_adopt=True, confine=confine)


def prepare_landlock(plan: int) -> Confine:
    """Open the paths of the plan. Returns how a process confines itself."""
    from parley.workspace.sandbox.landlocked import LandlockDomain

    with open(plan, "rb") as file:
        return LandlockDomain(json.load(file))
