"""The calls that an engine makes to a workspace server, one struct each, and their results.

A call names the class of its result, and the session on the server has a method `serve_TAG` for it (sessions.py).
`reads_only` calls may be made again after a lost connection, even if the server has forgotten the first; all others are
made at most once (link.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union

from parley.protocol.base import Struct
from parley.workspace.base import (
    ContentQuery,
    FileListing,
    FileSnapshot,
    RewindReport,
    Scope,
    SearchMatches,
    Worktree,
    WorktreeChanges,
)

MAX_FACTS = 20_000
"""In one call."""
Fact = tuple[str, str, int]
"""What is asked (`FactReader`), the path, and a limit."""


class Call(Struct, frozen=True, kw_only=True, tag_field="call", forbid_unknown_fields=True):
    result: ClassVar[Any] = None
    reads_only: ClassVar[bool] = False
    timeout_seconds: ClassVar[float | None] = 60.0
    """None: it ends with the connection."""


class ReadFile(Call, frozen=True, kw_only=True, tag="read"):
    result = FileSnapshot | None
    reads_only = True
    path: str
    scope: Scope
    limit_bytes: int | None = None
    how: Literal["read", "cached", "peek"] = "read"


class WriteFile(Call, frozen=True, kw_only=True, tag="write"):
    result = FileSnapshot
    path: str
    data: bytes
    scope: Scope
    replacing: FileSnapshot | None
    """Its `data` is left out if `replaced_sha256` is given."""
    replaced_sha256: bytes | None = None


class TrackCommand(Call, frozen=True, kw_only=True, tag="track"):
    """Before or after a command, which may change any file."""

    timeout_seconds = 600.0
    is_over: bool


class ChangedBy(Call, frozen=True, kw_only=True, tag="changed_by"):
    result = list[str] | None
    reads_only = True
    tool_use_id: str


class BeginMessage(Call, frozen=True, kw_only=True, tag="begin_message"):
    id: str


class Rewind(Call, frozen=True, kw_only=True, tag="rewind"):
    result = RewindReport
    timeout_seconds = 600.0
    id: str
    dry_run: bool
    with_diffs: bool


class UseHistory(Call, frozen=True, kw_only=True, tag="use_history"):
    """Record further changes in the history of a session that continues another."""

    session: str
    inherits: str


class ListFiles(Call, frozen=True, kw_only=True, tag="list"):
    result = FileListing
    reads_only = True
    timeout_seconds = 300.0
    pattern: str
    path: str
    cwd: str
    scope: Scope
    most: int
    ignored: bool
    hidden: bool
    search: int
    """A number of the engine's, for StopSearch."""


class StopSearch(Call, frozen=True, kw_only=True, tag="stop_search"):
    """End a search for files; what it has found is its result."""

    search: int


class SearchFiles(Call, frozen=True, kw_only=True, tag="search"):
    result = SearchMatches
    reads_only = True
    timeout_seconds = 300.0
    query: ContentQuery
    path: str
    cwd: str
    scope: Scope
    seconds: float
    enough_lines: int


class WorktreeResult(Struct, frozen=True, kw_only=True):
    worktree: Worktree | None = None
    changes: WorktreeChanges | None = None
    was_kept: bool = False


class WorktreeCall(Call, frozen=True, kw_only=True, tag="worktree"):
    result = WorktreeResult
    timeout_seconds = 600.0
    action: Literal["open", "create", "find", "leave", "find_changes", "remove", "sweep"]
    cwd: str = ""
    name: str = ""
    worktree: Worktree | None = None


class StartCommand(Call, frozen=True, kw_only=True, tag="start"):
    """Start a command. Its output arrives in frames of the kind OUTPUT with the id `command`."""

    result = None
    timeout_seconds = 30.0
    command: int
    argv: list[bytes]
    cwd: bytes
    environment: dict[str, bytes]
    is_interactive: bool = False
    """Whether it has a stdin, and a stderr of its own."""
    record: str = ""
    """An output file that the server writes itself; the engine gets only the number of bytes."""
    tool_use_id: str = ""


class CommandEnded(Struct, frozen=True, kw_only=True):
    """The end of a command, and how much output precedes it."""

    exit_code: int
    last_words: bytes
    error: str
    total_bytes: tuple[int, int]


class WaitForCommand(Call, frozen=True, kw_only=True, tag="wait"):
    result = CommandEnded
    timeout_seconds = None
    command: int


class WaitForOutput(Call, frozen=True, kw_only=True, tag="wait_output"):
    """Until the output is closed. The result is its size."""

    result = int
    timeout_seconds = None
    command: int


class FeedCommand(Call, frozen=True, kw_only=True, tag="feed"):
    """Write to the stdin of a command, and close it at the end."""

    command: int
    data: bytes = b""
    is_end: bool = False


class StopCommand(Call, frozen=True, kw_only=True, tag="stop"):
    command: int
    forget: bool = False
    """Also release what is kept of it."""


class StopAll(Call, frozen=True, kw_only=True, tag="stop_all"):
    timeout_seconds = 15.0


class EarlierCommand(Struct, frozen=True, kw_only=True):
    """What is known of a command that an engine started and did not see end."""

    exit_code: int | None
    """None if it was ended because its engine was gone."""
    total_bytes: int
    last_output: bytes


class FindEarlierCommand(Call, frozen=True, kw_only=True, tag="find_earlier"):
    result = EarlierCommand | None
    reads_only = True
    timeout_seconds = 10.0
    tool_use_id: str


class OpenRecord(Call, frozen=True, kw_only=True, tag="open_record"):
    path: str
    again: bool = False


class AppendRecord(Call, frozen=True, kw_only=True, tag="append_record"):
    """The result says what could not be saved, or is empty."""

    result = str
    path: str
    offset: int
    data: bytes


class CloseRecord(Call, frozen=True, kw_only=True, tag="close_record"):
    result = str
    path: str
    remove: bool = False


class ReadRecord(Call, frozen=True, kw_only=True, tag="read_record"):
    """The end of an output file, and its size."""

    result = tuple[int, bytes]
    reads_only = True
    timeout_seconds = 30.0
    path: str
    limit_bytes: int


class SaveResult(Call, frozen=True, kw_only=True, tag="save_result"):
    path: str
    data: bytes


class EndSession(Call, frozen=True, kw_only=True, tag="end"):
    """The engine ends the session: nothing of it has to be kept for another connection."""

    timeout_seconds = 2.0


class FindFacts(Call, frozen=True, kw_only=True, tag="facts"):
    result = list[Any]
    reads_only = True
    timeout_seconds = 20.0
    facts: list[Fact]


if TYPE_CHECKING:
    AnyCall = Call
else:
    AnyCall = Union[tuple(Call.__subclasses__())]  # noqa: UP007  # it is computed


class RequestBody(Struct, frozen=True, array_like=True):
    settled: list[int]
    """The calls whose results the engine has got since its last request."""
    call: AnyCall


class Failure(Struct, frozen=True, array_like=True):
    kind: Literal["tool", "system", "not_written"]
    text: str
    errno: int = 0
