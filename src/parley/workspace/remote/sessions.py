"""One session on a workspace server: its files, commands and calls, and what outlives a lost connection.

Every call has a number. A call whose connection is lost runs on, and its result is kept until the engine says that it
has it: an engine that dials again in time gets the result of the first run. Paths are limited to the root of the server
and to the session's own folder, whatever the engine asks for. The output of a command is buffered until the engine has
taken it.

See also: the engine's side (client.py, processes.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.base import FileSnapshot, NotWritten, Scope, SearchArea
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.git import Git
from parley.workspace.local import LocalFiles
from parley.workspace.process.processes import OutputRecord, Processes, RunningCommand
from parley.workspace.remote import calls, wire
from parley.workspace.remote.calls import Call, EarlierCommand, Failure, RequestBody
from parley.workspace.remote.wire import BrokenFrame, Channel, Greeting
from parley.workspace.safe_open import Pins, is_beneath
from parley.workspace.search.search import LocalSearch
from parley.workspace.tree_snapshot import TreeSnapshot
from parley.workspace.worktrees import GitWorktrees

MAX_EARLIER = 100
"""Commands whose end is kept for an engine that takes the session over."""
MAX_COMMANDS = 256
MAX_CALLS = 4096
FORGOTTEN = (
    "the workspace does not know this command: it was restarted during this call, or the connection was lost for longer"
    " than its grace period. What the command has done is not known."
)
FactFinders = Mapping[str, Callable[[str, int], Any]]
WINDOW_BYTES = 1 << 20
"""How much output is buffered before the command has to wait."""
SEND_BYTES = 128 * 1024
LAST_BYTES = 4096
"""Of the output of a command, for an engine that takes the session over."""
MAX_FEED_BYTES = 1 << 20


class SessionPlace(Struct, frozen=True, kw_only=True):
    """Where a session may work."""

    root: str
    own: Path
    """The folder for its results and task output."""
    histories: Path
    """The folder with the file checkpoints of all sessions."""
    environment: dict[str, str]
    find_fact: FactFinders


class ServedSession:
    def __init__(self, greeting: Greeting, place: SessionPlace) -> None:
        self.greeting = greeting
        self.place = place
        self.channel: Channel | None = None
        self.earlier: dict[str, EarlierCommand] = {}
        """By the id of the tool call."""
        self.superseded: frozenset[str] = frozenset()
        """The engines that had the session before. They do not get it back."""
        cwd = greeting.folder or place.root
        checkpoints = CheckpointStore(place.histories / history_name(greeting))
        tree = TreeSnapshot(cwd, checkpoints, [str(place.histories.parent)]) if greeting.watches_tree else None
        self._files = LocalFiles(
            cwd=cwd,
            checkpoints=checkpoints,
            new_id=lambda: uuid4().hex[:24],
            tree=tree,
            delete_history_at_end=not greeting.keeps_history,
        )
        changeable = (cwd, place.root)
        self._search = LocalSearch(place.environment, lambda: changeable)
        self._processes = Processes()
        self._outputs = self._processes.outputs
        self._worktrees = GitWorktrees(Git(self._processes, place.environment, lambda: changeable))
        self._pins = Pins()
        self._calls: dict[int, asyncio.Task[tuple[int, bytes]]] = {}
        self._commands: dict[int, ServedCommand] = {}
        self._records: dict[str, OutputRecord] = {}
        self._searches: set[int] = set()
        """Those that run and were not stopped."""
        self._order = asyncio.Lock()
        """Changes are made in the order of their calls."""
        self._sending = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self.is_ended = False
        """Whether the engine has ended it."""

    # The connection.

    async def serve(self, channel: Channel) -> None:
        """Answer the calls of one connection, until it is lost. Raises ConnectionError, BrokenFrame."""
        self.channel = channel
        for command in self._commands.values():
            for stream in command.streams:
                stream.sent = stream.taken
        sender = asyncio.create_task(self._send_outputs(channel))
        self._sending.set()
        try:
            while True:
                self._receive(await channel.receive(), channel)
        finally:
            sender.cancel()
            if self.channel is channel:
                self.channel = None

    def _receive(self, frame: wire.Frame, channel: Channel) -> None:
        if frame.kind == wire.REQUEST:
            self._receive_call(frame, channel)
        elif frame.kind == wire.CANCEL:
            if (task := self._calls.pop(frame.id, None)) is not None:
                task.cancel()
        elif frame.kind == wire.TAKEN:
            self._receive_taken(frame)
        elif frame.kind == wire.WAITING:
            waiting = frozenset(wire.decode_body(frame.body, list[int]))
            self._calls = {number: task for number, task in self._calls.items() if number in waiting}
        else:
            raise BrokenFrame(f"a message of the kind {frame.kind} was not expected")

    def _receive_call(self, frame: wire.Frame, channel: Channel) -> None:
        body: RequestBody = wire.decode_body(frame.body, RequestBody)
        for number in body.settled:
            self._calls.pop(number, None)
        task = self._calls.get(frame.id)
        if task is None:
            if len(self._calls) >= MAX_CALLS:
                raise BrokenFrame(f"more than {MAX_CALLS} calls are open")
            task = self._calls[frame.id] = asyncio.create_task(self._run(body.call))
        task.add_done_callback(lambda done: self._reply(frame.id, done, channel))

    def _reply(self, number: int, done: asyncio.Task[tuple[int, bytes]], channel: Channel) -> None:
        if not done.cancelled() and self.channel is channel:
            kind, body = done.result()
            wire.spawn(asyncio.get_running_loop(), send_quietly(channel, kind, number, body))

    def _receive_taken(self, frame: wire.Frame) -> None:
        if len(frame.body) != wire.OFFSET.size:
            raise BrokenFrame("a position was expected")
        stream, offset = wire.OFFSET.unpack(frame.body)
        command = self._commands.get(frame.id)
        if command is not None and stream in (1, 2):
            command.streams[stream - 1].set_taken(offset)
            command.set_pace()

    async def _send_outputs(self, channel: Channel) -> None:
        try:
            while True:
                await self._sending.wait()
                self._sending.clear()
                for command in list(self._commands.values()):
                    await command.send(channel)
        except ConnectionError:
            return  # the receiving side reports it

    async def _run(self, call: Call) -> tuple[int, bytes]:
        """The reply to a call."""
        try:
            serve: Callable[[Call], Awaitable[Any]] = getattr(self, f"serve_{call.__struct_config__.tag}")
            result = await serve(call)
            return wire.REPLY, wire.encode_body(result)
        except ToolError as exc:
            failure = Failure("tool", str(exc))
        except NotWritten as exc:
            failure = Failure("not_written", str(exc))
        except OSError as exc:
            failure = Failure("system", exc.strerror or str(exc), exc.errno or 0)
        except UnicodeEncodeError:
            failure = Failure("tool", "A name in the workspace is not valid Unicode.")
        except (ValueError, TypeError, KeyError, RecursionError) as exc:  # of a call that no engine of ours makes
            failure = Failure("tool", f"the call is not valid: {exc}"[:500])
        return wire.FAILURE, wire.encode_body(failure)

    async def close(self) -> None:
        """End all commands and calls. What is known of the commands is kept for another engine."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)  # the caller may be cancelled; the commands end all the same

    async def _close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        for task in self._calls.values():
            task.cancel()
        for command in self._commands.values():
            self._remember(command)
        await self._processes.close()
        for record in self._records.values():
            record.close()
        await run_in_thread(self._files.close)

    def _remember(self, command: ServedCommand) -> None:
        if command.tool_use_id:
            self.earlier[command.tool_use_id] = command.earlier()
            while len(self.earlier) > MAX_EARLIER:
                del self.earlier[next(iter(self.earlier))]

    async def serve_end(self, call: calls.EndSession) -> None:
        self.is_ended = True
        async with self._order:  # after the changes that were asked for before
            await run_in_thread(self._files.close)

    # What may be accessed.

    def _narrow(self, scope: Scope) -> Scope:
        """The part of a scope that is in the workspace."""
        roots = (self.place.root, str(self.place.own))
        if self.place.root == "/":
            return scope
        if scope.anywhere:
            return Scope(folders=roots, call=scope.call)
        folders: list[str] = []
        for folder in scope.folders:
            real = self._pins.real(folder)
            if any(real == root or is_beneath(real, root) for root in roots):
                folders.append(folder)
            else:  # a folder above the root covers the root
                folders += [root for root in roots if is_beneath(root, real)]
        files = tuple(file for file in scope.files if any(is_beneath(file, root) for root in roots))
        return Scope(folders=tuple(folders), files=files, call=scope.call)

    def _check_folder(self, path: str) -> None:
        """Raises ToolError if a command must not start in a folder."""
        real, roots = os.path.realpath(path), (self.place.root, str(self.place.own))
        if not any(real == root or is_beneath(real, root) for root in roots):
            raise ToolError(f"{path} is outside the workspace ({self.place.root})")

    def _own_path(self, path: str) -> Path:
        """Raises ToolError for a path that is not in the session's own folder."""
        given, own = Path(path), self.place.own
        if ".." in given.parts or not given.is_relative_to(own) or given == own:
            raise ToolError(f"{path} is not in the folder of the session ({self.place.own})")
        return given

    # Files and search.

    async def serve_read(self, call: calls.ReadFile) -> FileSnapshot | None:
        scope = self._narrow(call.scope)
        read = self._files.peek if call.how == "peek" else self._files.read
        return await run_in_thread(lambda: read(call.path, scope, call.limit_bytes))

    async def serve_write(self, call: calls.WriteFile) -> FileSnapshot:
        scope = self._narrow(call.scope)

        def write() -> FileSnapshot:
            replacing = call.replacing
            if replacing is not None and call.replaced_sha256 is not None:
                current = self._files.peek(call.path, scope)
                if current is not None and hashlib.sha256(current.data).digest() != call.replaced_sha256:
                    raise ToolError(f"{current.path} has changed since it was read. Read it again before you write it.")
                replacing = replace(replacing, data=b"" if current is None else current.data)
            written = self._files.write(call.path, call.data, scope, replacing=replacing)
            return replace(written, data=b"") if written.data == call.data else written

        async with self._order:
            return await run_in_thread(write)

    async def serve_track(self, call: calls.TrackCommand) -> None:
        async with self._order:
            await run_in_thread(self._files.after_command if call.is_over else self._files.before_command)

    async def serve_changed_by(self, call: calls.ChangedBy) -> list[str] | None:
        return await run_in_thread(lambda: self._files.changed_by(call.tool_use_id))

    async def serve_begin_message(self, call: calls.BeginMessage) -> None:
        async with self._order:
            await run_in_thread(lambda: self._files.begin_message(call.id))

    async def serve_rewind(self, call: calls.Rewind) -> Any:
        async with self._order:
            return await run_in_thread(
                lambda: self._files.rewind(call.id, dry_run=call.dry_run, with_diffs=call.with_diffs)
            )

    async def serve_use_history(self, call: calls.UseHistory) -> None:
        new, old = (CheckpointStore(self._history(name)) for name in (call.session, call.inherits))

        def use() -> None:
            new.inherit(old)
            self._files.use_history(self._history(call.session))

        async with self._order:
            await run_in_thread(use)

    def _history(self, session: str) -> Path:
        return self.place.histories / safe_name(session)

    async def serve_list(self, call: calls.ListFiles) -> Any:
        area = SearchArea(path=call.path, cwd=call.cwd, scope=self._narrow(call.scope))
        self._searches.add(call.search)
        try:
            return await run_in_thread(
                lambda: self._search.files(
                    call.pattern,
                    area,
                    most=call.most,
                    ignored=call.ignored,
                    hidden=call.hidden,
                    stop=lambda: call.search not in self._searches,
                )
            )
        finally:
            self._searches.discard(call.search)

    async def serve_stop_search(self, call: calls.StopSearch) -> None:
        self._searches.discard(call.search)

    async def serve_search(self, call: calls.SearchFiles) -> Any:
        area = SearchArea(path=call.path, cwd=call.cwd, scope=self._narrow(call.scope))
        return await self._search.matches(
            call.query, area, timeout_seconds=call.seconds, enough_lines=call.enough_lines
        )

    async def serve_worktree(self, call: calls.WorktreeCall) -> calls.WorktreeResult:
        trees, worktree = self._worktrees, call.worktree
        self._check_folder(call.cwd if worktree is None else worktree.path)
        if worktree is None:
            if call.action == "sweep":
                await trees.sweep(call.cwd)
                return calls.WorktreeResult()
            get = {"open": trees.open, "create": trees.create, "find": trees.find}[call.action]
            return calls.WorktreeResult(worktree=await get(call.cwd, call.name))
        if call.action == "find_changes":
            return calls.WorktreeResult(changes=await trees.find_changes(worktree))
        if call.action == "leave":
            return calls.WorktreeResult(was_kept=await trees.leave(worktree))
        if call.action != "remove":
            raise ToolError(f"{call.action} needs a folder")
        await trees.remove(worktree)
        return calls.WorktreeResult()

    async def serve_facts(self, call: calls.FindFacts) -> list[Any]:
        if len(call.facts) > calls.MAX_FACTS:
            raise ToolError(f"more than {calls.MAX_FACTS} facts")
        find = self.place.find_fact
        return await run_in_thread(lambda: [make_portable(find[kind](path, limit)) for kind, path, limit in call.facts])

    # Commands.

    async def serve_start(self, call: calls.StartCommand) -> None:
        if call.command in self._commands:
            raise ToolError("there is a command with this number")
        if len(self._commands) >= MAX_COMMANDS:
            raise ToolError(f"the command could not be started: {MAX_COMMANDS} commands run or wait for their engine")
        self._check_folder(os.fsdecode(call.cwd))
        record = self._records[call.record] if call.record else None
        command = self._commands[call.command] = ServedCommand(call, record)
        command.send_output = self._sending.set
        try:
            await command.start(self._processes)
        except BaseException:
            del self._commands[call.command]
            raise

    def _find_command(self, number: int) -> ServedCommand:
        if (command := self._commands.get(number)) is None or command.running is None:
            raise ToolError(FORGOTTEN)
        return command

    async def serve_wait(self, call: calls.WaitForCommand) -> calls.CommandEnded:
        return await self._find_command(call.command).wait()

    async def serve_wait_output(self, call: calls.WaitForOutput) -> int:
        command = self._find_command(call.command)
        assert command.running is not None
        await asyncio.shield(command.running.output_ended)
        return command.streams[0].total

    async def serve_feed(self, call: calls.FeedCommand) -> None:
        await self._find_command(call.command).feed(call.data, is_end=call.is_end)

    async def serve_stop(self, call: calls.StopCommand) -> None:
        command = self._commands.get(call.command)
        if command is None or command.running is None:
            return
        command.running.stop()
        if call.forget:
            # The supervisor of the command ends it; what it still writes is discarded.
            await asyncio.wait({command.running.ended}, timeout=10)
            self._commands.pop(call.command, None)

    async def serve_stop_all(self, call: calls.StopAll) -> None:
        await self._processes.close()

    async def serve_find_earlier(self, call: calls.FindEarlierCommand) -> EarlierCommand | None:
        return self.earlier.get(call.tool_use_id)

    # Own files.

    async def serve_open_record(self, call: calls.OpenRecord) -> None:
        opened = self._outputs.open(self._own_path(call.path), again=call.again)
        if (before := self._records.pop(call.path, None)) is not None:
            before.close()
        self._records[call.path] = opened

    async def serve_append_record(self, call: calls.AppendRecord) -> str:
        record = self._records.get(call.path)
        if record is None:
            return "the output file is closed"
        record.write(call.offset, call.data)
        return record.problem

    async def serve_close_record(self, call: calls.CloseRecord) -> str:
        record = self._records.pop(call.path, None)
        if record is not None:
            record.close()
        if call.remove:
            self._outputs.remove(self._own_path(call.path))
        return "" if record is None else record.problem

    async def serve_read_record(self, call: calls.ReadRecord) -> tuple[int, bytes]:
        path = self._own_path(call.path)
        return await run_in_thread(lambda: self._outputs.tail(path, max(0, call.limit_bytes)))

    async def serve_save_result(self, call: calls.SaveResult) -> None:
        path = self._own_path(call.path)
        await run_in_thread(lambda: self._outputs.save(path, call.data))


