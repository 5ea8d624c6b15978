"""The methods that an editor calls.

    connection = RpcConnection(write)
    agent = AcpAgent(connection, LocalSessions(options=CliOptions(), environment=dict(os.environ), warn=warn))
    connection.receive(line)
    await agent.close()

What is not announced in `initialize` is not supported, and calling it is an error that says so. The engine and the SDK
are imported after `initialize` is answered.

See also: `host.py` for where the sessions are, `session.py` for one of them.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from parley.acp import schema
from parley.acp.host import Editor, SessionHost, SessionLink
from parley.jsonrpc import INVALID_PARAMS, Method, RpcConnection, RpcError
from parley.protocol.base import Json
from parley.version import __version__

if TYPE_CHECKING:
    from parley.acp.session import AcpSession

PAGE = 50
"""How many sessions `session/list` returns at once."""
CAPABILITIES: Json = {
    "list": {},
    "resume": {},
    "close": {},
    "delete": {},
    "status": {},
    "fork": {},
    "title": {},
    "additionalDirectories": {},
    "systemPrompt": {"mode": {"override": {}}},
}
"""What may be announced in `sessionCapabilities`, with its details."""
EVERYWHERE = ("list", "resume", "close", "delete", "status")
"""What all hosts of sessions support."""
REFUSED = {
    "providers": "set the model and its server with the options of Parley",
    "nes": "Parley offers no edit predictions",
    "document": "Parley reads files when a tool needs them",
    "mcp": "configure MCP servers with the transport stdio, http or sse instead",
    "auth": "Parley has no login and uses API keys only",
    "logout": "Parley has no login and uses API keys only",
    "proxy": "Parley is an agent and cannot forward messages to another one",
    "session/archive": "sessions cannot be archived; delete the sessions that you no longer need",
    "session/unarchive": "sessions cannot be archived",
}
"""Why methods of the schema are not supported, by their name or its part before the slash."""


class AcpAgent:
    """The agent of one connection."""

    def __init__(self, connection: RpcConnection, host: SessionHost) -> None:
        self._connection = connection
        self._host = host
        self._editor = Editor(connection, schema.ClientCapabilities())
        self._sessions: dict[str, AcpSession] = {}
        self._loading = asyncio.Lock()
        """Held while a history is shown: a client that loads again and again has one in memory."""
        connection.refused = REFUSED
        connection.methods = {
            "initialize": Method(schema.InitializeParams, self.initialize),
            "authenticate": Method(schema.AuthenticateParams, self.authenticate),
            "session/new": Method(schema.NewSessionParams, self.new_session),
            "session/load": Method(schema.OpenSessionParams, self.load_session),
            "session/resume": Method(schema.OpenSessionParams, self.resume_session),
            "session/fork": Method(schema.OpenSessionParams, self.fork_session),
            "session/list": Method(schema.ListSessionsParams, self.list_sessions),
            "session/status": Method(schema.SessionParams, self.get_status),
            "session/set_title": Method(schema.SetTitleParams, self.set_title),
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
        self._editor = Editor(self._connection, params.client_capabilities or schema.ClientCapabilities())
        asyncio.get_running_loop().call_soon(import_engine)
        return {
            "protocolVersion": schema.PROTOCOL_VERSION,
            "agentInfo": {"name": "parley", "title": "Parley", "version": __version__},
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {name: CAPABILITIES[name] for name in (*EVERYWHERE, *self._host.capabilities)},
            },
        }

    async def authenticate(self, params: schema.AuthenticateParams) -> Json:
        raise RpcError(
            INVALID_PARAMS,
            "authenticate is not supported; set ANTHROPIC_API_KEY in the environment of Parley",
        )

    # Sessions.

    async def new_session(self, params: schema.NewSessionParams) -> Json:
        self._check_params(params)
        session = await self._open(await self._host.create(params, self._editor))
        return {"sessionId": session.id, **opened(session)}

    async def load_session(self, params: schema.OpenSessionParams) -> Json:
        return opened(await self._reopen(params, with_history=True))

    async def resume_session(self, params: schema.OpenSessionParams) -> Json:
        return opened(await self._reopen(params, with_history=False))

    async def fork_session(self, params: schema.OpenSessionParams) -> Json:
        self._check_params(params)
        self._require("fork", "session/fork")
        session = await self._open(await self._host.fork(params, self._editor))
        return {"sessionId": session.id, **opened(session)}

    async def list_sessions(self, params: schema.ListSessionsParams) -> Json:
        cursor = params.cursor or "0"
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise RpcError(INVALID_PARAMS, f"session/list: unknown cursor {cursor!r:.50}")
        offset = int(cursor)
        found = await self._host.list(params.cwd, offset, PAGE + 1)
        sessions = [
            {
                "sessionId": each.id,
                "cwd": each.cwd,
                "title": each.title,
                "updatedAt": datetime.fromtimestamp(each.updated_at, UTC).isoformat(),
            }
            for each in found[:PAGE]
        ]
        return {"sessions": sessions, **({"nextCursor": str(offset + PAGE)} if len(found) > PAGE else {})}

    async def get_status(self, params: schema.SessionParams) -> Json:
        is_open = params.session_id in self._sessions or await self._host.is_open(params.session_id)
        return {"status": "open" if is_open else "saved"}

    async def set_title(self, params: schema.SetTitleParams) -> Json:
        self._require("title", "session/set_title")
        title = await self._host.rename(params.session_id, params.title)
        if (session := self._sessions.get(params.session_id)) is not None:
            session.title = title
            session.send_title()
        return {"title": title}

    async def close_session(self, params: schema.SessionParams) -> Json:
        session = self._get(params.session_id)
        del self._sessions[params.session_id]
        await session.close(cancels=True)
        return {}

    async def delete_session(self, params: schema.SessionParams) -> Json:
        await self._leave(params.session_id)
        await self._host.delete(params.session_id)
        return {}

    async def _reopen(self, params: schema.OpenSessionParams, *, with_history: bool) -> AcpSession:
        """Raises RpcError. A session that is open here already is closed first."""
        self._check_params(params)
        async with self._loading:
            link = await self._host.find(params, self._editor)
            await self._leave(params.session_id)
            return await self._open(link, with_history=with_history)

    async def _open(self, link: SessionLink, *, with_history: bool = False) -> AcpSession:
        """Raises RpcError."""
        from parley.acp.session import AcpSession

        session = AcpSession(link, self._editor, self._host.warn)
        await session.open(with_history=with_history)
        self._sessions[link.id] = session
        # After the response, so that the client knows the session.
        asyncio.get_running_loop().call_soon(session.announce)
        return session

    async def _leave(self, session_id: str) -> None:
        if (old := self._sessions.pop(session_id, None)) is not None:
            await old.close()

    def _check_params(self, params: schema.NewSessionParams) -> None:
        """Refuse what was not announced. Raises RpcError."""
        if params.additional_directories:
            self._require("additionalDirectories", "additionalDirectories")
        if params.system_prompt is not None:
            self._require("systemPrompt", "systemPrompt")

    def _require(self, capability: str, what: str) -> None:
        if capability not in self._host.capabilities:
            raise RpcError(INVALID_PARAMS, f"{what} is not supported for these sessions")

    def _get(self, session_id: str) -> AcpSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise schema.unknown_session(session_id)
        return session

    # Turns.

    async def prompt(self, params: schema.PromptParams) -> Json:
        from parley.acp.prompts import convert_prompt

        session = self._get(params.session_id)
        result = await session.prompt(convert_prompt(params.prompt))
        # A session has a title after its first prompt.
        if not session.title and (title := await self._host.find_title(session.id, session.cwd)):
            session.title = title
            session.send_title()
        return result

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


def import_engine() -> None:
    """Import what a session needs, while the client reads the answer to `initialize`."""
    import parley.acp.prompts
    import parley.acp.session
    import parley.compose.composer
    import parley.engine.session.pump  # noqa: F401
