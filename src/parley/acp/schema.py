"""What an editor sends: the parameters of each method, as ACP version 1 declares them.

Unknown fields are ignored, as the protocol wants it. The official schema is the authority; only what is used is here.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from parley.jsonrpc import RpcError
from parley.protocol.base import Json, Struct

PROTOCOL_VERSION = 1
NOT_FOUND = -32002


def unknown_session(session_id: str) -> RpcError:
    return RpcError(NOT_FOUND, f"there is no session {session_id!r:.100}", {"sessionId": session_id})


class Params(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of parameters."""


class ElicitationCapabilities(Params, frozen=True, kw_only=True):
    form: Json | None = None
    url: Json | None = None


class FileCapabilities(Params, frozen=True, kw_only=True):
    read_text_file: bool = False
    write_text_file: bool = False


class SessionCapabilities(Params, frozen=True, kw_only=True):
    """Updates that an editor shows in a way of their own."""

    compaction: Json | None = None
    notices: Json | None = None


class ClientCapabilities(Params, frozen=True, kw_only=True):
    fs: FileCapabilities | None = None
    session: SessionCapabilities | None = None
    elicitation: ElicitationCapabilities | None = None
    meta: Any = field(default=None, name="_meta")

    @property
    def shows_terminals(self) -> bool:
        """Whether it has terminals that show what the agent sends, and run nothing: an extension of Zed."""
        return isinstance(self.meta, dict) and self.meta.get("terminal_output") is True

    @property
    def shows_notices(self) -> bool:
        return self.session is not None and self.session.notices is not None

    @property
    def shows_compactions(self) -> bool:
        return self.session is not None and self.session.compaction is not None


class InitializeParams(Params, frozen=True, kw_only=True):
    protocol_version: int
    client_capabilities: ClientCapabilities | None = None


class AuthenticateParams(Params, frozen=True, kw_only=True):
    method_id: str


class SystemPrompt(Params, frozen=True, kw_only=True):
    mode: str
    content: list[Json]


class NewSessionParams(Params, frozen=True, kw_only=True):
    cwd: str
    mcp_servers: list[Json] | None = None
    additional_directories: list[str] | None = None
    system_prompt: SystemPrompt | None = None


class OpenSessionParams(NewSessionParams, frozen=True, kw_only=True):
    """`session/load`, `session/resume` and `session/fork`."""

    session_id: str


class SessionParams(Params, frozen=True, kw_only=True):
    """`session/close`, `session/delete`, `session/status` and `session/cancel`."""

    session_id: str


class SetTitleParams(Params, frozen=True, kw_only=True):
    session_id: str
    title: str


class ListSessionsParams(Params, frozen=True, kw_only=True):
    cwd: str | None = None
    cursor: str | None = None


class SetModeParams(Params, frozen=True, kw_only=True):
    session_id: str
    mode_id: str


class SetConfigOptionParams(Params, frozen=True, kw_only=True):
    session_id: str
    config_id: str
    value: str | bool


class NamedValue(Params, frozen=True, kw_only=True):
    """A variable or a header."""

    name: str
    value: str


class StdioServer(Params, frozen=True, kw_only=True):
    name: str
    command: str
    args: list[str] = []
    env: list[NamedValue] = []


class RemoteServer(Params, frozen=True, kw_only=True):
    name: str
    url: str
    headers: list[NamedValue] = []


class Content(Params, frozen=True, kw_only=True, tag_field="type"):
    """A block of a prompt."""


class TextContent(Content, frozen=True, kw_only=True, tag="text"):
    text: str


class ImageContent(Content, frozen=True, kw_only=True, tag="image"):
    data: str
    mime_type: str


class AudioContent(Content, frozen=True, kw_only=True, tag="audio"):
    mime_type: str = ""


class ResourceLink(Content, frozen=True, kw_only=True, tag="resource_link"):
    name: str
    uri: str


class ResourceContents(Params, frozen=True, kw_only=True):
    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class EmbeddedResource(Content, frozen=True, kw_only=True, tag="resource"):
    resource: ResourceContents


PromptContent = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


class PromptParams(Params, frozen=True, kw_only=True):
    session_id: str
    prompt: list[PromptContent]


class PermissionOutcome(Params, frozen=True, kw_only=True):
    outcome: str
    option_id: str | None = None


class PermissionResponse(Params, frozen=True, kw_only=True):
    outcome: PermissionOutcome


class ElicitationResponse(Params, frozen=True, kw_only=True):
    action: str
    content: Json | None = None
