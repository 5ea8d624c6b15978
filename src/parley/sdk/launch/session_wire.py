"""A session at the other end of a socket: in a worker process, or in a thread of this one.

What is sent on the socket are frames: a kind, a length and a payload. The program sends LAUNCH first; the worker sends
ENDED last. A connection that closes without ENDED means that the other process is gone.

See also: `worker_process.py` for the other end.
"""

from __future__ import annotations

import enum
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from parley.sdk.errors import CLIConnectionError
from parley.sdk.launch.pipes import NOT_READ, Writer, watch
from parley.sdk.runtime.background import log
from parley.sdk.runtime.transport import Ended

if TYPE_CHECKING:
    from anyio import Event

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


STOP_SECONDS = 5.0
"""How long an engine has to finish by itself, again after it was told to stop, and a worker to exit."""
STDERR_CHARS = 64 * 1024
"""How much of stderr an error contains."""


class SessionWire:
    """A `Wire` to a session. Subclasses say what runs it."""

    def __init__(
        self, argv: Sequence[str], on_stderr: Callable[[str], None], cleanup: Callable[[], None] = lambda: None
    ) -> None:
        self._argv = tuple(argv)
        self._on_stderr = on_stderr
        self._cleanup = cleanup
        self._connection: socket.socket | None = None
        self._finished: Event | None = None
        self._writer: Writer | None = None
        self._stderr = ""
        self._exit_code: int | None = None
        self._is_abandoned = False
        self._is_released = threading.Lock()

    @property
    def pid(self) -> int | None:
        return None

    def connect(self) -> socket.socket:
        """Start the session; returns a socket that does not block. Raises CLIConnectionError."""
        raise NotImplementedError

    def explain_loss(self) -> str:
        """Why the session no longer reads, if that is known."""
        return ""

    async def find_exit_code(self) -> int | None:
        """The exit code of a session that did not report it."""
        return None

    def release(self) -> None:
        """The session has ended, or was abandoned."""

    async def open(self) -> None:
        from anyio import Event

        self._finished = Event()
        try:
            connection = self._connection = self.connect()
        except CLIConnectionError:
            self._cleanup()
            raise
        except OSError as exc:  # too many open files
            self._cleanup()
            raise CLIConnectionError(f"the session cannot be started: {exc.strerror or exc}") from exc
        self._writer = Writer(connection, self.explain_loss)

    # Reading.

    async def chunks(self) -> AsyncIterator[bytes]:
        from anyio import notify_closing

        assert self._connection is not None
        assert self._finished is not None
        frames, reader = FrameReader(), watch(self._connection.fileno())
        try:
            while chunk := await reader.read():
                for kind, payload in frames.feed(chunk):
                    if kind == FrameKind.DATA:
                        yield payload
                    elif kind == FrameKind.STDERR:
                        self._report(payload.decode(errors="replace"))
                    elif kind == FrameKind.ENDED:
                        self._exit_code = int(payload)
        finally:
            reader.close()
            notify_closing(self._connection)
            self._connection.close()
            self._finished.set()

    def _report(self, line: str) -> None:
        self._stderr = f"{self._stderr}{line}\n"[-STDERR_CHARS:]
        try:
            self._on_stderr(line)
        except Exception:
            log.exception("the stderr callback raised an exception")

    # Writing.

    def write(self, data: bytes) -> None:
        self._write(FrameKind.DATA, data)

    def _write(self, kind: FrameKind, payload: bytes = b"") -> None:
        if self._writer is None or self._connection is None or self._connection.fileno() < 0:
            raise CLIConnectionError(NOT_READ)
        self._writer.write(encode_frame(kind, payload))

    async def flush(self) -> None:
        """A worker that dies is seen by the reader."""
        if self._writer is not None:
            await self._writer.wait()

    async def end_input(self) -> None:
        with suppress(CLIConnectionError):
            self._write(FrameKind.END_INPUT)
            await self.flush()

    # Ending.

    async def ended(self) -> Ended:
        """How the engine exited, after its last chunk."""
        if self._exit_code is None and self._connection is not None and not self._is_abandoned:
            self._exit_code = await self.find_exit_code()
        self._release()
        return self._end()

    async def close(self, busy: bool) -> Ended:
        from anyio import CancelScope, move_on_after

        if self._finished is None or self._connection is None:
            return Ended()
        try:
            with CancelScope(shield=True):
                for stops in (busy, True):
                    with suppress(CLIConnectionError):
                        if stops:
                            self._write(FrameKind.STOP)
                        self._write(FrameKind.END_INPUT)
                    with move_on_after(STOP_SECONDS):
                        await self._finished.wait()
                        break
        except BaseException:
            # The shield does not stop asyncio's own cancellation.
            self.abandon()
            raise
        self.abandon()
        return self._end()

    def abandon(self) -> None:
        self._is_abandoned = True
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # the worker ends the session, and our reader ends
        self._release()

    def _release(self) -> None:
        if self._connection is not None and self._is_released.acquire(blocking=False):
            self.release()
            self._cleanup()

    def _end(self) -> Ended:
        return Ended(self._exit_code, self._stderr.strip(), self._argv)
