"""`--debug`: what the engine does, line by line, for whoever looks for a fault.

    2026-02-02T10:30:00.000Z [wire] < user, 74 bytes
    2026-02-02T10:30:00.004Z [api] offline is asked: 1 messages, 12 tools
    2026-02-02T10:30:00.010Z [api] offline answered in 6 ms: end_turn
    2026-02-02T10:30:00.012Z [log] permission: Bash toolu_1 allow (mode)
    2026-02-02T10:30:00.012Z [wire] > result/success

Names, sizes and times; never what was said, and never a key. It goes to a file below the config
folder, to `--debug-file`, or with `--debug-to-stderr` to stderr. `--debug api,log` picks categories, and
`--debug '!wire'` leaves some out.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec

from parley.engine.clock import Clock
from parley.engine.session.config import SessionConfig
from parley.engine.session.pump import Pump
from parley.engine.session.session import Session
from parley.errors import ModelError, UsageError
from parley.models.base import Model, ModelEvent, ModelRequest
from parley.models.catalog import ModelRef
from parley.protocol.base import Message
from parley.protocol.connection import Connection
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.dialects import DIALECT_EVENTS
from parley.protocol.options import CliOptions
from parley.stores.base import Entry, Log
from parley.transports.base import Transport
from parley.workspace import private_files

CATEGORIES = ("wire", "api", "log", "complaint")
Write = Callable[[str], None]


class DebugLog:
    """Where notes go."""

    def __init__(self, write: Write, now: Callable[[], str], categories: frozenset[str]) -> None:
        self._write = write
        self._now = now
        self._categories = categories

    def write(self, category: str, text: str) -> None:
        if category in self._categories:
            self._write(f"{self._now()} [{category}] {text}")


def parse_categories(words: str) -> frozenset[str]:
    """The categories that a filter names, or leaves. Clients name some that we do not have; those are empty."""
    names = [name for name in map(str.strip, words.split(",")) if name and name != "true"]
    closed = {name[1:] for name in names if name.startswith("!")}
    named = {name for name in names if not name.startswith("!")}
    return frozenset((named or set(CATEGORIES)) - closed) & frozenset(CATEGORIES)


def open_debug_log(options: CliOptions, folder: Path, session_id: str, stamp: Clock, to_stderr: Write) -> DebugLog:
    """What the options ask for; `folder` is where it goes by itself. Raises UsageError if it cannot be written."""
    categories = parse_categories(options.debug or "")
    if options.debug_to_stderr and options.debug_file is None:
        return DebugLog(to_stderr, stamp.now, categories - {"complaint"})  # those are there already
    path = Path(options.debug_file) if options.debug_file else folder / f"{session_id}.txt"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        file = private_files.open_file(path, flags, below=0 if options.debug_file else 1)
    except OSError as exc:
        raise UsageError(f"option '--debug-file': {path} cannot be written: {exc.strerror}") from None
    return DebugLog(DebugFile(file), stamp.now, categories)


class DebugFile:
    """A file that takes a line at a time. One that takes no more is let go: nothing depends on it."""

    def __init__(self, file: int) -> None:
        self._file: int | None = file

    def __call__(self, text: str) -> None:
        if self._file is None:
            return
        try:
            os.write(self._file, text.encode(errors="replace") + b"\n")
        except OSError:
            os.close(self._file)
            self._file = None


def attach(setup: SessionConfig, debug: DebugLog) -> SessionConfig:
    """The same session, with its models, its log and its complaints noted."""

    def complain(text: str) -> None:
        debug.write("complaint", text)
        setup.warn(text)

    def open_model(choice: ModelRef) -> Model:
        return LoggedModel(setup.model.open(choice), choice.display_name, debug, setup.clock.monotonic)

    logged = setup.with_model_opener(open_model).with_log(LoggedLog(setup.storage.log, debug))
    return msgspec.structs.replace(logged, warn=complain)


class LoggedModel:
    def __init__(self, model: Model, name: str, debug: DebugLog, clock: Callable[[], float]) -> None:
        self._model = model
        self._name = name
        self._debug = debug
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self._log(f"is asked: {len(request.messages)} messages, {len(request.tools)} tools")
        clock, stopped = self._clock, ""
        start = clock()
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    stopped = (event.delta.stop_reason if event.delta is not None else None) or stopped
                    yield event
        except ModelError as exc:
            status = f"status {exc.status}" if exc.status is not None else exc.kind or "no status"
            self._log(f"failed after {(clock() - start) * 1000:.0f} ms: {status}")
            raise
        self._log(f"answered in {(clock() - start) * 1000:.0f} ms: {stopped or 'no stop reason'}")

    def _log(self, text: str) -> None:
        self._debug.write("api", f"{self._name} {text}")

    async def close(self) -> None:
        await self._model.close()


class LoggedLog:
    def __init__(self, log: Log, debug: DebugLog) -> None:
        self._log = log
        self._debug = debug

    def append(self, entry: Entry) -> None:
        self._log.append(entry)
        self._debug.write("log", f"{entry.kind}{describe_entry(entry)}")

    def sync(self) -> None:
        self._log.sync()

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return self._log.entries(after)

    def close(self) -> None:
        self._log.close()


def describe_entry(entry: Entry) -> str:
    """What may be said of an entry: whose decision, which call, how it ended."""
    message = entry.message
    if entry.kind == "permission":
        return (
            f": {message.get('tool')} {message.get('tool_use_id')} {message.get('decision')} ({message.get('source')})"
        )
    if entry.kind in ("question", "answered"):
        return f": {message.get('tool_use_id')}"
    if entry.kind == "result":
        return f": {message.get('subtype')}, {message.get('num_turns')} turns, {message.get('duration_ms')} ms"
    return ""


class LoggedPump(Pump):
    """A host at the other end of a transport, with every message noted."""

    def __init__(
        self, connection: Connection, transport: Transport, new_id: Callable[[], str], debug: DebugLog
    ) -> None:
        super().__init__(connection, transport, new_id)
        self._debug = debug

    def send(self, message: Message) -> None:
        if type(message) not in DIALECT_EVENTS:
            self._debug.write("wire", f"> {describe_message(message)}")
        super().send(message)

    def handle_all(self, messages: Iterable[Message], session: Session) -> None:
        super().handle_all(self._log_each(messages), session)

    def _log_each(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            size = "" if message.line is None else f", {len(message.line)} bytes"
            self._debug.write("wire", f"< {describe_message(message)}{size}")
            yield message


def describe_message(message: Message) -> str:
    """The kind of a message, as lines spell it."""
    kind = str(message.__struct_config__.tag or type(message).__name__.lower())
    subtype = message.request.subtype if isinstance(message, ControlRequest) else getattr(message, "subtype", None)
    return f"{kind}/{subtype}" if isinstance(subtype, str) else kind
