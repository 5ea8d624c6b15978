"""What an MCP server is to the engine: how it is configured, what it can be in, how it is reached.

    Spec      one server as a source of configuration names it
    Wire      one way to it: a process, a URL, the host itself
    Status    where its life stands

Not here: where specs come from (config.py), the conversation (client.py), a server's life
(server.py), the wires (stdio.py, remote.py, host_transport.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

from parley.host import Host
from parley.protocol.base import Json, Struct

Status = Literal["pending", "connected", "failed", "needs-auth", "disabled"]
Kind = Literal["stdio", "sse", "http", "sdk"]
PREFIX = "mcp__"
"""How the names of all tools of servers begin."""
TAIL_BYTES = 4_096
"""As much of a server's stderr as is kept and told."""


class Lost(Exception):
    """A server cannot be reached, or is not there any more; the text says why."""


class NeedsAuth(Lost):
    """A server wants to know who asks."""


class ServerError(Exception):
    """A server answered with an error."""

    def __init__(self, code: Any, text: str) -> None:
        super().__init__(text)
        self.code = code


class Spec(Struct, frozen=True, kw_only=True):
    """One server, as it is configured. Variables are filled in."""

    name: str
    kind: Kind
    source: str
    """Who named it: `sdk`, `dynamic` (the command line, or the host while the session lives), or a settings layer."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    oauth: Json | None = None
    required: bool = False
    """Whether no model is asked before it is there."""
    timeout_seconds: float | None = None
    """The silence a call may have; 0 is any; None leaves it to the session."""
    tool_timeouts: dict[str, float] = {}
    shown: Json = {}
    """What status lines show of the configuration: as it was written, and no secrets."""
    flaw: str = ""
    """Why it cannot be used at all."""

    @property
    def scope(self) -> str:
        return "dynamic" if self.source == "sdk" else self.source


class Found(Struct, frozen=True, kw_only=True):
    """The servers of some configuration, and what is wrong with it."""

    specs: tuple[Spec, ...] = ()
    flaws: tuple[str, ...] = ()


class Patience(Struct, frozen=True, kw_only=True):
    """How long servers are waited for, in seconds."""

    connect: float = 30.0
    """Within this every server has reached a state (MCP_TIMEOUT)."""
    call: float = 1800.0
    """The silence a tool call may have, 0 is any (MCP_TOOL_TIMEOUT); progress starts it anew."""
    turn: float = 5.0
    """How long a turn of a session that goes on waits for servers that are still connecting."""
    retries: tuple[float, ...] = (1.0, 2.0, 4.0)
    """The pauses before a lost server is tried again."""
    stable: float = 60.0
    """Whoever stayed so long begins anew with the retries."""

    def of_call(self, spec: Spec, tool: str) -> float | None:
        chosen = spec.tool_timeouts.get(tool, self.call if spec.timeout_seconds is None else spec.timeout_seconds)
        return chosen or None


class Wire(Protocol):
    """One way to one server, used once."""

    async def open(self, take: Callable[[Json], None], lost: Callable[[Lost | str], None]) -> None:
        """Begin: every message of the server goes to `take`, its end to `lost`. Raises Lost."""

    async def send(self, message: Json) -> None:
        """Raises Lost."""

    async def close(self) -> None:
        """End it; nothing is heard of it any more."""

    def last_words(self) -> str:
        """What the server last said on stderr, if it has one."""


class Supply(Struct, frozen=True, kw_only=True):
    """What a session knows of servers before it lives. Made by compose/."""

    open_wire: Callable[[Spec, Host], Awaitable[Wire]]
    read: Callable[[Json], Found]
    """What the host configures while the session lives."""
    hosted: Callable[[Sequence[str], Json | None], Sequence[Spec]]
    """The servers that the host runs itself."""
    of_agent: Callable[[Json, str], Found] = lambda servers, place: Found()
    """The servers of an agent, and where they are written."""
    specs: tuple[Spec, ...] = ()
    patience: Patience = Patience()
    denied: tuple[str, ...] = ()
    """Tools that are not even shown."""
    most_tokens: int = 25_000
    """The longest result that a model reads at once (MAX_MCP_OUTPUT_TOKENS); the rest is in a file."""
