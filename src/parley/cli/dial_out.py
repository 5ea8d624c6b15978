"""`--sdk-url`: dial out to a WebSocket server and speak with it instead of on stdin and stdout.

    with dialed_out("wss://host/path"):
        ...                             # descriptors 0 and 1 lead to the server

Frames carry lines, each with its line end, in both directions. The end of the socket is the end of the input. Two
threads relay between the socket and two pipes in the place of stdin and stdout, so that everything that reads and
writes these, also before a session is opened, works as with a client on pipes.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from parley.cli.stdio import CHUNK_BYTES, write
from parley.errors import SessionError, UsageError
from parley.version import how_to_install

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

TOKEN_VARIABLE = "CLAUDE_CODE_SESSION_ACCESS_TOKEN"
"""Sent to the server as a bearer token."""
CONNECT_SECONDS = 10
FLUSH_SECONDS = 10
"""How long the last lines may take."""


@contextmanager
def dialed_out(url: str) -> Iterator[None]:
    """Raises UsageError, or SessionError if the server cannot be reached."""
    # Threads inherit the mask: a signal must interrupt the main thread, which waits for the loop.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        socket = connect(url)
        engine_input, server_output = os.pipe()
        server_input, engine_output = os.pipe()
        os.dup2(engine_input, 0)
        os.dup2(engine_output, 1)
        os.close(engine_input)
        os.close(engine_output)
        writer = threading.Thread(target=send_lines, args=(socket, server_input), daemon=True)
        threading.Thread(target=receive_lines, args=(socket, server_output), daemon=True).start()
        writer.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        yield
    finally:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        writer.join(FLUSH_SECONDS)


def connect(url: str) -> ClientConnection:
    """Raises UsageError, SessionError."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("ws", "wss") and bool(parts.hostname)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise UsageError(f"option '--sdk-url' needs the URL of a WebSocket (ws:// or wss://), not {url!r}")
    try:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    except ModuleNotFoundError as exc:
        raise UsageError(f"option '--sdk-url' needs {exc.name}: {how_to_install('remote')}") from None
    token = os.environ.get(TOKEN_VARIABLE)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return connect(url, additional_headers=headers, max_size=None, open_timeout=CONNECT_SECONDS)
    except (OSError, ValueError, WebSocketException) as exc:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # the rest may be secret
        raise SessionError(f"cannot connect to {shown}: {exc}") from None


def receive_lines(socket: ClientConnection, output: int) -> None:
    """Pass what the server sends to the engine, until either is gone."""
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed):
        for frame in socket:
            line = frame.encode() if isinstance(frame, str) else frame
            write(line if line.endswith(b"\n") else line + b"\n", output)
    os.close(output)


def send_lines(socket: ClientConnection, source: int) -> None:
    """Pass what the engine writes to the server, one line per frame. After the server is gone, it is dropped."""
    from websockets.exceptions import ConnectionClosed

    is_open, rest = True, b""
    while chunk := os.read(source, CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        try:
            for line in lines if is_open else ():
                socket.send(line.decode() + "\n")
        except ConnectionClosed:
            is_open = False
    with suppress(ConnectionClosed):
        socket.close()
