"""`parley model-server`: serve a scripted or recorded model over HTTP on loopback.

It prints its URL on one line when it is ready, and serves until SIGINT or SIGTERM.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

from parley.cli.commands.subcommand import GivenArgs
from parley.cli.signals import run_until_signal
from parley.cli.stdio import warn, write
from parley.errors import InvalidArguments, UsageError, explain_os_errors
from parley.models.faults import FaultPlan
from parley.models.script import read_script
from parley.settings.base import printable
from parley.testing.model_server import AnswerSource, Exchange, ModelServer, from_recording, offline, to_source

KEPT_REQUESTS = 0
"""Keep no requests: this command does not show them."""


def run_server(given: GivenArgs) -> int:
    port = int(given.decimal("port", 0, 65_535, is_whole=True))
    faults = [part for text in given.all("fault") for part in text.split(",") if part]
    server = ModelServer(
        open_source(given),
        port=port,
        plan=FaultPlan.read(faults, "--fault"),
        keeps=KEPT_REQUESTS,
        log=None if given.has("quiet") else log_exchange,
    )
    return asyncio.run(serve(server))


def log_exchange(exchange: Exchange, seconds: float) -> None:
    """Write a line about a request to stderr: `POST /v1/messages 200 1234 bytes 12 ms`."""
    status = "no response" if exchange.status is None else str(exchange.status)
    ending = "" if exchange.complete else " (incomplete)"
    path = printable(exchange.path)
    warn(f"{exchange.method} {path} {status}, {len(exchange.raw)} bytes received, {seconds * 1000:.0f} ms{ending}")


def open_source(given: GivenArgs) -> AnswerSource:
    """Raises UsageError."""
    if sum(map(given.has, ("script", "replay", "offline"))) > 1:
        raise InvalidArguments("--script, --replay and --offline cannot be combined; use one")
    if not given.has("replay") and (given.has("in-order") or given.has("pace")):
        raise InvalidArguments("--in-order and --pace require --replay")
    if given.has("replay"):
        pace = given.decimal("pace", 0, 1_000)
        return from_recording(Path(given.one("replay")), pace=pace, in_order=given.has("in-order"))
    if not given.has("script"):
        return offline(new_id)
    path = given.one("script")
    try:
        return to_source(read_script(Path(path).read_text(encoding="utf-8"), path), new_id)
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"cannot read the script {path}: {exc}") from None


def new_id() -> str:
    return uuid4().hex[:24]


async def serve(server: ModelServer) -> int:
    """Serve until a signal arrives. Raises UsageError if the port is in use."""
    code = 0

    async def run() -> None:
        nonlocal code
        code = 0 if write(f"{server.url}\n".encode()) else 1
        if not code:
            await asyncio.Event().wait()

    with explain_os_errors("option '--port': cannot listen on this port", UsageError):
        await server.__aenter__()
    try:
        await run_until_signal(run())
    finally:
        await server.__aexit__()
    return code
