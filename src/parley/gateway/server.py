"""Run the gateway: listen, serve, drain.

`listening on http://HOST:PORT` is written to stderr when the server is ready. At SIGTERM or SIGINT it takes no new
turns, lets running ones finish, and ends. A second signal ends it at once. At SIGHUP it reads its configuration, the
token file and the certificate again.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from starlette.types import ASGIApp

from parley.errors import UsageError
from parley.gateway.http.app import Api, route
from parley.gateway.http.auth import LOOPBACK, Gate
from parley.gateway.http.connections import limit_connections
from parley.gateway.http.frames import TOKEN_BYTES
from parley.gateway.http.replies import PREFIX_PATH, PathPrefix
from parley.gateway.hub import HubSettings, SessionHub
from parley.gateway.questions import Notifier, NotifySettings
from parley.gateway.reporting import Metrics, ServerLog, health_checks
from parley.gateway.security.tokens import ServerTokens, read_existing, read_token_file
from parley.gateway.server_config import ServerConfig, read_config
from parley.gateway.stored_sessions import StoredSessions
from parley.protocol.base import Struct

UPKEEP_SECONDS = 1.0
LAG_SECONDS = 0.02
"""How often the lag of the event loop is measured."""
CLOSE_SECONDS = 5
BACKLOG = 1024
OWN_ADDRESSES = ("127.0.0.1", "::1")
LOST_PEERS = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
"""A peer that acknowledges nothing for a minute is gone."""
GC_THRESHOLD = (10_000, 50, 100)
"""With the default, a full collection stops all sessions for up to half a second."""


class ListenAddress(Struct, frozen=True):
    """Where to listen: a host and a port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str, option: str = "--listen") -> ListenAddress:
        """Raises UsageError."""
        if text.startswith("unix:"):
            return cls(path=os.path.abspath(text.removeprefix("unix:")))
        host, colon, port = text.rpartition(":")
        host = host.strip("[]")
        if not colon or not host or not port.isdecimal() or int(port) > 65_535:
            raise UsageError(f"option '{option}' needs HOST:PORT or unix:PATH, not {text!r}")
        return cls(host=host, port=int(port))


class ServerSettings(Struct, frozen=True, kw_only=True):
    hub: HubSettings
    address: ListenAddress
    token: str = ""
    """The token of the administrator, instead of a file."""
    token_file: str = ""
    origins: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    drain_seconds: float = 30
    certificate: str = ""
    key: str = ""
    notify: NotifySettings = NotifySettings()
    config: str = ""
    """The file with what SIGHUP changes; empty for none."""
    ping_seconds: float = 20
    """How often a WebSocket is pinged, and how long it may take to answer."""
    proxies: tuple[str, ...] = ()
    """The addresses whose X-Forwarded headers are believed; empty for this machine."""
    path_prefix: str = ""
    """The path before ours in URLs, behind a proxy that serves something else, too."""
    health: ListenAddress | None = None
    """Where to answer health checks besides the other requests; None for nowhere."""


Serve = Callable[[socket.socket, str | None], Coroutine[Any, Any, None]]
"""Serves at a socket, with the token of the administrator, until a signal."""


def run_server(
    settings: ServerSettings, log: ServerLog, on_ready: Callable[[SessionHub, str], None] = lambda hub, url: None
) -> int:
    """Serve the sessions of this machine until a signal; returns the exit code. Raises UsageError.

    `on_ready` is called with the URL when the server listens.
    """
    return listen_and_serve(
        settings, log, lambda listener, token: serve(settings, listener, token, log, on_ready), prepare
    )


def listen_and_serve(settings: ServerSettings, log: ServerLog, run: Serve, prepare: Callable[[], None]) -> int:
    """Serve until a signal; returns the exit code. Raises UsageError."""
    token = find_token(settings, log)
    read_config(settings.config)
    check_certificate(settings)
    listener = listen(settings.address)
    raise_file_limit()
    prepare()
    try:
        uvloop.run(run(listener, token))
    finally:
        listener.close()
        if settings.address.path:
            Path(settings.address.path).unlink(missing_ok=True)
    return 0


def prepare() -> None:
    """Load what sessions need now, so that the first ones do not hold up the others."""
    import parley.compose.composer
    import parley.engine.session.pump  # noqa: F401
    from parley.compose.preload import preload_served

    preload_served()
    collect_less()


def collect_less() -> None:
    """Collect garbage less often, and never look at what is there now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)


def raise_file_limit() -> None:
    """Every connection is an open file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check_certificate(settings: ServerSettings) -> None:
    """Raises UsageError."""
    if settings.certificate:
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), settings)


