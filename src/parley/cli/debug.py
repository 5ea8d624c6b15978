"""`--debug`: log what the engine does.

    2026-02-02T10:30:00.000Z [wire] < user, 74 bytes
    2026-02-02T10:30:00.004Z [api] offline request: 1 messages, 12 tools
    2026-02-02T10:30:00.010Z [api] offline answered in 6 ms: end_turn
    2026-02-02T10:30:00.012Z [log] permission: Bash toolu_1 allow (mode)
    2026-02-02T10:30:00.012Z [wire] > result/success

The log has names, sizes and times, never content or keys. It goes to a file in the config directory,
to `--debug-file`, or to stderr (`--debug-to-stderr`). `--debug api,log` selects categories;
`--debug '!wire'` excludes one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec

from parley.cli.stdio import warn
from parley.compose.launch_context import LaunchContext
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
from parley.stores.base import Entry, Log, WrappedLog
from parley.transports.base import Transport
from parley.workspace import private_files

CATEGORIES = ("wire", "api", "log", "warning")
Write = Callable[[str], None]


class DebugLog:
    """Writes the lines of the selected categories."""

    def __init__(self, write: Write, now: Callable[[], str], categories: frozenset[str]) -> None:
        self._write = write
        self._now = now
        self._categories = categories

    def write(self, category: str, text: str) -> None:
        if category in self._categories:
            self._write(f"{self._now()} [{category}] {text}")


def parse_categories(text: str) -> frozenset[str]:
    """Return the categories that a filter selects. Clients may name categories that do not exist here."""
    names = [name for name in map(str.strip, text.split(",")) if name and name != "true"]
    excluded = {name[1:] for name in names if name.startswith("!")}
    included = {name for name in names if not name.startswith("!")}
    return frozenset((included or set(CATEGORIES)) - excluded) & frozenset(CATEGORIES)


def attach_debug(options: CliOptions, config: SessionConfig, clock: Clock) -> tuple[SessionConfig, DebugLog]:
    """Open the debug log; returns the config that writes to it, and the log. Raises UsageError."""
    categories = parse_categories(options.debug or "")
    if options.debug_to_stderr and options.debug_file is None:
        debug = DebugLog(warn, clock.now, categories - {"warning"})  # warnings already go to stderr
        return attach(config, debug), debug
    path: Path | str = options.debug_file or "the debug log"
    try:
        launch = LaunchContext(options.replace(workspace=None), dict(os.environ), os.getcwd(), clock)
        path = Path(options.debug_file or launch.config / "debug" / f"{config.identity.id}.txt")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        file = private_files.open_file(path, flags, below=0 if options.debug_file else 1)
    except OSError as exc:
        config.storage.log.close()
        raise UsageError(f"option '--debug-file': cannot write {path}: {exc.strerror}") from None
    except UsageError:
        config.storage.log.close()
        raise
    debug = DebugLog(DebugFile(file), clock.now, categories)
    return attach(config, debug), debug


class DebugFile:
    """Appends lines to a file. After a write error it is closed and further lines are dropped."""

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


def attach(config: SessionConfig, debug: DebugLog) -> SessionConfig:
    """Return the config with its models, its log and its warnings written to the debug log."""

    def warn(text: str) -> None:
        debug.write("warning", text)
        config.warn(text)

    def open_model(choice: ModelRef) -> Model:
        return LoggedModel(config.model.open(choice), choice.display_name, debug, config.clock.monotonic)

    logged = config.with_model_opener(open_model).with_wrapped_log(lambda log: LoggedLog(log, debug))
    return msgspec.structs.replace(logged, warn=warn)


class LoggedModel:
    """A model whose calls are written to the debug log."""

    def __init__(self, model: Model, name: str, debug: DebugLog, clock: Callable[[], float]) -> None:
        self._model = model
        self._name = name
        self._debug = debug
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self._log(f"request: {len(request.messages)} messages, {len(request.tools)} tools")
        clock, stop_reason = self._clock, ""
        start = clock()
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    stop_reason = (event.delta.stop_reason if event.delta is not None else None) or stop_reason
                    yield event
        except ModelError as exc:
            status = f"status {exc.status}" if exc.status is not None else exc.kind or "no status"
            self._log(f"failed after {(clock() - start) * 1000:.0f} ms: {status}")
            raise
        self._log(f"answered in {(clock() - start) * 1000:.0f} ms: {stop_reason or 'no stop reason'}")

    def _log(self, text: str) -> None:
        self._debug.write("api", f"{self._name} {text}")

    async def close(self) -> None:
        await self._model.close()


class LoggedLog(WrappedLog):
    """A session log whose entries are also written to the debug log, by kind."""

    def __init__(self, log: Log, debug: DebugLog) -> None:
        super().__init__(log)
        self._debug = debug

    def append(self, *entries: Entry) -> None:
        self.log.append(*entries)
        for entry in entries:
            self._debug.write("log", f"{entry.kind}{describe_entry(entry)}")


def describe_entry(entry: Entry) -> str:
    """Describe an entry without its content: the call, the decision, the result."""
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
    """A pump that writes every message to the debug log, by kind."""

    def __init__(
        self, connection: Connection, transport: Transport, new_id: Callable[[], str], debug: DebugLog
    ) -> None:
        super().__init__(connection, transport, new_id)
        self._debug = debug

    def send(self, *messages: Message) -> None:
        for message in messages:
            if type(message) not in DIALECT_EVENTS:
                self._debug.write("wire", f"> {describe_message(message)}")
        super().send(*messages)

    def handle_all(self, messages: Iterable[Message], session: Session) -> None:
        super().handle_all(self._log_each(messages), session)

    def _log_each(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            size = "" if message.line is None else f", {len(message.line)} bytes"
            self._debug.write("wire", f"< {describe_message(message)}{size}")
            yield message


def describe_message(message: Message) -> str:
    """Return the type and subtype of a message."""
    kind = str(message.__struct_config__.tag or type(message).__name__.lower())
    subtype = message.request.subtype if isinstance(message, ControlRequest) else getattr(message, "subtype", None)
    return f"{kind}/{subtype}" if isinstance(subtype, str) else kind
