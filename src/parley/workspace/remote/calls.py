"""The operations of a workspace server: what an engine may ask of it, and how the server does it.

An operation is one function. Its first argument is what the calls of a session work with, on the server; the others
come from the engine, which gets the result, or the ToolError, OSError or NotWritten that the function raises:

    @operation(reads_only=True)
    def changed_by(at: ServedWorkspace, tool_use_id: str) -> list[str] | None:
        return at.files.changed_by(tool_use_id)

    link.call(changed_by("toolu_1"))        # on the engine: list[str] | None

The messages follow from the signatures. Paths are limited to the root of the server and to the session's own folder,
whatever the engine asks for.

See also: how calls travel (wire.py, link.py, server.py), and who makes them (client.py, processes.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import os
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_type_hints,
    overload,
)

import msgspec
from msgspec.structs import asdict, replace

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.base import (
    ContentQuery,
    FileListing,
    FileSnapshot,
    RewindReport,
    Scope,
    SearchArea,
    SearchMatches,
    Worktree,
    WorktreeChanges,
)
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles
from parley.workspace.process.processes import OutputRecord, PreparedCommand, Processes
from parley.workspace.remote.commands import CommandEnded, EarlierCommand, ServedCommand
from parley.workspace.safe_open import Pins, is_beneath
from parley.workspace.search.search import LocalSearch
from parley.workspace.worktrees import GitWorktrees

T = TypeVar("T")
P = ParamSpec("P")
MAX_COMMANDS = 256
MAX_FACTS = 20_000
"""In one call."""
FORGOTTEN = (
    "the workspace does not know this command: it was restarted during this call, or the connection was lost for longer"
    " than its grace period. What the command has done is not known."
)
Fact = tuple[str, str, int]
"""What is asked (`FactReader`), the path, and a limit."""
FactFinders = Mapping[str, Callable[[str, int], Any]]


class SessionPlace(Struct, frozen=True, kw_only=True):
    """Where a session may work."""

    root: str
    own: Path
    """The folder for its results and task output."""
    histories: Path
    """The folder with the file checkpoints of all sessions."""
    environment: dict[str, str]
    find_fact: FactFinders

    def history(self, session: str) -> Path:
        return self.histories / safe_name(session)


class ServedWorkspace:
    """What the calls of one session work with."""

    def __init__(
        self,
        place: SessionPlace,
        files: LocalFiles,
        search: LocalSearch,
        processes: Processes,
        worktrees: GitWorktrees,
        send_output: Callable[[], None],
        pins: Pins,
    ) -> None:
        self.place = place
        self.files = files
        self.search = search
        self.processes = processes
        self.worktrees = worktrees
        self.send_output = send_output
        """Called when a command has written something."""
        self.commands: dict[int, ServedCommand] = {}
        self.records: dict[str, OutputRecord] = {}
        self.searches: set[int] = set()
        """Those that run and were not stopped."""
        self.earlier: dict[str, EarlierCommand] = {}
        """What is known of commands that have ended with their engine, by the id of the tool call."""
        self.order = asyncio.Lock()
        """Changes are made in the order of their calls."""
        self.is_ended = False
        """Whether the engine has ended the session."""
        self._roots = (place.root, str(place.own))
        self._pins = pins

    def _contains(self, real: str) -> bool:
        return any(real == root or is_beneath(real, root) for root in self._roots)

    def narrow(self, scope: Scope) -> Scope:
        """The part of a scope that is in the workspace."""
        if self.place.root == "/":
            return scope
        if scope.anywhere:
            return Scope(folders=self._roots, call=scope.call)
        folders: list[str] = []
        for folder in scope.folders:
            real = self._pins.real(folder)
            if self._contains(real):
                folders.append(folder)
            else:  # a folder above the root covers the root
                folders += [root for root in self._roots if is_beneath(root, real)]
        files = tuple(file for file in scope.files if any(is_beneath(file, root) for root in self._roots))
        return Scope(folders=tuple(folders), files=files, call=scope.call)

    def check_folder(self, path: str) -> None:
        """Raises ToolError if a command must not start in a folder."""
        if not self._contains(os.path.realpath(path)):
            raise ToolError(f"{path} is outside the workspace ({self.place.root})")

    def own_path(self, path: str) -> Path:
        """Raises ToolError for a path that is not in the session's own folder."""
        given, own = Path(path), self.place.own
        if ".." in given.parts or not given.is_relative_to(own) or given == own:
            raise ToolError(f"{path} is not in the folder of the session ({own})")
        return given

    def find_command(self, number: int) -> ServedCommand:
        if (command := self.commands.get(number)) is None or command.running is None:
            raise ToolError(FORGOTTEN)
        return command


