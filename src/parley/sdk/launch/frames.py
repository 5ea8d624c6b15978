"""The connection between a program and one session in a worker process: frames on a stream socket.

A frame is a kind, a length and a payload. The program sends LAUNCH first; the worker sends ENDED last. A connection
that closes without ENDED means that the other process is gone.
"""

from __future__ import annotations

import enum
import json
import struct
from dataclasses import astuple, dataclass

HEADER = struct.Struct("!BI")


class FrameKind(enum.IntEnum):
    LAUNCH = 1
    """To the worker: a `SessionLaunch`."""
    DATA = 2
    """Both ways: bytes of the protocol."""
    END_INPUT = 3
    """To the worker: the engine's input is closed."""
    STOP = 4
    """To the worker: stop the session, even during a turn."""
    STDERR = 5
    """To the program: a line of the engine's stderr."""
    ENDED = 6
    """To the program: the exit code of the engine, in digits."""


@dataclass(frozen=True)
class SessionLaunch:
    """What an engine is built from. Nothing of it becomes part of the worker process itself."""

    argv: list[str]
    cwd: str
    environment: dict[str, str]

    def encode(self) -> bytes:
        """Names and variables may be invalid UTF-8, which `json` keeps and msgspec refuses."""
        return json.dumps(astuple(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> SessionLaunch:
        return cls(*json.loads(data))


def encode_frame(kind: FrameKind, payload: bytes = b"") -> bytes:
    return HEADER.pack(kind, len(payload)) + payload


class FrameReader:
    """Cuts bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that the bytes complete: kinds and payloads."""
        buffer, found, at = self._buffer, [], 0
        buffer += data
        while len(buffer) - at >= HEADER.size:
            kind, size = HEADER.unpack_from(buffer, at)
            end = at + HEADER.size + size
            if end > len(buffer):
                break
            found.append((kind, bytes(buffer[at + HEADER.size : end])))
            at = end
        del buffer[:at]
        return found
