"""Where the sessions of an agent are: the interface, and the sessions of this process.

`LocalSessions` is what `parley acp` serves: its sessions end with the connection, and stay in the session store. A
gateway has another host. Methods raise RpcError with what the editor is told. The SDK is imported at the first use,
because `initialize` is answered before.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from parley.acp.prompts import convert_servers, convert_system_prompt
from parley.acp.schema import ClientCapabilities, NewSessionParams, OpenSessionParams, unknown_session
from parley.errors import SessionError
from parley.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions, format_args

if TYPE_CHECKING:
    from parley.jsonrpc import RpcConnection
    from parley.sdk.runtime.transport import Wire
    from parley.sdk.sessions import SDKSessionInfo


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


class ListedSession(Struct, frozen=True, kw_only=True):
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

    async def list(self, cwd: str | None, offset: int, limit: int) -> list[ListedSession]:
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


class LocalSessions(Struct, frozen=True, kw_only=True):
    options: CliOptions
    """The defaults of new sessions."""
    environment: Mapping[str, str]
    warn: Callable[[str], None]
    capabilities: tuple[str, ...] = ("fork", "title", "additionalDirectories", "systemPrompt")

    async def create(self, params: NewSessionParams, editor: Editor) -> SessionLink:
        from uuid import uuid4

        id = str(uuid4())
        return self._link(id, params, editor, session_id=id)

    async def find(self, params: OpenSessionParams, editor: Editor) -> SessionLink:
        info = await self._find_stored(params.session_id)
        link = self._link(params.session_id, params, editor, resume=params.session_id)
        link.title = info.summary

        async def read_history() -> AsyncIterator[Sequence[bytes]]:
            yield await asyncio.to_thread(self._read_history, params)

        link.read_history = read_history
        return link

    async def fork(self, params: OpenSessionParams, editor: Editor) -> SessionLink:
        from parley.sdk.sessions import fork_session

        await self._find_stored(params.session_id)
        try:
            made = await asyncio.to_thread(fork_session, params.session_id, **self._place(params.cwd))
        except (ValueError, OSError, SessionError) as exc:
            raise RpcError(INVALID_PARAMS, f"session/fork: {exc}") from None
        return self._link(made.session_id, params, editor, resume=made.session_id)

    async def list(self, cwd: str | None, offset: int, limit: int) -> list[ListedSession]:
        from parley.sdk.sessions import list_sessions

        found = await asyncio.to_thread(
            list_sessions, limit=limit, offset=offset, include_worktrees=False, **self._place(cwd)
        )
        return [
            ListedSession(
                id=info.session_id,
                cwd=info.cwd or cwd or "",
                title=info.summary,
                updated_at=info.last_modified / 1000,
            )
            for info in found
        ]

    async def find_directory(self, session_id: str) -> str | None:
        """Where a stored session works; None if that is unknown. Raises RpcError."""
        return (await self._find_stored(session_id)).cwd

    async def find_title(self, session_id: str, cwd: str) -> str:
        from parley.sdk.sessions import get_session_info

        info = await asyncio.to_thread(get_session_info, session_id, **self._place(cwd))
        return "" if info is None else info.summary

    async def rename(self, session_id: str, title: str) -> str:
        from parley.sdk.sessions import rename_session

        await self._find_stored(session_id)
        try:
            await asyncio.to_thread(rename_session, session_id, title, **self._place(None))
        except ValueError as exc:
            raise RpcError(INVALID_PARAMS, f"session/set_title: {exc}") from None
        except (OSError, SessionError) as exc:
            raise RpcError(INTERNAL_ERROR, f"session/set_title: {exc}") from None
        return title.strip()

    async def is_open(self, session_id: str) -> bool:
        await self._find_stored(session_id)
        return False

    async def delete(self, session_id: str) -> None:
        from parley.sdk.sessions import delete_session

        try:
            await asyncio.to_thread(delete_session, session_id, **self._place(None))
        except (ValueError, FileNotFoundError):
            raise unknown_session(session_id) from None
        except (OSError, SessionError) as exc:
            raise RpcError(INTERNAL_ERROR, f"session/delete: {exc}") from None

    def _link(self, id: str, params: NewSessionParams, editor: Editor, **which: Any) -> SessionLink:
        """Raises RpcError."""
        from parley.acp.editor_engine import EditorEngine
        from parley.sdk.launch.in_process import connect_in_process

        folders = params.additional_directories or []
        for folder in (params.cwd, *folders):
            check_folder(folder)
        options = self.options
        if servers := convert_servers(params.mcp_servers):
            config = msgspec.json.encode({"mcpServers": servers}).decode()
            which["mcp_config"] = (*(options.mcp_config or ()), config)
        if folders:
            which["add_dirs"] = (*(options.add_dirs or ()), *folders)
        if params.system_prompt is not None:
            which |= convert_system_prompt(params.system_prompt, options.append_system_prompt)
        options = options.replace(
            input_format="stream-json",
            output_format="stream-json",
            verbose=True,
            include_partial_messages=True,
            permission_prompt_tool="stdio",
            **which,
        )
        environment = {**self.environment, "PWD": params.cwd}
        engine = EditorEngine(format_args(options), params.cwd, environment, self.warn, editor, id)
        return SessionLink(
            id=id,
            cwd=params.cwd,
            wire=connect_in_process(engine),
            may_bypass=options.skip_permissions or options.allow_skip_permissions,
            watch_output=engine.set_watcher,
        )

    def _read_history(self, params: OpenSessionParams) -> Sequence[bytes]:
        from parley.sdk.sessions import read_conversation

        entries = read_conversation(params.session_id, **self._place(params.cwd))
        return [msgspec.json.encode(entry.message) for entry in entries]

    async def _find_stored(self, session_id: str) -> SDKSessionInfo:
        """Raises RpcError."""
        from parley.sdk.sessions import get_session_info

        info = await asyncio.to_thread(get_session_info, session_id, **self._place(None))
        if info is None:
            raise unknown_session(session_id)
        return info

    def _place(self, directory: str | None) -> Json:
        """Where sessions are stored."""
        database = self.options.database
        store = self.options.store or (None if database is None else f"sqlite:{database}")
        return {"directory": directory, "store": store, "env": self.environment}


def check_folder(path: str) -> None:
    """Raises RpcError."""
    if not os.path.isabs(path) or not os.path.isdir(path):
        raise RpcError(INVALID_PARAMS, f"{path!r} is not the absolute path of a directory")
