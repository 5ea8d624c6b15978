"""A port for a server that has to be told one."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

BELOW_CONNECTIONS = range(20_000, 32_000)
"""The system gives higher ports to connections: one of these could take the port before the server does."""


def free_port() -> int:
    while True:
        port = random.choice(BELOW_CONNECTIONS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
