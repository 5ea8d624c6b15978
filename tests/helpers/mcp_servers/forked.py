"""`forked.py SOCKET` is `workshop.py stdio` without its start-up, most of which is the import of the official package.

`forked.py serve LISTENER` has loaded it, and forks a process for each connection, which gets the streams, the folder
and the variables of the one that connected. That one ends when its fork does, and the fork when that one is killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys

TYPE_CHECKING = False  # `typing` would take longer to load than all the rest
if TYPE_CHECKING:
    from typing import NoReturn

    from mcp.server.mcpserver import MCPServer

MAX_BYTES = 1 << 16
ENDED = b"0"


def connect(name: str) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(f"\0{name}")
        request = {"cwd": os.getcwd(), "environment": dict(os.environ)}
        socket.send_fds(line, [json.dumps(request).encode()], [0, 1, 2])
        for stream in (0, 1):
            os.close(stream)  # or the client would not see that the fork has closed them
        return 0 if line.recv(1) == ENDED else 1


def serve(listener: socket.socket) -> None:
    """Until stdin ends."""
    import anyio._backends._asyncio  # noqa: F401  # a server needs both when it runs
    import mcp.server.stdio  # noqa: F401

    from tests.helpers.mcp_servers import workshop

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        line, _ = listener.accept()
        with line:
            if os.fork() == 0:
                listener.close()
                run(line, workshop.server)


def run(line: socket.socket, server: MCPServer) -> NoReturn:
    import threading

    data, streams, *_ = socket.recv_fds(line, MAX_BYTES, 3)
    request = json.loads(data)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def end_with_the_client() -> None:
        line.recv(1)
        os._exit(1)

    threading.Thread(target=end_with_the_client, daemon=True).start()
    server.run("stdio")
    line.send(ENDED)
    os._exit(0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", descriptor]:
            serve(socket.socket(fileno=int(descriptor)))
        case [name]:
            sys.exit(connect(name))
