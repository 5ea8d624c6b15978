"""`parley workspace`: files and commands of this machine for engines on other machines."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command
from parley.cli.process_secrets import erase
from parley.cli.stdio import warn
from parley.compose.workspace.server import serve_workspace
from parley.errors import InvalidArguments
from parley.workspace.remote.address import WorkspaceAddress
from parley.workspace.remote.wire import read_token_file

DEFAULT_ADDRESS = "127.0.0.1:7300"


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["workspace"], argv, {"": serve})


def serve(given: GivenArgs) -> int:
    """Raises UsageError."""
    from parley.workspace.process.tree import hide_memory

    gc.enable()  # main() disabled it, but a server runs for long
    environment = dict(os.environ)
    erase()  # commands of sessions could read /proc/PID/environ
    address = WorkspaceAddress.parse(given.one("listen", DEFAULT_ADDRESS))
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
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        warn(f"listening on {server.address}, serving {root}")
        await ended.wait()
        await server.close()

    asyncio.run(run())
    return 0
