"""Reports about MCP servers: messages to the client, warnings on stderr, context for the model's next turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from parley.protocol.base import Json, Message
from parley.protocol.messages.system import Informational
from parley.settings.base import printable

if TYPE_CHECKING:
    from parley.mcp.server_connection import McpServer

FAILED_STATES = ("failed", "needs-auth")
MAX_INSTRUCTIONS_CHARS = 2_000


class StatusNotifier:
    def __init__(self, send: Callable[[Message], None], warn: Callable[[str], None]) -> None:
        self._send = send
        self._warn = warn
        self._announced = False
        """The first message of a turn was sent; reports are held until then."""
        self._held_messages: list[Message] = []
        self._known_to_model: dict[str, bool] = {}
        """Whether a server is connected, as the model was last told."""

    def notify(self, server: McpServer, added: list[str], removed: list[str], *, is_answered: bool = False) -> None:
        """Report a change of a server. If `is_answered`, errors are in a control response instead."""
        facts: Json = {"name": server.spec.name, "status": server.status, "source": server.spec.source}
        more = {"error": server.reason, "stderr": server.stderr, "tools_added": added, "tools_removed": removed}
        facts |= {key: value for key, value in more.items() if value}
        bad = bool(server.reason)
        text = f"MCP server {printable(server.spec.name)}: {server.status}" + (f": {server.reason}" if bad else "")
        line = Informational(content=text, level="warning" if bad else "info", mcp_server=facts)
        if server.status in FAILED_STATES:
            self._warn(printable(text + last_stderr_line(server.stderr)))
            if is_answered:
                return
        if self._announced:
            self._send(line)
        elif bad:
            self._held_messages.append(line)  # `init` says the rest

    def announce(self) -> None:
        """Send the held messages."""
        self._announced = True
        held, self._held_messages = self._held_messages, []
        for line in held:
            self._send(line)

    def for_model(self, servers: Iterable[McpServer]) -> list[str]:
        """Text about servers that disappeared or came back since the last call."""
        texts = []
        for server in servers:
            name, is_connected = server.spec.name, server.status == "connected"
            if is_connected != self._known_to_model.get(name, True):
                why = f" ({server.status}){': ' if server.reason else ''}{server.reason}"
                gone = f"is not connected{why}. Its tools cannot be called now."
                text = "is connected again." if is_connected else gone
                texts.append(f"<mcp-server name={name!r}>\nThe MCP server {name!r} {text}\n</mcp-server>")
            self._known_to_model[name] = is_connected
        return texts


def instructions(servers: Iterable[McpServer]) -> str:
    """The instructions of the servers, for the system prompt."""
    return "\n\n".join(quote_instructions(server) for server in servers if server.instructions)


def quote_instructions(server: McpServer) -> str:
    return (
        f"About the tools of the MCP server {server.spec.name!r}, in its own words:\n"
        f"{server.instructions[:MAX_INSTRUCTIONS_CHARS]}"
    )


def last_stderr_line(stderr: str) -> str:
    """The last line on a server's stderr, which usually says why it ended."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f" ({lines[-1]})" if lines else ""