def load_certificate(context: ssl.SSLContext, settings: ServerSettings) -> None:
    """Raises UsageError."""
    try:
        context.load_cert_chain(settings.certificate, settings.key or None, password=refuse_password)
    except (OSError, ValueError) as exc:  # an SSLError is an OSError
        raise UsageError(f"cannot load the certificate {settings.certificate}: {exc}") from None


def refuse_password() -> str:
    raise ValueError("its key needs a password, which the server does not ask for")


def find_token(settings: ServerSettings, log: ServerLog) -> str | None:
    """The token of the administrator; None on a Unix socket without a token file. Raises UsageError."""
    if settings.token:
        return settings.token
    if not settings.token_file:
        if settings.address.path:
            return None
        raise UsageError("option '--token-file' is required unless --listen names a Unix socket (unix:PATH)")
    token, is_new = read_token_file(settings.token_file)
    if is_new:
        # JSON lines are kept, so they name the file only.
        shown = "" if log.is_json else f" with the token {token}"
        log.say(f"created the token file {settings.token_file}{shown}", "token")
    return token


def listen(address: ListenAddress) -> socket.socket:
    """Raises UsageError."""
    try:
        if address.path:
            return listen_unix(address.path)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        notice_lost_peers(listener)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as exc:
        raise UsageError(
            f"cannot listen on {address.path or f'{address.host}:{address.port}'}: {exc.strerror}"
        ) from None
    return listener


