"""`parley serve`: sessions over HTTP and WebSocket."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, parse_number, run_command
from parley.cli.stdio import warn
from parley.errors import InvalidArguments, UsageError
from parley.settings.sources import config_folder

DEFAULT_ADDRESS = "127.0.0.1:8787"


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["serve"], argv, {"": serve})


def serve(given: GivenArgs) -> int:
    """Raises UsageError or SessionError."""
    try:
        from parley.gateway.server import Address, ServerSettings, run_server
    except ModuleNotFoundError as exc:
        raise UsageError(
            f"`parley serve` needs {exc.name}, which is not installed; run: pip install 'parley-agent[gateway]'"
        ) from None
    from parley.gateway.hub import HubSettings

    gc.enable()  # main() disabled it, but a server runs for long
    environment = dict(os.environ)
    root = os.path.abspath(given.one("root", "."))
    if not os.path.isdir(root):
        raise InvalidArguments(f"option '--root': there is no directory {root}")
    state = given.one("state") or str(config_folder(environment) / "gateway")
    hub = HubSettings(
        state=Path(state).absolute(),
        root=root,
        argv=given.option_words,
        environment=environment,
        isolation=given.one("isolation", "task"),
        idle_seconds=given.number("idle-seconds", 300),
        question_seconds=parse_number("--question-seconds", given.one("question-seconds"))
        if given.has("question-seconds")
        else None,
    )
    settings = ServerSettings(
        hub=hub,
        address=Address.parse(given.one("listen", DEFAULT_ADDRESS)),
        token_file=given.one("token-file"),
        origins=frozenset(given.all("allow-origin")),
        hosts=frozenset(given.all("allow-host")),
        drain_seconds=given.number("drain-seconds", 30),
        certificate=given.one("tls-cert"),
        key=given.one("tls-key"),
    )
    return run_server(settings, warn)