class Call(Generic[T]):
    """An operation with its arguments."""

    def __init__(self, operation: Operation[..., T], message: Any) -> None:
        self.operation = operation
        self.message = message


class Operation(Generic[P, T]):
    """What an engine may ask for. Calling it with the arguments makes the `Call`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        reads_only: bool = False,
        is_ordered: bool = False,
        timeout_seconds: float | None = 60.0,
    ) -> None:
        self.reads_only = reads_only
        """It may be done again after a lost connection, even if the server has forgotten the first call. All others
        are done at most once (link.py)."""
        self.timeout_seconds = timeout_seconds
        """None: it ends with the connection."""
        self._function = function
        self._is_ordered = is_ordered
        """It changes something, and takes effect in the order of the calls."""
        hints, signature = get_type_hints(function), inspect.signature(function)
        self.result = hints["return"]
        parameters = list(signature.parameters.values())[1:]
        self._signature = signature.replace(parameters=parameters)
        fields = [
            (each.name, hints[each.name], msgspec.NODEFAULT if each.default is each.empty else each.default)
            for each in parameters
        ]
        name = function.__name__
        self.message = msgspec.defstruct(
            name, fields, tag_field="call", tag=name, frozen=True, kw_only=True, forbid_unknown_fields=True
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        return Call(self, self.message(**self._signature.bind(*args, **kwargs).arguments))

    async def serve(self, at: ServedWorkspace, message: Any) -> T:
        """Do it on the server; what is not async, in a thread."""
        arguments = asdict(message)
        if "scope" in arguments:  # now: a command may replace a folder before the turn of this call comes
            arguments["scope"] = at.narrow(arguments["scope"])
        work = partial(self._function, at, **arguments)
        async with at.order if self._is_ordered else contextlib.nullcontext():
            if inspect.iscoroutinefunction(self._function):
                return await work()  # type: ignore[no-any-return]  # a T, as its signature says
            return await run_in_thread(work)


OPERATIONS: dict[str, Operation[..., Any]] = {}


class operation:  # noqa: N801  # a decorator
    """Adds a function to the operations."""

    def __init__(self, **options: Any) -> None:
        """As `Operation` takes them."""
        self._options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[ServedWorkspace, P], Coroutine[Any, Any, T]]
    ) -> Operation[P, T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[ServedWorkspace, P], T]) -> Operation[P, T]: ...
    def __call__(self, function: Callable[..., Any]) -> Operation[..., Any]:
        found = OPERATIONS[function.__name__] = Operation[..., Any](function, **self._options)
        return found


# Files.


@operation(reads_only=True)
def read_file(
    at: ServedWorkspace, path: str, scope: Scope, limit_bytes: int | None = None, must_exist: bool = True
) -> FileSnapshot | None:
    read = at.files.read if must_exist else at.files.peek
    return read(path, scope, limit_bytes)


@operation(is_ordered=True)
def write_file(
    at: ServedWorkspace,
    path: str,
    data: bytes,
    scope: Scope,
    replacing: FileSnapshot | None,
    replaced_sha256: bytes | None = None,
) -> FileSnapshot:
    """The data of `replacing` is left out if its hash is given."""
    if replacing is not None and replaced_sha256 is not None:
        current = at.files.peek(path, scope)
        if current is not None and hashlib.sha256(current.data).digest() != replaced_sha256:
            raise ToolError(f"{current.path} has changed since it was read. Read it again before you write it.")
        replacing = replace(replacing, data=b"" if current is None else current.data)
    written = at.files.write(path, data, scope, replacing=replacing)
    return replace(written, data=b"") if written.data == data else written


@operation(is_ordered=True, timeout_seconds=600.0)
def track_command(at: ServedWorkspace, is_over: bool) -> None:
    """Before or after a command, which may change any file."""
    (at.files.after_command if is_over else at.files.before_command)()


@operation(reads_only=True)
def changed_by(at: ServedWorkspace, tool_use_id: str) -> list[str] | None:
    return at.files.changed_by(tool_use_id)


@operation(is_ordered=True)
def begin_message(at: ServedWorkspace, id: str) -> None:
    at.files.begin_message(id)


@operation(is_ordered=True, timeout_seconds=600.0)
def rewind(at: ServedWorkspace, id: str, dry_run: bool, with_diffs: bool) -> RewindReport:
    return at.files.rewind(id, dry_run=dry_run, with_diffs=with_diffs)


@operation(is_ordered=True)
def use_history(at: ServedWorkspace, session: str, inherits: str) -> None:
    """Record further changes in the history of a session that continues another."""
    history = at.place.history(session)
    CheckpointStore(history).inherit(CheckpointStore(at.place.history(inherits)))
    at.files.use_history(history)


@operation(timeout_seconds=2.0)
async def end_session(at: ServedWorkspace) -> None:
    """The engine ends the session: nothing of it has to be kept for another connection."""
    at.is_ended = True
    async with at.order:  # after the changes that were asked for before
        await run_in_thread(at.files.close)


# Search, worktrees and facts.


@operation(reads_only=True, timeout_seconds=300.0)
async def list_files(
    at: ServedWorkspace,
    pattern: str,
    path: str,
    cwd: str,
    scope: Scope,
    most: int,
    ignored: bool,
    hidden: bool,
    search: int,
) -> FileListing:
    """`search` is a number of the engine's, for `stop_search`."""
    area = SearchArea(path=path, cwd=cwd, scope=scope)
    at.searches.add(search)
    stop = lambda: search not in at.searches  # noqa: E731
    try:
        return await run_in_thread(
            lambda: at.search.files(pattern, area, most=most, ignored=ignored, hidden=hidden, stop=stop)
        )
    finally:
        at.searches.discard(search)


