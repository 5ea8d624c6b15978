"""Run the gateway: listen, serve, drain.

`listening on http://HOST:PORT` is written to stderr when the server is ready. At SIGTERM or SIGINT it takes no new
turns, lets running ones finish, and ends. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn

from parley.errors import UsageError
from parley.gateway.http.auth import LOOPBACK, Gate
from parley.gateway.http.frames import FrameSocket
from parley.gateway.http.routes import Routes
from parley.gateway.hub import HubSettings, SessionHub
from parley.gateway.metrics import Metrics
from parley.gateway.notifications import Notifier, NotifySettings
from parley.gateway.tokens import Tokens, read_token_file
from parley.protocol.base import Struct

FRAME_BYTES = 64 * 1024 * 1024
"""The longest frame of a WebSocket."""
UPKEEP_SECONDS = 1.0
LAG_SECONDS = 0.02
"""How often the lag of the event loop is measured."""
CLOSE_SECONDS = 5
BACKLOG = 1024
GC_THRESHOLD = (10_000, 50, 100)
"""With the default, a full collection stops all sessions for up to half a second."""


class Address(Struct, frozen=True):
    """Where to listen: a host and a port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises UsageError."""
        if text.startswith("unix:"):
            return cls(path=os.path.abspath(text.removeprefix("unix:")))
        host, colon, port = text.rpartition(":")
        host = host.strip("[]")
        if not colon or not host or not port.isdecimal() or int(port) > 65_535:
            raise UsageError(f"option '--listen' needs HOST:PORT or unix:PATH, not {text!r}")
        return cls(host=host, port=int(port))


class ServerSettings(Struct, frozen=True, kw_only=True):
    hub: HubSettings
    address: Address
    token_file: str = ""
    origins: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    drain_seconds: float = 30
    certificate: str = ""
    key: str = ""
    notify: NotifySettings = NotifySettings()


def run_server(settings: ServerSettings, report: Callable[[str], None]) -> int:
    """Serve until a signal; returns the exit code. `report` gets the lines for stderr. Raises UsageError."""
    import uvloop

    token = find_token(settings, report)
    listener = listen(settings.address)
    prepare()
    try:
        uvloop.run(serve(settings, listener, token, report))
    finally:
        listener.close()
        if settings.address.path:
            Path(settings.address.path).unlink(missing_ok=True)
    return 0


def prepare() -> None:
    """Load what sessions need now, so that the first ones do not hold up the others, and collect garbage less often."""
    import parley.compose.composer
    import parley.engine.session.pump  # noqa: F401
    from parley.compose.preload import preload

    preload()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)


def find_token(settings: ServerSettings, report: Callable[[str], None]) -> str | None:
    """The token of the administrator; None on a Unix socket without a token file. Raises UsageError."""
    if not settings.token_file:
        if settings.address.path:
            return None
        raise UsageError("option '--token-file' is required unless --listen names a Unix socket (unix:PATH)")
    token, is_new = read_token_file(settings.token_file)
    if is_new:
        report(f"created the token file {settings.token_file} with the token {token}")
    return token


def listen(address: Address) -> socket.socket:
    """Raises UsageError."""
    try:
        if address.path:
            return listen_unix(address.path)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as exc:
        raise UsageError(
            f"cannot listen on {address.path or f'{address.host}:{address.port}'}: {exc.strerror}"
        ) from None
    return listener


def listen_unix(path: str) -> socket.socket:
    """A socket that only its owner can connect to."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode) and not is_served(path):
            os.unlink(path)  # a server that was killed left it
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o077)
    try:
        listener.bind(path)
    finally:
        os.umask(mask)
    listener.listen(BACKLOG)
    return listener


def is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) == 0


async def serve(
    settings: ServerSettings, listener: socket.socket, token: str | None, report: Callable[[str], None]
) -> None:
    hub = SessionHub(settings.hub)
    tokens = Tokens(hub.database, token)
    hub.find_quotas = tokens.find_quotas
    gate = Gate(tokens, is_open=token is None, hosts=known_hosts(settings), origins=settings.origins)
    config = uvicorn.Config(
        Routes(gate, hub).app(),
        ws=FrameSocket,
        ws_per_message_deflate=False,  # a compressed frame would be another one for every viewer
        ws_max_size=FRAME_BYTES,
        ws_ping_interval=20,
        ws_ping_timeout=20,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        ssl_certfile=settings.certificate or None,
        ssl_keyfile=settings.key or None,
        lifespan="off",
    )
    server = QuietServer(config)
    stop = asyncio.Event()
    watch_signals(stop)
    hub.load_interrupted()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    upkeep = asyncio.gather(keep_up(hub, report), measure_lag(hub.metrics), notify(settings.notify, hub, report))
    report(f"listening on {describe(settings, listener)}")
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    upkeep.cancel()
    await hub.drain(settings.drain_seconds)
    server.should_exit = True
    await serving
    hub.close()


class QuietServer(uvicorn.Server):
    """Leaves signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def known_hosts(settings: ServerSettings) -> frozenset[str] | None:
    """The host names that the server answers to. On other addresses than loopback, names are the operator's choice."""
    host = settings.address.host
    if settings.address.path or (host not in LOOPBACK and not settings.hosts):
        return None
    return LOOPBACK | {host} | settings.hosts


def describe(settings: ServerSettings, listener: socket.socket) -> str:
    if settings.address.path:
        return f"unix:{settings.address.path}"
    scheme = "https" if settings.certificate else "http"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def watch_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


async def notify(settings: NotifySettings, hub: SessionHub, report: Callable[[str], None]) -> None:
    """Tell other systems about questions, if they want to know."""
    if settings.url or settings.command:
        notifier = Notifier(settings, report)
        hub.questions.listeners.append(notifier.on_question)
        await notifier.run()


async def measure_lag(metrics: Metrics) -> None:
    """Measure how late the loop runs what is due."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_SECONDS
        await asyncio.sleep(LAG_SECONDS)
        metrics.record_lag(loop.time() - due)


async def keep_up(hub: SessionHub, report: Callable[[str], None]) -> None:
    """Evict idle sessions and expire questions."""
    while True:
        await asyncio.sleep(UPKEEP_SECONDS)
        try:
            hub.expire_questions()
            await hub.evict_idle()
        except Exception as exc:
            report(f"cannot unload idle sessions or expire questions: {type(exc).__name__}: {exc}")
