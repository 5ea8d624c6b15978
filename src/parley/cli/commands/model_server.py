"""`parley model-server`: serve a scripted or recorded model over HTTP on loopback.

It prints its URL on one line when it is ready, and serves until SIGINT or SIGTERM.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from parley.cli.stdio import write
from parley.errors import UsageError
from parley.models.fake.script import read_script
from parley.models.faults.catalog import FaultPlan
from parley.protocol.base import Struct
from parley.testing.model_server import ModelServer
from parley.testing.source import AnswerSource, from_recording, offline, to_source

USAGE = """\
usage: parley model-server [--script FILE | --replay FILE | --offline] [--port N] [--fault NAME]... [options]

Serve a model on 127.0.0.1 and print its URL when it is ready. It implements the Messages API (/v1/messages,
/v1/messages/count_tokens) and OpenAI's chat completions (/v1/chat/completions) and Responses API (/v1/responses),
streaming or not, and /v1/models.

  --script FILE   play the turns of a script (TOML)
  --replay FILE   play a recording made with --record
  --offline       follow directives in the prompt (default)
  --port N        listen on this port; 0 picks a free one (default)
  --fault NAME    inject a fault, e.g. reset=3 or overloaded@1-4; separate several with commas
  --in-order      with --replay: play the responses in order without comparing requests, for other clients
  --pace FACTOR   with --replay: 1 is the recorded speed, 0 does not wait (default)
"""
KEPT_REQUESTS = 0
"""Keep no requests: this command does not show them."""


class ServerFlags(Struct, kw_only=True):
    """The flags of `parley model-server`."""

    script: str | None = None
    replay: str | None = None
    offline: bool = False
    port: int = 0
    faults: tuple[str, ...] = ()
    in_order: bool = False
    pace: float = 0


def bounded_number(convert: Callable[[str], Any], maximum: float) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = convert(text)
        if not 0 <= value <= maximum:
            raise ValueError(text)
        return value

    return parse


# Each flag with its field and the parser of its value; None for a switch.
FLAGS: dict[str, tuple[str, Callable[[str], Any] | None]] = {
    "--script": ("script", str),
    "--replay": ("replay", str),
    "--offline": ("offline", None),
    "--port": ("port", bounded_number(int, 65_535)),
    "--fault": ("faults", lambda text: tuple(part for part in text.split(",") if part)),
    "--in-order": ("in_order", None),
    "--pace": ("pace", bounded_number(float, 1_000)),
}


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    if argv and argv[0] in ("--help", "-h"):
        return 0 if write(USAGE.encode()) else 1
    flags = parse_args(argv)
    gc.enable()  # main() disabled it, but a server runs for long
    server = ModelServer(
        open_source(flags), port=flags.port, plan=FaultPlan.read(flags.faults, "--fault"), keeps=KEPT_REQUESTS
    )
    return asyncio.run(serve(server))


def parse_args(argv: list[str]) -> ServerFlags:
    """Raises UsageError."""
    flags, rest = ServerFlags(), list(argv)
    while rest:
        flag, has_value, value = rest.pop(0).partition("=")
        if flag not in FLAGS:
            raise UsageError(f"model-server: unknown option {flag!r} (choose from {', '.join(FLAGS)})")
        field, parse = FLAGS[flag]
        if parse is None:
            setattr(flags, field, True)
            continue
        if not has_value and not rest:
            raise UsageError(f"model-server: option '{flag}' requires a value")
        text = value if has_value else rest.pop(0)
        try:
            found = parse(text)
        except ValueError:
            raise UsageError(f"model-server: invalid value {text!r} for option '{flag}'") from None
        setattr(flags, field, flags.faults + found if field == "faults" else found)
    if sum((flags.script is not None, flags.replay is not None, flags.offline)) > 1:
        raise UsageError("model-server: --script, --replay and --offline cannot be combined; use one")
    if flags.replay is None and (flags.in_order or flags.pace):
        raise UsageError("model-server: --in-order and --pace require --replay")
    return flags


def open_source(flags: ServerFlags) -> AnswerSource:
    """Raises UsageError."""
    if flags.replay is not None:
        return from_recording(Path(flags.replay), pace=flags.pace, in_order=flags.in_order)
    if flags.script is None:
        return offline(new_id)
    try:
        return to_source(read_script(Path(flags.script).read_text(encoding="utf-8"), flags.script), new_id)
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"model-server: cannot read the script {flags.script}: {exc}") from None


def new_id() -> str:
    return uuid4().hex[:24]


async def serve(server: ModelServer) -> int:
    """Serve until a signal arrives. Raises UsageError if the port is in use."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signal_number, stop.set)
    try:
        await server.__aenter__()
    except OSError as exc:
        raise UsageError(f"model-server: cannot listen on the port: {exc.strerror}") from None
    try:
        if not write(f"{server.url}\n".encode()):
            return 1
        await stop.wait()
    finally:
        await server.__aexit__()
    return 0