async def send_quietly(channel: Channel, kind: int, number: int, body: bytes) -> None:
    try:
        await channel.send(kind, number, body)
    except ConnectionError:
        return  # the reply is kept for the next connection


def make_portable(fact: Any) -> Any:
    """A fact without names that are not valid Unicode: those become bytes."""
    if isinstance(fact, str):
        return fact if fact.isascii() or is_unicode(fact) else os.fsencode(fact)
    if isinstance(fact, dict):
        return {make_portable(name): value for name, value in fact.items()}
    return fact


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def history_name(greeting: Greeting) -> str:
    """A session that keeps no history must not delete that of the session it resumes."""
    return safe_name(greeting.session) if greeting.keeps_history else f"unkept-{uuid4().hex}"


def safe_name(session: str) -> str:
    """A session's name as that of a folder."""
    if session and len(session) <= 100 and all(c.isascii() and (c.isalnum() or c in "-_") for c in session):
        return session
    return hashlib.sha256(session.encode(errors="surrogateescape")).hexdigest()


class OutputStream:
    """A stream of a command, from what the engine has taken to what was read."""

    def __init__(self, number: int, wake: Callable[[], None]) -> None:
        self.number = number
        self.taken = 0
        self.sent = 0
        self.total = 0
        self._wake = wake
        self._buffer = bytearray()

    @property
    def is_full(self) -> bool:
        return len(self._buffer) > WINDOW_BYTES

    def add(self, data: bytes) -> None:
        self._buffer += data
        self.total += len(data)
        self._wake()

    def set_taken(self, offset: int) -> None:
        """The engine has taken so much. Raises BrokenFrame if that is impossible."""
        if offset > self.total:
            raise wire.BrokenFrame("more output was taken than there is")
        if offset > self.taken:
            del self._buffer[: offset - self.taken]
            self.taken = offset
        self.sent = max(self.sent, self.taken)

    def next_part(self) -> tuple[int, bytes]:
        at = self.sent - self.taken
        part = bytes(self._buffer[at : at + SEND_BYTES])
        offset, self.sent = self.sent, self.sent + len(part)
        return offset, part


