"""Where the sessions of an agent are.

`LocalSessions` (local_sessions.py) keeps them in this process and in the session store; a gateway has another host.
Methods raise RpcError with what the editor is told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from parley.acp.schema import ClientCapabilities, NewSessionParams, OpenSessionParams
from parley.protocol.base import Json, Struct

if TYPE_CHECKING:
    from parley.jsonrpc import RpcConnection
    from parley.sdk.runtime.transport import Wire


class SessionLink(Struct, kw_only=True):
    """A connection to one session, before it is opened."""

    id: str
    cwd: str
    title: str = ""
    wire: Wire
    servers: Json = {}
    """The MCP servers of the editor, if the engine was not started with them."""
    may_bypass: bool = False
    """Whether the mode `bypassPermissions` is offered."""
    read_history: Callable[[], AsyncIterator[Sequence[bytes]]] | None = None
    """Reads the lines of the conversation so far, in pages; None if it is new."""
    on_shown: Callable[[], None] = lambda: None
    """Called after the history was shown: new lines may follow it."""
    watch_output: Callable[[Callable[[str, bytes], None]], None] = lambda watch: None
    """Takes who gets what commands write, as they write it: the id of the call and the data."""
    is_shared: bool = False
    """Whether others can prompt the session too, so that their prompts are shown."""


class SessionSummary(Struct, frozen=True, kw_only=True):
    """A session in a list."""

    id: str
    cwd: str
    title: str
    updated_at: float


class SessionHost(Protocol):
    """Creates, finds and deletes sessions."""

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What it supports besides the methods that all hosts do, by the names in `sessionCapabilities`."""

    @property
    def warn(self) -> Callable[[str], None]:
        """Tells the operator what the editor is not told."""

    async def create(self, params: NewSessionParams, editor: Editor) -> SessionLink:
        """A new session."""

    async def find(self, params: OpenSessionParams, editor: Editor) -> SessionLink:
        """A session that exists."""

    async def fork(self, params: OpenSessionParams, editor: Editor) -> SessionLink:
        """A copy of a session."""

    async def list(self, cwd: str | None, offset: int, limit: int) -> list[SessionSummary]:
        """Sessions, the last used first."""

    async def find_title(self, session_id: str, cwd: str) -> str:
        """The title of a session; empty if it has none yet."""

    async def rename(self, session_id: str, title: str) -> str:
        """Change the title of a session; returns it as it is stored."""

    async def is_open(self, session_id: str) -> bool:
        """Whether a session that this connection does not have open is in memory."""

    async def delete(self, session_id: str) -> None:
        """Delete a session that is not open here."""


class Editor(Struct, frozen=True):
    """The client of a connection, and what it can do."""

    connection: RpcConnection
    capabilities: ClientCapabilities
