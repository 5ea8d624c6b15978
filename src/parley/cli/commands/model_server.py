"""`parley model-server`: a scripted or recorded model behind HTTP on loopback, for any client of either API.

It writes its address on one line when it is ready, and serves until SIGINT or SIGTERM.
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
from parley.models.faults.catalog import Plan
from parley.protocol.base import Struct
from parley.testing.model_server import ModelServer
from parley.testing.source import Source, from_tape, offline, source_of

USAGE = """\
usage: parley model-server [--script FILE | --replay FILE | --offline] [--port N] [--fault NAME]... [options]

Serves a model on 127.0.0.1 and writes its address on one line when it is ready: the Messages API (/v1/messages,
/v1/messages/count_tokens) and OpenAI's chat completions (/v1/chat/completions), streamed or whole, and /v1/models.

  --script FILE   play the turns of a script (TOML)
  --replay FILE   play a tape that --record has written
  --offline       follow directives in the prompt; the default
  --port N        0, the default, takes a free one
  --fault NAME    something goes wrong, e.g. reset=3, overloaded@1-4; several are separated by commas
  --in-order      play a tape in its order without comparing requests: for clients other than the recorded one
  --pace FACTOR   play a tape at its recorded pace (1), slower or faster; 0, the default, without waiting
"""
KEEPS = 0
"""Requests that are kept: the command has no one to show them to."""


class Wanted(Struct, kw_only=True):
    script: str | None = None
    replay: str | None = None
    offline: bool = False
    port: int = 0
    faults: tuple[str, ...] = ()
    in_order: bool = False
    pace: float = 0


def number(make: Callable[[str], Any], most: float) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = make(text)
        if not 0 <= value <= most:
            raise ValueError(text)
        return value

    return read


# Each flag with the field it fills, and how its value is read; None for a switch.
FLAGS: dict[str, tuple[str, Callable[[str], Any] | None]] = {
    "--script": ("script", str),
    "--replay": ("replay", str),
    "--offline": ("offline", None),
    "--port": ("port", number(int, 65_535)),
    "--fault": ("faults", lambda text: tuple(part for part in text.split(",") if part)),
    "--in-order": ("in_order", None),
    "--pace": ("pace", number(float, 1_000)),
}


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    if argv and argv[0] in ("--help", "-h"):
        return 0 if write(USAGE.encode()) else 1
    wanted = read(argv)
    gc.enable()  # a server lives long
    server = ModelServer(source(wanted), port=wanted.port, plan=Plan.read(wanted.faults, "--fault"), keeps=KEEPS)
    return asyncio.run(serve(server))


def read(argv: list[str]) -> Wanted:
    """Raises UsageError."""
    wanted, rest = Wanted(), list(argv)
    while rest:
        flag, has_value, value = rest.pop(0).partition("=")
        if flag not in FLAGS:
            raise UsageError(f"model-server: there is no option {flag!r}; there are {', '.join(FLAGS)}")
        field, make = FLAGS[flag]
        if make is None:
            setattr(wanted, field, True)
            continue
        if not has_value and not rest:
            raise UsageError(f"model-server: option '{flag}' needs a value")
        text = value if has_value else rest.pop(0)
        try:
            found = make(text)
        except ValueError:
            raise UsageError(f"model-server: option '{flag}' cannot be {text!r}") from None
        setattr(wanted, field, wanted.faults + found if field == "faults" else found)
    if sum((wanted.script is not None, wanted.replay is not None, wanted.offline)) > 1:
        raise UsageError("model-server: one of --script, --replay and --offline, not several")
    if wanted.replay is None and (wanted.in_order or wanted.pace):
        raise UsageError("model-server: --in-order and --pace go with --replay")
    return wanted


def source(wanted: Wanted) -> Source:
    """Raises UsageError."""
    if wanted.replay is not None:
        return from_tape(Path(wanted.replay), pace=wanted.pace, in_order=wanted.in_order)
    if wanted.script is None:
        return offline(new_id)
    try:
        return source_of(read_script(Path(wanted.script).read_text(encoding="utf-8"), wanted.script), new_id)
    except (OSError, UnicodeDecodeError) as flaw:
        raise UsageError(f"the script {wanted.script} cannot be read: {flaw}") from None


def new_id() -> str:
    return uuid4().hex[:24]


async def serve(server: ModelServer) -> int:
    """Raises UsageError if the port is taken."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signal_number, stop.set)
    try:
        await server.__aenter__()
    except OSError as flaw:
        raise UsageError(f"model-server: the port cannot be served: {flaw.strerror}") from None
    try:
        if not write(f"{server.url}\n".encode()):
            return 1
        await stop.wait()
    finally:
        await server.__aexit__()
    return 0
