"""`parley console`: the gateway on this machine, and a browser with its console."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.network.serve import read_hub_settings, require_server
from parley.cli.commands.subcommand import GivenArgs, run_command
from parley.cli.stdio import warn
from parley.errors import InvalidArguments
from parley.workspace import private_files

if TYPE_CHECKING:
    from parley.gateway.hub import HubSettings, SessionHub

DEFAULT_ADDRESS = "127.0.0.1:0"
DEMO_IDLE_SECONDS = 7 * 86_400
"""The scripts of the demo begin again when a session is loaded again."""


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["console"], argv, {"": open_console})


def open_console(given: GivenArgs) -> int:
    """Raises UsageError or SessionError."""
    require_server("console")
    from parley.gateway.reporting import ServerLog
    from parley.gateway.server import Address, ServerSettings, run_server

    address = Address.parse(given.one("listen", DEFAULT_ADDRESS))
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
    import msgspec

    if demo is None:
        return read_hub_settings(given, "console")
    from parley.gateway.demo.seed import prepare_folder

    settings = read_hub_settings(given, "console")
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
    import webbrowser

    has_screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_screen:
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