@operation()
async def stop_search(at: ServedWorkspace, search: int) -> None:
    """End a search for files; what it has found is its result."""
    at.searches.discard(search)


@operation(reads_only=True, timeout_seconds=300.0)
async def search_files(
    at: ServedWorkspace, query: ContentQuery, path: str, cwd: str, scope: Scope, seconds: float, enough_lines: int
) -> SearchMatches:
    area = SearchArea(path=path, cwd=cwd, scope=scope)
    return await at.search.matches(query, area, timeout_seconds=seconds, enough_lines=enough_lines)


@operation(timeout_seconds=600.0)
async def open_worktree(at: ServedWorkspace, how: Literal["open", "create", "find"], cwd: str, name: str) -> Worktree:
    at.check_folder(cwd)
    trees = at.worktrees
    return await {"open": trees.open, "create": trees.create, "find": trees.find}[how](cwd, name)


@operation(timeout_seconds=600.0)
async def find_worktree_changes(at: ServedWorkspace, worktree: Worktree) -> WorktreeChanges:
    at.check_folder(worktree.path)
    return await at.worktrees.find_changes(worktree)


@operation(timeout_seconds=600.0)
async def leave_worktree(at: ServedWorkspace, worktree: Worktree) -> bool:
    at.check_folder(worktree.path)
    return await at.worktrees.leave(worktree)


@operation(timeout_seconds=600.0)
async def remove_worktree(at: ServedWorkspace, worktree: Worktree) -> None:
    at.check_folder(worktree.path)
    await at.worktrees.remove(worktree)


@operation(timeout_seconds=600.0)
async def sweep_worktrees(at: ServedWorkspace, cwd: str) -> None:
    at.check_folder(cwd)
    await at.worktrees.sweep(cwd)


@operation(reads_only=True, timeout_seconds=20.0)
def find_facts(at: ServedWorkspace, facts: list[Fact]) -> list[Any]:
    if len(facts) > MAX_FACTS:
        raise ToolError(f"more than {MAX_FACTS} facts")
    return [make_portable(at.place.find_fact[kind](path, limit)) for kind, path, limit in facts]


# Commands.


