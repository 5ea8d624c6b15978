"""`parley serve`, `console` and `workspace`: servers for sessions, for a browser, and for files and commands.

With --nats, `parley serve` is a gateway of a cluster, without sessions and files of its own (`read_cluster`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from parley.cli.commands.catalog import FLAG_GROUPS
from parley.cli.commands.subcommand import GivenArgs
from parley.cli.process_secrets import erase
from parley.cli.signals import run_until_signal
from parley.cli.stdio import warn
from parley.cluster.base import Cluster
from parley.cluster.cluster_secret import SECRET_VARIABLE, read_cluster_secret
from parley.cluster.subjects import DEFAULT_PREFIX
from parley.compose.launch_context import LaunchContext
from parley.compose.remote import serve_workspace
from parley.errors import InvalidArguments, UsageError
from parley.gateway.questions import NotifySettings
from parley.gateway.wire_log import WIRE_BYTES
from parley.settings.env_vars import child_environment
from parley.settings.secret_variables import KEYS
from parley.workspace import private_files
from parley.workspace.process.tree import hide_memory
from parley.workspace.remote.address import WorkspaceAddress
from parley.workspace.remote.wire import read_token_file

if TYPE_CHECKING:
    from parley.gateway.hub import HubSettings, SessionHub
    from parley.gateway.reporting import ServerLog
    from parley.gateway.server import ServerSettings


DEFAULT_ADDRESS = "127.0.0.1:8787"
OF_HOSTS = (
    "root",
    "state",
    "isolation",
    "idle-seconds",
    "question-seconds",
    "drain-seconds",
    "no-wire-log",
    "notify-url",
    "notify-secret-file",
    "notify-command",
)
"""Options that concern sessions. In a cluster, hosts run them."""
NATS_VARIABLE = "PARLEY_NATS"
CREDENTIALS_VARIABLE = "PARLEY_NATS_CREDENTIALS"
CONSOLE_ADDRESS = "127.0.0.1:0"
DEMO_IDLE_SECONDS = 7 * 86_400
"""The scripts of the demo begin again when a session is loaded again."""
WORKSPACE_ADDRESS = "127.0.0.1:7300"


def serve(given: GivenArgs) -> int:
    """Raises UsageError or SessionError."""
    check_flags(given)
    from parley.gateway.hub import HubSettings
    from parley.gateway.server import ListenAddress, ServerSettings, check_prefix, run_server

    is_cluster = given.has("nats")
    # A gateway of a cluster has neither sessions nor files.
    hub = HubSettings(state=Path(), root="") if is_cluster else read_hub_settings(given, "gateway")
    settings = ServerSettings(
        hub=hub,
        address=ListenAddress.parse(given.one("listen", DEFAULT_ADDRESS)),
        token_file=given.one("token-file"),
        origins=frozenset(given.all("allow-origin")),
        hosts=frozenset(given.all("allow-host")),
        drain_seconds=given.number("drain-seconds", 30),
        certificate=given.one("tls-cert"),
        key=given.one("tls-key"),
        notify=read_notify(given, dict(hub.environment)),
        config=given.one("config"),
        ping_seconds=given.number("ping-seconds", 20),
        proxies=tuple(given.all("trust-proxy")),
        path_prefix=check_prefix(given.one("path-prefix")),
        health=ListenAddress.parse(given.one("health"), "--health") if given.has("health") else None,
    )
    if settings.key and not settings.certificate:
        raise InvalidArguments("option '--tls-key' needs '--tls-cert'")
    return serve_nats(given, settings) if is_cluster else run_server(settings, open_log(given))


def open_log(given: GivenArgs) -> ServerLog:
    from parley.gateway.reporting import FaultLog, ServerLog

    log = ServerLog(warn, is_json=given.one("log-format") == "json")
    if log.is_json:
        logging.getLogger().addHandler(FaultLog(log))
    return log


def read_hub_settings(given: GivenArgs, folder: str) -> HubSettings:
    """`folder`: where the files of the server are by default, in the config folder. Raises UsageError."""
    from parley.gateway.hub import HubSettings

    erase()  # commands of sessions could read /proc/PID/environ
    for name in KEYS["cluster"]:
        os.environ.pop(name, None)  # read before; no engine needs it
    environment = dict(os.environ)
    root = os.path.abspath(given.one("root", "."))
    if not os.path.isdir(root):
        raise InvalidArguments(f"option '--root': there is no directory {root}")
    state = given.one("state") or str(LaunchContext(given.options, environment, root).config / folder)
    return HubSettings(
        state=Path(state).absolute(),
        root=root,
        argv=given.option_words,
        environment=environment,
        isolation=given.one("isolation", "task"),
        idle_seconds=given.number("idle-seconds", 300),
        question_seconds=given.number("question-seconds", 0) if given.has("question-seconds") else None,
        wire_bytes=0 if given.has("no-wire-log") else WIRE_BYTES,
    )


def read_notify(given: GivenArgs, environment: dict[str, str]) -> NotifySettings:
    """Raises UsageError."""
    url, path = given.one("notify-url"), given.one("notify-secret-file")
    if url and not url.startswith(("http://", "https://")):
        raise InvalidArguments(f"option '--notify-url' needs an http or https URL, not {url!r}")
    if bool(url) != bool(path):
        raise InvalidArguments("options '--notify-url' and '--notify-secret-file' must be used together")
    secret = b""
    if path:
        try:
            secret = Path(path).read_bytes().strip()
        except OSError as exc:
            raise UsageError(f"option '--notify-secret-file': cannot read {path}: {exc.strerror}") from None
        if len(secret) < 16:
            raise UsageError(f"option '--notify-secret-file': the secret in {path} must have at least 16 characters")
    return NotifySettings(url, secret, given.one("notify-command"), child_environment(environment))


def check_flags(given: GivenArgs) -> None:
    """Raises InvalidArguments if options are given that do not fit together."""
    if given.has("nats"):
        for name in OF_HOSTS:
            if given.has(name):
                raise InvalidArguments(f"option '--{name}' cannot be used with '--nats': give it to `parley host`")
        if given.option_words:
            raise InvalidArguments(
                f"{given.option_words[0]!r} cannot be used with '--nats': give session options to `parley host`"
            )
        return
    for flag in (*FLAG_GROUPS["operator"], *FLAG_GROUPS["cluster"]):
        if given.has(flag.key):
            raise InvalidArguments(f"option '--{flag.key}' needs '--nats'")


def serve_nats(given: GivenArgs, settings: ServerSettings) -> int:
    """Raises UsageError, ClusterError."""
    from parley.cluster.gateway.app import run_cluster_gateway

    prefix, connect = read_cluster(given)
    erase()
    return run_cluster_gateway(connect, prefix, settings, open_log(given))


def read_cluster(
    given: GivenArgs, *, is_host: bool = False, is_operator: bool = False
) -> tuple[str, Callable[[], Awaitable[Cluster]]]:
    """The name of the cluster, and how to connect to it. Raises InvalidArguments."""
    from parley.cluster.join import Wanted, join_cluster
    from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions

    url = given.one("nats") or os.environ.get(NATS_VARIABLE, "")
    if not url:
        raise InvalidArguments(f"option '--nats' or the variable {NATS_VARIABLE} must name the NATS servers")
    address = NatsAddress(
        url=url,
        credentials_file=Path(given.one("nats-credentials")) if given.one("nats-credentials") else None,
        credentials=os.environ.get(CREDENTIALS_VARIABLE, ""),
        ca_file=Path(given.one("nats-ca")) if given.one("nats-ca") else None,
    )
    options = NatsClusterOptions(
        prefix=given.one("prefix", DEFAULT_PREFIX),
        replicas=given.number("replicas", 1),
        durability=DurabilityOptions(
            # Only hosts write.
            accept_loss=given.has("accept-loss") or not is_host,
            states_sync_always=given.has("sync-always"),
            monitors=given.all("nats-monitor"),
        ),
        log_address=read_log_address(given.one("log")),
    )
    wanted = Wanted(
        shards=given.number("shards", 0) or None,
        lease_seconds=float(given.number("ttl", 0)) or None,
        is_operator=is_operator,
        is_new_secret=given.has("new-secret"),
    )
    secret = read_cluster_secret(given.one("cluster-secret"), os.environ.get(SECRET_VARIABLE, ""))
    return options.prefix, lambda: join_cluster(address, options, wanted, secret, is_host=is_host)


def read_log_address(given: str) -> str | None:
    """The address of a database; None for NATS. Raises InvalidArguments."""
    if given and not given.startswith(("postgres:", "postgresql://")):
        raise InvalidArguments(f"option '--log' needs postgres:DSN, not {given.partition(':')[0]!r}")
    is_url = given.startswith(("postgres://", "postgresql://"))
    return (given if is_url else given.removeprefix("postgres:")) or None


def open_console(given: GivenArgs) -> int:
    """Raises UsageError or SessionError."""
    from parley.gateway.reporting import ServerLog
    from parley.gateway.server import ListenAddress, ServerSettings, run_server

    address = ListenAddress.parse(given.one("listen", CONSOLE_ADDRESS))
    if address.path:
        raise InvalidArguments("option '--listen' needs HOST:PORT: a browser cannot open a Unix socket")
    token = secrets.token_urlsafe(32)
    seeding: list[asyncio.Task[None]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="parley-demo-"))) if given.has("demo") else None
        settings = ServerSettings(
            hub=read_console_settings(given, folder), address=address, token=token, drain_seconds=0 if folder else 30
        )

        def on_ready(hub: SessionHub, url: str) -> None:
            link = f"{url}/console/#token={token}"
            warn(f"console on {link}")
            if folder is not None:
                from parley.gateway.demo.seed import seed

                seeding.append(asyncio.get_running_loop().create_task(seed(hub)))
                seeding[0].add_done_callback(report_failure)
            if not given.has("no-browser"):
                open_browser(write_page(stack, link))

        return run_server(settings, ServerLog(warn), on_ready)


def report_failure(seeding: asyncio.Task[None]) -> None:
    if not seeding.cancelled() and seeding.exception() is not None:
        warn(f"the demo is not complete: {seeding.exception()!r}")


def read_console_settings(given: GivenArgs, demo: Path | None) -> HubSettings:
    """`demo`: the folder of the demo. Raises UsageError."""
    settings = read_hub_settings(given, "console")
    if demo is None:
        return msgspec.structs.replace(settings, shows_stored=True)
    from parley.gateway.demo.seed import prepare_folder

    return msgspec.structs.replace(
        settings,
        state=demo / "state",
        root=str(demo / "shop"),
        argv=("--model", "offline", *settings.argv),
        environment={**settings.environment, **prepare_folder(demo)},
        idle_seconds=DEMO_IDLE_SECONDS,
    )


def write_page(stack: ExitStack, link: str) -> str:
    """The address of a page that leads to the link, and that only this user can read.

    The link contains the token, and every local user can see the arguments of a browser.
    """
    folder = stack.enter_context(TemporaryDirectory(prefix="parley-console-"))  # its mode is 0700
    page = Path(folder, "open.html")
    text = f'<!doctype html><meta http-equiv="refresh" content="0; url={link}"><title>Parley</title>'
    private_files.write(page, text.encode())
    return page.as_uri()


def open_browser(link: str) -> None:
    """Open a browser with a window; one in the terminal would take it over."""
    has_screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_screen:
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()


def serve_files(given: GivenArgs) -> int:
    """Raises UsageError."""
    environment = dict(os.environ)
    erase()  # commands of sessions could read /proc/PID/environ
    address = WorkspaceAddress.parse(given.one("listen", WORKSPACE_ADDRESS))
    certificate, key = given.one("tls-cert"), given.one("tls-key")
    if key and not certificate:
        raise InvalidArguments("option '--tls-key' needs '--tls-cert'")
    if not given.has("token-file"):
        raise InvalidArguments("option '--token-file' is required: the file that contains the token")
    if not certificate and not address.is_private and not given.has("insecure"):
        raise InvalidArguments(
            f"{address} is not a loopback address, and without --tls-cert others on the network can read and change "
            "what is sent; use --tls-cert, or --insecure on a network that only you use"
        )
    token = read_token_file(given.one("token-file"))
    hide_memory()  # it has the token
    root = os.path.abspath(given.one("root", "."))
    state = Path(given.one("state")).absolute() if given.has("state") else None

    async def run() -> None:
        server = await serve_workspace(
            address,
            root,
            token,
            environment,
            state=state,
            certificate=(certificate, key or certificate) if certificate else None,
            grace_seconds=given.number("grace-seconds", 30),
            log=warn,
        )
        warn(f"listening on {server.address}, serving {root}")
        await run_until_signal(asyncio.Event().wait())
        await server.close()

    asyncio.run(run())
    return 0
