"""What is told of MCP servers: to the host as lines, to people on stderr, to the model when its next turn begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from parley.protocol.base import Json, Message
from parley.protocol.messages.system import Informational
from parley.settings.base import shown

if TYPE_CHECKING:
    from parley.mcp.server import Server

TROUBLE = ("failed", "needs-auth")
MOST_INSTRUCTIONS_CHARS = 2_000


class News:
    def __init__(self, tell: Callable[[Message], None], complain: Callable[[str], None]) -> None:
        self._tell = tell
        self._complain = complain
        self._announced = False
        """Whether a line of a turn was told; before that nothing else is."""
        self._kept: list[Message] = []
        self._believed: dict[str, bool] = {}
        """Whether a server is there, as far as the model knows."""

    def tell(self, server: Server, added: list[str], removed: list[str], *, is_answered: bool = False) -> None:
        """A server has changed. `is_answered`: the host hears of trouble in the answer to its request."""
        facts: Json = {"name": server.spec.name, "status": server.status, "source": server.spec.source}
        more = {"error": server.reason, "stderr": server.stderr, "tools_added": added, "tools_removed": removed}
        facts |= {key: value for key, value in more.items() if value}
        bad = bool(server.reason)
        text = f"MCP server {shown(server.spec.name)}: {server.status}" + (f": {server.reason}" if bad else "")
        line = Informational(content=text, level="warning" if bad else "info", mcp_server=facts)
        if server.status in TROUBLE:
            self._complain(shown(text + last_words(server.stderr)))
            if is_answered:
                return
        if self._announced:
            self._tell(line)
        elif bad:
            self._kept.append(line)  # `init` says the rest

    def announce(self) -> None:
        """The first line of a turn was told."""
        self._announced = True
        kept, self._kept = self._kept, []
        for line in kept:
            self._tell(line)

    def for_model(self, servers: Iterable[Server]) -> list[str]:
        """What the model must know: it would else believe in tools that are gone, or miss those that are back."""
        said = []
        for server in servers:
            name, there = server.spec.name, server.status == "connected"
            if there != self._believed.get(name, True):
                why = f" ({server.status}){': ' if server.reason else ''}{server.reason}"
                text = "is there again." if there else f"is not there{why}. Its tools cannot be called now."
                said.append(f"<mcp-server name={name!r}>\nThe MCP server {name!r} {text}\n</mcp-server>")
            self._believed[name] = there
        return said


def instructions(servers: Iterable[Server]) -> str:
    """What servers say about the use of their tools, for the system prompt."""
    said = [
        f"About the tools of the MCP server {server.spec.name!r}, in its own words:\n"
        f"{server.instructions[:MOST_INSTRUCTIONS_CHARS]}"
        for server in servers
        if server.instructions
    ]
    return "\n\n".join(said)


def last_words(stderr: str) -> str:
    """The last line that a server wrote to stderr: mostly it says why it ended."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f" ({lines[-1]})" if lines else ""
