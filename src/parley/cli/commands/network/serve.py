"""`parley serve`: sessions over HTTP and WebSocket."""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.network.serve_nats import check_flags, serve_nats
from parley.cli.commands.subcommand import GivenArgs, parse_number, run_command
from parley.cli.process_secrets import erase
from parley.cli.stdio import warn
from parley.compose.launch_context import LaunchContext
from parley.errors import InvalidArguments, UsageError
from parley.settings.env_vars import child_environment
from parley.settings.secret_variables import KEYS

if TYPE_CHECKING:
    from parley.gateway.hub import HubSettings
    from parley.gateway.questions import NotifySettings

DEFAULT_ADDRESS = "127.0.0.1:8787"


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["serve"], argv, {"": serve})


def serve(given: GivenArgs) -> int:
    """Raises UsageError or SessionError."""
    require_server("serve")
    check_flags(given)
    from parley.gateway.hub import HubSettings
    from parley.gateway.reporting import FaultLog, ServerLog
    from parley.gateway.server import Address, ServerSettings, check_prefix, run_server

    is_cluster = given.has("nats")
    # A gateway of a cluster has neither sessions nor files.
    hub = HubSettings(state=Path(), root="") if is_cluster else read_hub_settings(given, "gateway")
    settings = ServerSettings(
        hub=hub,
        address=Address.parse(given.one("listen", DEFAULT_ADDRESS)),
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
        health=Address.parse(given.one("health"), "--health") if given.has("health") else None,
    )
    if settings.key and not settings.certificate:
        raise InvalidArguments("option '--tls-key' needs '--tls-cert'")
    log = ServerLog(warn, is_json=given.one("log-format") == "json")
    if log.is_json:
        logging.getLogger().addHandler(FaultLog(log))
    return serve_nats(given, settings, log) if is_cluster else run_server(settings, log)


def require_server(command: str) -> None:
    """Raises UsageError if the packages of the server are not installed."""
    try:
        import parley.gateway.server  # noqa: F401
    except ModuleNotFoundError as exc:
        raise UsageError(
            f"`parley {command}` needs {exc.name}, which is not installed; run: pip install 'parley-agent[gateway]'"
        ) from None


def read_hub_settings(given: GivenArgs, folder: str) -> HubSettings:
    """`folder`: where the files of the server are by default, in the config folder. Raises UsageError."""
    from parley.gateway.hub import HubSettings
    from parley.gateway.wire_log import WIRE_BYTES

    gc.enable()  # main() disabled it, but a server runs for long
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
        question_seconds=parse_number("--question-seconds", given.one("question-seconds"))
        if given.has("question-seconds")
        else None,
        wire_bytes=0 if given.has("no-wire-log") else WIRE_BYTES,
    )


def read_notify(given: GivenArgs, environment: dict[str, str]) -> NotifySettings:
    """Raises UsageError."""
    from parley.gateway.questions import NotifySettings

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