@operation(timeout_seconds=30.0)
async def start_command(
    at: ServedWorkspace,
    command: int,
    argv: list[bytes],
    cwd: bytes,
    environment: dict[str, bytes],
    is_interactive: bool = False,
    record: str = "",
    tool_use_id: str = "",
) -> None:
    """Start a command. Its output arrives in frames of the kind OUTPUT with the id `command`.

    An interactive one has a stdin, and a stderr of its own. `record` is an output file that the server writes itself;
    the engine gets only the number of bytes.
    """
    if command in at.commands:
        raise ToolError("there is a command with this number")
    if len(at.commands) >= MAX_COMMANDS:
        raise ToolError(f"the command could not be started: {MAX_COMMANDS} commands run or wait for their engine")
    at.check_folder(os.fsdecode(cwd))
    served = ServedCommand(command, tool_use_id, at.records[record] if record else None, at.send_output)
    at.commands[command] = served
    try:
        prepared = PreparedCommand(
            argv=[os.fsdecode(word) for word in argv],
            cwd=os.fsdecode(cwd),
            environment={name: os.fsdecode(value) for name, value in environment.items()},
        )
        take_errors = served.streams[1].add if is_interactive else None
        served.running = await at.processes.start(prepared, served.take, take_errors)
    except BaseException:
        del at.commands[command]
        raise


@operation(timeout_seconds=None)
async def wait_for_command(at: ServedWorkspace, command: int) -> CommandEnded:
    return await at.find_command(command).wait()


@operation(timeout_seconds=None)
async def wait_for_output(at: ServedWorkspace, command: int) -> int:
    """Until the output is closed. The result is its size."""
    served = at.find_command(command)
    assert served.running is not None
    await asyncio.shield(served.running.output_ended)
    return served.streams[0].total


@operation()
async def feed_command(at: ServedWorkspace, command: int, data: bytes = b"", is_end: bool = False) -> None:
    """Write to the stdin of a command, and close it at the end."""
    await at.find_command(command).feed(data, is_end=is_end)


@operation()
async def stop_command(at: ServedWorkspace, command: int, forget: bool = False) -> None:
    """`forget`: also release what is kept of it."""
    served = at.commands.get(command)
    if served is None or served.running is None:
        return
    served.running.stop()
    if forget:
        # The supervisor of the command ends it; what it still writes is discarded.
        await asyncio.wait({served.running.ended}, timeout=10)
        at.commands.pop(command, None)


@operation(timeout_seconds=15.0)
async def stop_all(at: ServedWorkspace) -> None:
    await at.processes.close()


@operation(reads_only=True, timeout_seconds=10.0)
async def find_earlier_command(at: ServedWorkspace, tool_use_id: str) -> EarlierCommand | None:
    return at.earlier.get(tool_use_id)


# The session's own files.


@operation()
async def open_record(at: ServedWorkspace, path: str, again: bool = False) -> None:
    opened = at.processes.outputs.open(at.own_path(path), again=again)
    if (before := at.records.pop(path, None)) is not None:
        before.close()
    at.records[path] = opened


@operation()
async def append_record(at: ServedWorkspace, path: str, offset: int, data: bytes) -> str:
    """The result says what could not be saved, or is empty."""
    record = at.records.get(path)
    if record is None:
        return "the output file is closed"
    record.write(offset, data)
    return record.problem


@operation()
async def close_record(at: ServedWorkspace, path: str, remove: bool = False) -> str:
    record = at.records.pop(path, None)
    if record is not None:
        record.close()
    if remove:
        at.processes.outputs.remove(at.own_path(path))
    return "" if record is None else record.problem


@operation(reads_only=True, timeout_seconds=30.0)
def read_record(at: ServedWorkspace, path: str, limit_bytes: int) -> tuple[int, bytes]:
    """The end of an output file, and its size."""
    return at.processes.outputs.tail(at.own_path(path), max(0, limit_bytes))


@operation()
def save_result(at: ServedWorkspace, path: str, data: bytes) -> None:
    at.processes.outputs.save(at.own_path(path), data)


if TYPE_CHECKING:
    Message = Any
else:
    Message = Union[tuple(each.message for each in OPERATIONS.values())]  # noqa: UP007  # it is computed


class RequestBody(Struct, frozen=True, array_like=True):
    settled: list[int]
    """The calls whose results the engine has got since its last request."""
    message: Message


def make_portable(fact: Any) -> Any:
    """A fact without names that are not valid Unicode: those become bytes."""
    if isinstance(fact, dict):
        return {make_portable(name): value for name, value in fact.items()}
    if isinstance(fact, str):
        try:
            fact.encode()
        except UnicodeEncodeError:
            return os.fsencode(fact)
    return fact


def safe_name(session: str) -> str:
    """A session's name as that of a folder."""
    if session and len(session) <= 100 and all(c.isascii() and (c.isalnum() or c in "-_") for c in session):
        return session
    return hashlib.sha256(session.encode(errors="surrogateescape")).hexdigest()