def notice_lost_peers(listener: socket.socket) -> None:
    """End connections whose other end is gone without a word. The accepted sockets inherit the options."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in LOST_PEERS.items():
        if (option := getattr(socket, name, None)) is not None:  # macOS does not have all of them
            listener.setsockopt(socket.IPPROTO_TCP, option, value)


def listen_unix(path: str) -> socket.socket:
    """A socket that only its owner can connect to."""
    with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if stat.S_ISSOCK(os.lstat(path).st_mode) and probe.connect_ex(path) != 0:
            os.unlink(path)  # a server that was killed left it
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o077)
    try:
        listener.bind(path)
    finally:
        os.umask(mask)
    listener.listen(BACKLOG)
    return listener


class GatewayServer:
    """The listening part of a gateway: it lets clients in and follows its configuration."""

    def __init__(self, settings: ServerSettings, gate: Gate, app: ASGIApp, log: ServerLog) -> None:
        """Raises UsageError."""
        self._settings = settings
        self._gate = gate
        self._log = log
        apply_config(gate, settings)
        self._config = make_config(settings, gate, app)
        self._server = QuietServer(self._config)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, listener: socket.socket) -> str:
        """Listen; returns the address."""
        self._tasks = [
            asyncio.create_task(self._server.serve(sockets=[listener])),
            asyncio.create_task(keep_up(self._gate.end_invalid, "end the connections of expired tokens", self._log)),
        ]
        address = describe(self._settings, listener)
        self._log.say(f"listening on {address}", "listening", address=address)
        return address

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until it is to stop, or the server has ended by itself."""
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([self._tasks[0], waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    def reload(self) -> None:
        try:
            reload_settings(self._settings, self._gate, self._config.ssl)
        except UsageError as exc:
            self._log.say(f"nothing was reloaded: {exc}", "reload", level="error")
        else:
            self._log.say("reloaded", "reload")

    async def stop(self) -> None:
        self._server.should_exit = True
        serving, upkeep = self._tasks
        upkeep.cancel()
        await asyncio.wait([upkeep])
        await serving


async def serve(
    settings: ServerSettings,
    listener: socket.socket,
    token: str | None,
    log: ServerLog,
    on_ready: Callable[[SessionHub, str], None],
) -> None:
    hub = SessionHub(settings.hub, log)
    tokens = ServerTokens(settings.hub.state / "tokens.db", token)
    hub.find_quotas = tokens.find_quotas
    hub.find_roots = tokens.find_roots
    gate = Gate(tokens, is_open=token is None, connections=hub.connections)
    server = GatewayServer(settings, gate, Api(gate, hub).app(route), log)
    stop = asyncio.Event()
    watch_signals(stop, server.reload)
    hub.catch_up(log.warn)
    hub.load_interrupted(log.warn)
    stored = [keep_up(StoredSessions(hub).follow, "read stored sessions", log)] if settings.hub.shows_stored else []
    upkeep = asyncio.gather(
        *stored,
        keep_up(hub.evict_idle, "unload idle sessions", log),
        keep_up(hub.expire_questions, "expire questions", log),
        measure_lag(hub.metrics),
        notify(settings.notify, hub, log),
    )
    async with answer_probes(settings, lambda: not hub.is_draining):
        on_ready(hub, await server.start(listener))
        await server.wait(stop)
        upkeep.cancel()
        with suppress(asyncio.CancelledError):
            await upkeep
        log.note("draining", seconds=settings.drain_seconds)
        await hub.drain(settings.drain_seconds)
        await server.stop()
    hub.close()
    await tokens.close()
    log.note("stopped")


def answer_probes(settings: ServerSettings, is_ready: Callable[[], bool]) -> AbstractAsyncContextManager[None]:
    """Answer health checks at the address of `--health`. Raises UsageError."""
    if settings.health is None:
        return nullcontext()
    if settings.health.path:
        raise UsageError("option '--health' needs HOST:PORT, not a Unix socket")
    return health_checks(settings.health.host, settings.health.port, is_ready)


def check_prefix(given: str) -> str:
    """The path of `--path-prefix`. Raises UsageError."""
    prefix = given.rstrip("/")
    if not PREFIX_PATH.fullmatch(prefix):
        raise UsageError(f"option '--path-prefix' needs a path such as /parley, not {given!r}")
    return prefix


def make_config(settings: ServerSettings, gate: Gate, app: ASGIApp) -> uvicorn.Config:
    http, sockets = limit_connections(gate)
    return uvicorn.Config(
        PathPrefix(app, settings.path_prefix),
        http=http,
        ws=sockets,
        ws_per_message_deflate=False,  # a compressed frame would be another one for every viewer
        ws_max_size=TOKEN_BYTES,
        ws_ping_interval=settings.ping_seconds,
        ws_ping_timeout=settings.ping_seconds,
        forwarded_allow_ips=list(settings.proxies or OWN_ADDRESSES),
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        ssl_certfile=settings.certificate or None,
        ssl_keyfile=settings.key or None,
        lifespan="off",
    )


class QuietServer(uvicorn.Server):
    """Leaves signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def reload_settings(settings: ServerSettings, gate: Gate, context: ssl.SSLContext | None) -> None:
    """Read the configuration, the token file and the certificate again: all of them, or none. Raises UsageError."""
    config = read_config(settings.config)
    token = read_existing(settings.token_file) if settings.token_file else settings.token or None
    check_certificate(settings)
    if context is not None:
        load_certificate(context, settings)  # for the connections that are made from now on
    apply_config(gate, settings, config)
    gate.tokens.set_bootstrap(token)
    gate.connections.end_invalid()


def apply_config(gate: Gate, settings: ServerSettings, config: ServerConfig | None = None) -> None:
    """Let the gate follow the configuration. Raises UsageError."""
    config = config or read_config(settings.config)
    gate.origins = settings.origins | frozenset(config.allow_origin)
    gate.hosts = known_hosts(settings.address, settings.hosts | frozenset(config.allow_host))
    gate.limits = config.limits


def known_hosts(address: ListenAddress, named: frozenset[str]) -> frozenset[str] | None:
    """The host names that the server answers to. On other addresses than loopback, names are the operator's choice."""
    if address.path or (address.host not in LOOPBACK and not named):
        return None
    return LOOPBACK | {address.host} | named


def describe(settings: ServerSettings, listener: socket.socket) -> str:
    if settings.address.path:
        return f"unix:{settings.address.path}"
    scheme = "https" if settings.certificate else "http"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def watch_signals(stop: asyncio.Event, reload: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    loop.add_signal_handler(signal.SIGHUP, reload)


async def notify(settings: NotifySettings, hub: SessionHub, log: ServerLog) -> None:
    """Tell other systems about questions, if they want to know."""
    if settings.url or settings.command:
        notifier = Notifier(settings, log.warn)
        hub.questions.listeners.append(notifier.on_question)
        await notifier.run()


async def measure_lag(metrics: Metrics) -> None:
    """Measure how late the loop runs what is due."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_SECONDS
        await asyncio.sleep(LAG_SECONDS)
        metrics.record_lag(loop.time() - due)


async def keep_up(act: Callable[[], Awaitable[None]], what: str, log: ServerLog) -> None:
    """Do something again and again, whatever happens."""
    while True:
        await asyncio.sleep(UPKEEP_SECONDS)
        try:
            await act()
        except Exception as exc:
            log.warn(f"cannot {what}: {type(exc).__name__}: {exc}")
