"""The methods that an editor calls.

    connection = RpcConnection(write)
    agent = AcpAgent(connection, AgentSettings(options=CliOptions(), environment=dict(os.environ), warn=warn))
    connection.receive(line)
    await agent.close()

What is not announced in `initialize` is not supported, and calling it is an error that says so. The engine and the SDK
are imported after `initialize` is answered.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from parley.acp import schema
from parley.acp.rpc import INTERNAL_ERROR, INVALID_PARAMS, Method, RpcConnection, RpcError
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions
from parley.version import __version__

if TYPE_CHECKING:
    from parley.acp.session import AcpSession
    from parley.sdk.sessions import SDKSessionInfo

NOT_FOUND = -32002
PAGE = 50
"""How many sessions `session/list` returns at once."""
REFUSED = {
    "providers": "set the model and its server with the options of `parley acp`",
    "nes": "Parley offers no edit predictions",
    "document": "Parley reads files when a tool needs them",
    "mcp": "configure MCP servers with the transport stdio, http or sse instead",
    "logout": "Parley has no login and uses API keys only",
}


class AgentSettings(Struct, frozen=True, kw_only=True):
    """What the sessions of an agent start with."""

    options: CliOptions
    """The defaults of new sessions."""
    environment: Mapping[str, str]
    warn: Callable[[str], None]
    check_folder: Callable[[str], None] = lambda path: None
    """Raises RpcError for a directory in which sessions may not work."""

    @property
    def store(self) -> str | None:
        database = self.options.database
        return self.options.store or (None if database is None else f"sqlite:{database}")


class AcpAgent:
    """The agent of one connection."""

    def __init__(self, connection: RpcConnection, settings: AgentSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._client = schema.ClientCapabilities()
        self._sessions: dict[str, AcpSession] = {}
        connection.refused = REFUSED
        connection.methods = {
            "initialize": Method(schema.InitializeParams, self.initialize),
            "authenticate": Method(schema.AuthenticateParams, self.authenticate),
            "session/new": Method(schema.NewSessionParams, self.new_session),
            "session/load": Method(schema.OpenSessionParams, self.load_session),
            "session/resume": Method(schema.OpenSessionParams, self.resume_session),
            "session/fork": Method(schema.OpenSessionParams, self.fork_session),
            "session/list": Method(schema.ListSessionsParams, self.list_sessions),
            "session/close": Method(schema.SessionParams, self.close_session),
            "session/delete": Method(schema.SessionParams, self.delete_session),
            "session/prompt": Method(schema.PromptParams, self.prompt),
            "session/cancel": Method(schema.SessionParams, self.cancel),
            "session/set_mode": Method(schema.SetModeParams, self.set_mode),
            "session/set_config_option": Method(schema.SetConfigOptionParams, self.set_config_option),
        }

    async def close(self) -> None:
        """The client is gone: end all sessions."""
        self._connection.disconnect()
        await self._close_sessions()
        await self._connection.close()
        await self._close_sessions()  # those that were being opened

    async def _close_sessions(self) -> None:
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(session.close() for session in sessions))

    async def initialize(self, params: schema.InitializeParams) -> Json:
        self._client = params.client_capabilities or schema.ClientCapabilities()
        asyncio.get_running_loop().call_soon(import_engine)
        return {
            "protocolVersion": schema.PROTOCOL_VERSION,
            "agentInfo": {"name": "parley", "title": "Parley", "version": __version__},
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {
                    name: {} for name in ("list", "resume", "fork", "close", "delete", "additionalDirectories")
                },
            },
        }

    async def authenticate(self, params: schema.AuthenticateParams) -> Json:
        raise RpcError(
            INVALID_PARAMS,
            "authenticate is not supported; set ANTHROPIC_API_KEY in the environment of `parley acp`",
        )

    # Sessions.

    async def new_session(self, params: schema.NewSessionParams) -> Json:
        from uuid import uuid4

        id = str(uuid4())
        session = await self._open(id, params, session_id=id)
        return {"sessionId": id, **opened(session)}

    async def load_session(self, params: schema.OpenSessionParams) -> Json:
        from parley.sdk.sessions import read_conversation

        info = await self._find_stored(params.session_id)
        entries = await asyncio.to_thread(read_conversation, params.session_id, **self._place(params.cwd))
        session = await self._open(params.session_id, params, info.summary, resume=params.session_id)
        session.replay([entry.message for entry in entries])
        return opened(session)

    async def resume_session(self, params: schema.OpenSessionParams) -> Json:
        info = await self._find_stored(params.session_id)
        return opened(await self._open(params.session_id, params, info.summary, resume=params.session_id))

    async def fork_session(self, params: schema.OpenSessionParams) -> Json:
        from parley.errors import SessionError
        from parley.sdk.sessions import fork_session

        await self._find_stored(params.session_id)
        try:
            made = await asyncio.to_thread(fork_session, params.session_id, **self._place(params.cwd))
        except (ValueError, OSError, SessionError) as exc:
            raise RpcError(INVALID_PARAMS, f"session/fork: {exc}") from None
        session = await self._open(made.session_id, params, resume=made.session_id)
        return {"sessionId": made.session_id, **opened(session)}

    async def list_sessions(self, params: schema.ListSessionsParams) -> Json:
        from parley.sdk.sessions import list_sessions

        cursor = params.cursor or "0"
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise RpcError(INVALID_PARAMS, f"session/list: unknown cursor {cursor!r:.50}")
        offset = int(cursor)
        found = await asyncio.to_thread(
            list_sessions, limit=PAGE + 1, offset=offset, include_worktrees=False, **self._place(params.cwd)
        )
        sessions = [
            {
                "sessionId": info.session_id,
                "cwd": info.cwd or params.cwd or "",
                "title": info.summary,
                "updatedAt": datetime.fromtimestamp(info.last_modified / 1000, UTC).isoformat(),
            }
            for info in found[:PAGE]
        ]
        return {"sessions": sessions, **({"nextCursor": str(offset + PAGE)} if len(found) > PAGE else {})}

    async def close_session(self, params: schema.SessionParams) -> Json:
        await self._take(params.session_id).close()
        return {}

    async def delete_session(self, params: schema.SessionParams) -> Json:
        from parley.errors import SessionError
        from parley.sdk.sessions import delete_session

        if (session := self._sessions.pop(params.session_id, None)) is not None:
            await session.close()
        try:
            await asyncio.to_thread(delete_session, params.session_id, **self._place(None))
        except (ValueError, FileNotFoundError):
            raise unknown_session(params.session_id) from None
        except (OSError, SessionError) as exc:
            raise RpcError(INTERNAL_ERROR, f"session/delete: {exc}") from None
        return {}

    async def _open(self, id: str, params: schema.NewSessionParams, title: str = "", **which: Any) -> AcpSession:
        """Raises RpcError. A session that is open here already is closed first."""
        from parley.acp.prompts import convert_servers
        from parley.acp.session import AcpSession, SessionStart

        defaults, folders = self._settings.options, params.additional_directories or []
        for folder in (params.cwd, *folders):
            check_folder(folder)
            self._settings.check_folder(folder)
        if servers := convert_servers(params.mcp_servers):
            config = msgspec.json.encode({"mcpServers": servers}).decode()
            which["mcp_config"] = (*(defaults.mcp_config or ()), config)
        if folders:
            which["add_dirs"] = (*(defaults.add_dirs or ()), *folders)
        if (old := self._sessions.pop(id, None)) is not None:
            await old.close()
        start = SessionStart(
            cwd=params.cwd,
            options=defaults.replace(**which),
            environment={**self._settings.environment, "PWD": params.cwd},
            warn=self._settings.warn,
        )
        session = AcpSession(id, start, self._connection, self._client)
        session.title = title
        await session.open()
        self._sessions[id] = session
        # After the response, so that the client knows the session.
        asyncio.get_running_loop().call_soon(session.announce)
        return session

    async def _find_stored(self, session_id: str) -> SDKSessionInfo:
        """Raises RpcError."""
        from parley.sdk.sessions import get_session_info

        info = await asyncio.to_thread(get_session_info, session_id, **self._place(None))
        if info is None:
            raise unknown_session(session_id)
        return info

    def _place(self, directory: str | None) -> Json:
        """Where sessions are stored."""
        return {"directory": directory, "store": self._settings.store, "env": self._settings.environment}

    def _get(self, session_id: str) -> AcpSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise unknown_session(session_id)
        return session

    def _take(self, session_id: str) -> AcpSession:
        session = self._get(session_id)
        del self._sessions[session_id]
        return session

    # Turns.

    async def prompt(self, params: schema.PromptParams) -> Json:
        from parley.acp.prompts import convert_prompt

        session = self._get(params.session_id)
        result = await session.prompt(convert_prompt(params.prompt))
        if not session.title:
            await self._find_title(session)
        return result

    async def _find_title(self, session: AcpSession) -> None:
        """Send the title of a session, which it has after its first prompt."""
        from parley.sdk.sessions import get_session_info

        info = await asyncio.to_thread(get_session_info, session.id, **self._place(session.cwd))
        if info is not None and info.summary:
            session.title = info.summary
            session.send_title()

    async def cancel(self, params: schema.SessionParams) -> None:
        await self._get(params.session_id).cancel()

    async def set_mode(self, params: schema.SetModeParams) -> Json:
        await self._get(params.session_id).set_option("mode", params.mode_id)
        return {}

    async def set_config_option(self, params: schema.SetConfigOptionParams) -> Json:
        session = self._get(params.session_id)
        await session.set_option(params.config_id, params.value)
        return {"configOptions": session.config.options()}


def opened(session: AcpSession) -> Json:
    return {"modes": session.config.modes(), "configOptions": session.config.options()}


def check_folder(path: str) -> None:
    """Raises RpcError."""
    if not os.path.isabs(path) or not os.path.isdir(path):
        raise RpcError(INVALID_PARAMS, f"{path!r} is not the absolute path of a directory")


def unknown_session(session_id: str) -> RpcError:
    return RpcError(NOT_FOUND, f"there is no session {session_id!r:.100}", {"sessionId": session_id})


def import_engine() -> None:
    """Import what a session needs, while the client reads the answer to `initialize`."""
    import parley.acp.prompts
    import parley.acp.session
    import parley.compose.composer
    import parley.engine.session.hub
    import parley.engine.session.pump  # noqa: F401
