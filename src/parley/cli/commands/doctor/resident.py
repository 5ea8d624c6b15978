"""Check of the resident engine, if this environment asks for one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from parley.cli.commands.doctor.base import Check
from parley.cli.commands.resident import describe, list_servers, read_idle_seconds
from parley.cli.main import RESIDENT
from parley.errors import UsageError


def check_resident() -> Iterator[Check]:
    """Yields nothing if sessions here are started without a resident engine."""
    if os.environ.get(RESIDENT, "") in ("", "0"):
        return
    if os.environ[RESIDENT] != "1" or sys.platform != "linux":
        yield Check("resident", "warning", f"{RESIDENT} has an effect only on Linux and with the value 1")
        return
    try:
        read_idle_seconds()
        servers = [server for server in list_servers() if server.is_ours]
    except UsageError as exc:
        yield Check("resident", "warning", f"{exc}; sessions start without a resident engine")
        return
    if not servers:
        yield Check("resident", "ok", "no resident engine is running; the next session starts one")
    for server in servers:
        yield Check("resident", "warning" if server.refusal else "ok", describe(server))
