"""Where the resident server of this installation listens, and what the launcher and a forked process say to each other.

It listens in a folder that only its user can enter. Its name there has the version and a hash of what makes two
interpreters differ: the executable, the script, the package and the variables that Python, the loader and the C library
read when a process starts. The two exchange lines on a Unix socket, one at a time:

    session -> launcher   ready PID SERVED     or: refused REASON
    launcher -> session   start                with the descriptors
    session -> launcher   waiting              it has everything, and has not touched the streams
    launcher -> session   go                   from here on, the launcher never starts cold
    session -> launcher   code N               about to exit
    server -> launcher    status N             what `waitpid` returned; the last line

The launcher imports this module, so it imports nothing else.
"""

from __future__ import annotations

import os
import sys

from parley.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

IDLE_VARIABLE = "PARLEY_RESIDENT_IDLE_SECONDS"
"""How long a server without sessions stays. It is part of the name, because it is read when the server starts."""
READ_AT_START = ("PYTHON", "LC_", "LD_", "MALLOC_", "OPENSSL_", "LANG", "GLIBC_TUNABLES", "LOCPATH", IDLE_VARIABLE)
"""Prefixes of the variables that a process reads only when it starts."""
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = "parley-resident"
FNV_OFFSET, FNV_PRIME, FNV_MASK = 0xCBF29CE484222325, 0x100000001B3, 0xFFFFFFFFFFFFFFFF
READY, REFUSED, START, WAITING, GO = b"ready", b"refused", b"start\n", b"waiting\n", b"go\n"
CODE, STATUS = b"code", b"status"
MAX_BYTES = 4096
DESCRIPTORS = 6
"""stdin, stdout, stderr, the working directory, a pipe that ends with the launcher, and a file with the words and the
environment."""
SESSION_WAIT_SECONDS = 5.0
"""How long a forked process waits for its launcher."""


def server_environment() -> dict[str, str]:
    """The variables of a server. Secrets are not among them."""
    return {name: value for name, value in os.environ.items() if name.startswith(READ_AT_START)}


def server_name(script: str) -> str:
    """The name of the socket and, without its suffix, of the lock."""
    parts = [__version__, sys.version, sys.executable, script, PACKAGE]
    parts += [f"{name}={value}" for name, value in sorted(server_environment().items())]
    value = FNV_OFFSET
    for byte in os.fsencode("\0".join(parts)):  # hashlib would take longer to import
        value = (value ^ byte) * FNV_PRIME & FNV_MASK
    return f"{__version__}-{value:016x}"


def folder_path() -> str:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{runtime}/{FOLDER}" if runtime.startswith("/") else f"/tmp/{FOLDER}-{os.geteuid()}"


def open_folder() -> int:
    """Open the folder, creating it if necessary. Raises OSError; PermissionError if others could have written to it."""
    path = folder_path()
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(path, flags)
    except FileNotFoundError:
        try:  # noqa: SIM105  # contextlib is not loaded
            os.mkdir(path, 0o700)
        except FileExistsError:  # another process was faster
            pass
        folder = os.open(path, flags)
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(folder)
        raise PermissionError(1, f"must belong to user {os.geteuid()} and have mode 700", path)
    return folder


def socket_path(folder: int, name: str) -> str:
    """The address of a socket in an open folder. It is short, whatever the length of the folder's path."""
    return f"/proc/self/fd/{folder}/{name}.sock"


def pack_descriptors(descriptors: list[int]) -> bytes:
    return b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in descriptors)


def unpack_integers(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 4], sys.byteorder, signed=True) for at in range(0, len(data) - 3, 4)]


def peer_of(connection: socket) -> tuple[int, int]:
    """The pid and the user id of the other end, as the kernel knows them. Raises OSError."""
    from _socket import SO_PEERCRED, SOL_SOCKET

    pid, uid, _ = unpack_integers(connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12))
    return pid, uid
