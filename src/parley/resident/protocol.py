"""What the launcher and a forked process say to each other: lines on a Unix socket, one at a time.

    session -> launcher   ready PID SERVED     or: refused REASON
    launcher -> session   start                with the descriptors
    session -> launcher   waiting              it has everything, and has not touched the streams
    launcher -> session   go                   from here on, the launcher never starts cold
    session -> launcher   code N               about to exit
    server -> launcher    status N             what `waitpid` returned; the last line

The launcher imports this module, so it imports nothing else.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

READY, REFUSED, START, WAITING, GO = b"ready", b"refused", b"start\n", b"waiting\n", b"go\n"
CODE, STATUS = b"code", b"status"
MAX_BYTES = 4096
DESCRIPTORS = 6
"""stdin, stdout, stderr, the working directory, a pipe that ends with the launcher, and a file with the words and the
environment."""
SESSION_WAIT_SECONDS = 5.0
"""How long a forked process waits for its launcher."""


def pack_descriptors(descriptors: list[int]) -> bytes:
    return b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in descriptors)


def unpack_integers(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 4], sys.byteorder, signed=True) for at in range(0, len(data) - 3, 4)]


def peer_of(connection: socket) -> tuple[int, int]:
    """The pid and the user id of the other end, as the kernel knows them. Raises OSError."""
    from _socket import SO_PEERCRED, SOL_SOCKET

    pid, uid, _ = unpack_integers(connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12))
    return pid, uid