class ServedCommand:
    """A command that runs for an engine."""

    def __init__(self, order: calls.StartCommand, record: OutputRecord | None) -> None:
        self.number = order.command
        self.tool_use_id = order.tool_use_id
        self.order = order
        self.streams = (OutputStream(1, self._on_output), OutputStream(2, self._on_output))
        self.running: RunningCommand | None = None
        self.total_bytes = 0
        self.last_output = b""
        self.send_output: Callable[[], None] = lambda: None
        self._record = record
        self._is_paused = False

    async def start(self, processes: Processes) -> None:
        """Raises ToolError."""
        order = self.order
        self.running = await processes.start(
            [os.fsdecode(word) for word in order.argv],
            cwd=os.fsdecode(order.cwd),
            environment={name: os.fsdecode(value) for name, value in order.environment.items()},
            take=self._take,
            take_errors=self.streams[1].add if order.is_interactive else None,
        )

    def _take(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self.last_output = (self.last_output + data)[-LAST_BYTES:]
        if self._record is not None:
            self._record.take(data)
        else:
            self.streams[0].add(data)

    def _on_output(self) -> None:
        self.set_pace()
        self.send_output()

    def set_pace(self) -> None:
        """Let the command wait while the engine does not take its output."""
        should_pause = any(stream.is_full for stream in self.streams)
        if self.running is not None and should_pause != self._is_paused:
            self._is_paused = should_pause
            self.running.pause_output(should_pause)

    async def wait(self) -> calls.CommandEnded:
        assert self.running is not None
        end = await asyncio.shield(self.running.ended)
        return calls.CommandEnded(
            exit_code=end.exit_code,
            last_words=os.fsencode(end.last_words),
            error=end.error,
            total_bytes=(self.streams[0].total, self.streams[1].total),
        )

    async def feed(self, data: bytes, *, is_end: bool) -> None:
        """Put data into the stdin; waits while the command leaves much unread. Raises OSError."""
        feed = self.running.feed if self.running is not None else None
        if feed is None:
            raise ToolError("the command has no input")
        if data:
            feed.put(data)
            await feed.wait_below(MAX_FEED_BYTES)
        if is_end:
            feed.finish()

    async def send(self, channel: Channel) -> None:
        """Send the output that was not sent yet. Raises ConnectionError."""
        for stream in self.streams:
            while stream.sent < stream.total:
                offset, part = stream.next_part()
                await channel.send(wire.OUTPUT, self.number, wire.OFFSET.pack(stream.number, offset) + part)

    def earlier(self) -> calls.EarlierCommand:
        """What an engine that comes later is told."""
        code = None
        if self.running is not None and self.running.ended.done():
            end = self.running.ended.result()
            code = end.exit_code if not end.error else None
        return calls.EarlierCommand(exit_code=code, total_bytes=self.total_bytes, last_output=self.last_output)
