"""Types of the MCP client, and the servers of a session from all configuration sources.

    ServerSpec        the configuration of one server
    ServerTransport   one connection to it: a process, a URL, or the client of the session
    Status            its connection state
    ServerParser      parses what the sources configure
    ServerSources     the servers of a session, and how to connect to them

See also: `config.py` parses configurations, `client.py` speaks JSON-RPC, `server_connection.py` manages one server, and
the transports are in `stdio.py`, `remote.py` and `host_transport.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from parley.host import Host
from parley.protocol.base import Json, Struct

Status = Literal["pending", "connected", "failed", "needs-auth", "disabled"]
Kind = Literal["stdio", "sse", "http", "sdk"]
PREFIX = "mcp__"
"""The prefix of all MCP tool names."""
REFUSED = "refused"
"""The code of an `RpcError` that means that the request needs a login, of a transport that continues without it."""
TAIL_BYTES = 4_096
"""How much of a server's stderr is kept and reported."""
DEFAULT_TOKENS = 25_000


class ConnectionLost(Exception):
    """A server cannot be reached or has disconnected. The text says why."""


class NeedsAuth(ConnectionLost):
    """A server requires authorization."""


class Challenge(Struct, frozen=True):
    """How a server refused a request. It says what a login needs: the authorization server, and the scopes."""

    status: int
    www_authenticate: str

    @property
    def is_about_scope(self) -> bool:
        """Whether the server accepts the login, but not for this request."""
        return self.status == 403 and "insufficient_scope" in self.www_authenticate


class LoginRefused(Exception):
    """A login failed. The text says why."""


class LoginTokens(Protocol):
    """Where the tokens of logins are stored."""

    def read(self) -> Json:
        """The stored tokens; empty if there are none or the file is invalid."""

    def write(self, tokens: Json) -> None:
        """Raises LoginRefused."""


class ServerLogin(Protocol):
    """One attempt to log in to one server (oauth.py)."""

    @property
    def address(self) -> str | None:
        """Where the user approves the login; None if the server requires none."""

    @property
    def port(self) -> int | None:
        """The port of the listener, if there is one."""

    @property
    def state(self) -> str: ...

    @property
    def done(self) -> Awaitable[None]:
        """Raises LoginRefused or ConnectionLost."""

    def accept(self, callback_url: str) -> None:
        """Raises LoginRefused."""

    async def cancel(self) -> None: ...


class ServerSpec(Struct, frozen=True, kw_only=True):
    """The configuration of one server, with variables expanded."""

    name: str
    kind: Kind
    source: str
    """Who configured it: `sdk`, `dynamic` (command line or `mcp_set_servers`), or a settings source."""
    by_project: bool = False
    """Whether a file of the working tree configures it, so that the project's restrictions apply."""
    added_by: Literal["", "client", "agent"] = ""
    """Who adds it to what files and plugins configure: the client by a flag or a request, or an agent for itself."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    oauth: Json | None = None
    required: bool = False
    """Whether model calls wait until it is connected."""
    timeout_seconds: float | None = None
    """The longest silence of a tool call; 0 means no limit, None the session's default."""
    tool_timeouts: dict[str, float] = {}
    tool_policies: dict[str, str] = {}
    """What the client decides about calls of a tool, by the server's name for it: `allow`, `ask` or `deny`."""
    notes: tuple[str, ...] = ()
    """What has no effect in the configuration."""
    always_load: bool | None = None
    """Whether its tools are never deferred (True) or always (False); None leaves it to each tool."""
    shown: Json = {}
    """The configuration as status messages show it, without secrets."""
    problem: str = ""
    """Why the configuration is invalid; empty if it is valid."""

    @property
    def scope(self) -> str:
        return "dynamic" if self.source == "sdk" else self.source

    @property
    def has_credentials(self) -> bool:
        """Whether `oauth` is enough to log in without the user."""
        return self.oauth is not None and all(self.oauth.get(key) for key in ("clientId", "clientSecret", "issuer"))


class ParsedServers(Struct, frozen=True, kw_only=True):
    """Parsed servers and the problems found."""

    specs: tuple[ServerSpec, ...] = ()
    problems: tuple[str, ...] = ()


class McpTimeouts(Struct, frozen=True, kw_only=True):
    """MCP timeouts in seconds."""

    connect_seconds: float = 30.0
    """The limit for connecting (MCP_TIMEOUT)."""
    call_seconds: float = 1800.0
    """The longest silence of a tool call, 0 for no limit (MCP_TOOL_TIMEOUT). Progress restarts it."""
    turn_seconds: float = 5.0
    """How long a turn of a running session waits for servers that are still connecting."""
    retry_delays_seconds: tuple[float, ...] = (1.0, 2.0, 4.0)
    """The delays before each attempt to reconnect."""
    stable_seconds: float = 60.0
    """A connection that lasted this long resets the retry delays."""

    def for_call(self, spec: ServerSpec, tool: str) -> float | None:
        chosen = spec.tool_timeouts.get(
            tool, self.call_seconds if spec.timeout_seconds is None else spec.timeout_seconds
        )
        return chosen or None


class ServerTransport:
    """One connection to one server, used once. Subclasses connect and send."""

    challenge: Challenge | None = None
    """How the server refused the last request that needs a login."""

    def __init__(self) -> None:
        self._silence()

    def _silence(self) -> None:
        """Call no callback any more."""
        self._on_message: Callable[[Json], None] = lambda message: None
        self._on_lost: Callable[[ConnectionLost | str], None] = lambda reason: None

    async def open(self, on_message: Callable[[Json], None], on_lost: Callable[[ConnectionLost | str], None]) -> None:
        """Connect. Messages go to `on_message`, a disconnect to `on_lost`. Raises ConnectionLost."""
        self._on_message, self._on_lost = on_message, on_lost

    async def send(self, message: Json) -> None:
        """Raises ConnectionLost."""
        raise NotImplementedError

    async def close(self) -> None:
        """Disconnect. No callback is called afterwards."""
        self._silence()

    def stderr_tail(self) -> str:
        """The end of the server's stderr, if it has one."""
        return ""


class ServerDeclaration(Struct, frozen=True, kw_only=True):
    """The servers of one configuration source, as they are written there."""

    source: str
    path: str
    """What is shown for it in messages."""
    servers: Json
    by_tree: bool = False
    """Whether it comes from the working tree, so that the project's restrictions apply."""
    added_by: Literal["", "client", "agent"] = ""
    """Who adds it to what files and plugins configure."""
    may_allow: bool = False
    """Whether its policies may allow calls, because the client wrote it for this session."""


class ServerParser:
    """Parses configurations. `config.py` is imported on demand, because most sessions have no servers."""

    def __init__(
        self,
        own_variables: Mapping[str, str],
        child_variables: Mapping[str, str],
        check: Callable[[ServerSpec], str] = lambda spec: "",
    ) -> None:
        """`check` returns why a server may not be used, or an empty string."""
        self._own_variables = own_variables
        self._child_variables = child_variables
        self._check = check

    def _checked(self, spec: ServerSpec) -> ServerSpec:
        reason = "" if spec.problem else self._check(spec)
        return msgspec.structs.replace(spec, problem=reason) if reason else spec

    def gather(self, declared: Sequence[ServerDeclaration]) -> ParsedServers:
        """All servers; of those with the same name, that of the first source."""
        if not declared:
            return ParsedServers()
        from parley.mcp.config import parse_servers

        specs: dict[str, ServerSpec] = {}
        problems: list[str] = []
        for one in declared:
            # Projects, even if they are trusted, and agents cannot read our keys.
            is_ours = not one.by_tree and one.added_by != "agent"
            variables = self._own_variables if is_ours else self._child_variables
            found = parse_servers(
                one.servers, source=one.source, path=one.path, variables=variables, may_allow=one.may_allow
            )
            problems += found.problems
            for spec in found.specs:
                marked = msgspec.structs.replace(spec, by_project=one.by_tree, added_by=one.added_by)
                specs.setdefault(spec.name, marked)
        checked = {name: self._checked(spec) for name, spec in specs.items()}
        problems += [
            f"the MCP server {name!a} is not used: {spec.problem}"
            for name, spec in checked.items()
            if spec is not specs[name]
        ]
        return ParsedServers(specs=tuple(checked.values()), problems=tuple(problems))

    def parse(self, servers: Json) -> ParsedServers:
        """Parse what the client configures during the session."""
        by_client = ServerDeclaration(
            source="dynamic", path="mcp_set_servers", servers=servers, added_by="client", may_allow=True
        )
        return self.gather([by_client])

    def parse_agent(self, servers: Json, path: str, by_project: bool) -> ParsedServers:
        """Parse the servers of an agent; `path` is where they are defined."""
        of_agent = ServerDeclaration(source="dynamic", path=path, servers=servers, by_tree=by_project, added_by="agent")
        return self.gather([of_agent])

    def build_host_specs(self, names: Sequence[str], configs: Json | None) -> Sequence[ServerSpec]:
        from parley.mcp.config import build_host_specs

        return [self._checked(spec) for spec in build_host_specs(names, configs)]


class ServerSources(Struct, frozen=True, kw_only=True):
    """The configured servers of a session and how to connect to them. Built by compose/."""

    open_transport: Callable[[ServerSpec, Host], Awaitable[ServerTransport]]
    parser: ServerParser
    """Parses the servers that the client, and agents, configure during the session."""
    takes_host_servers: bool = True
    """Whether the client may run servers itself."""
    start_login: Callable[[ServerSpec, str | None, Challenge | None], Awaitable[ServerLogin]] | None = None
    """Starts a login, with the redirect URI of the client if it has one. Raises LoginRefused or ConnectionLost."""
    forget_login: Callable[[ServerSpec], Awaitable[None]] | None = None
    """Deletes the tokens of a server. Raises LoginRefused."""
    specs: tuple[ServerSpec, ...] = ()
    plugin_servers: frozenset[str] = frozenset()
    """The names of those that come from plugins."""
    timeouts: McpTimeouts = McpTimeouts()
    denied: tuple[str, ...] = ()
    """Tools that are hidden."""
    max_output_tokens: int = DEFAULT_TOKENS
    """The longest result that a model receives (MAX_MCP_OUTPUT_TOKENS); the rest is saved to a file."""


def build_sources(
    parser: ServerParser,
    specs: tuple[ServerSpec, ...],
    open_transport: Callable[[ServerSpec, Host], Awaitable[ServerTransport]],
    *,
    number: Callable[[str], int | None],
    denied: tuple[str, ...],
) -> ServerSources:
    """`number` reads a variable. MCP_TIMEOUT and MCP_TOOL_TIMEOUT are milliseconds; 0 for tools means no limit."""
    defaults, connect, call = McpTimeouts(), number("MCP_TIMEOUT"), number("MCP_TOOL_TIMEOUT")
    return ServerSources(
        open_transport=open_transport,
        parser=parser,
        specs=specs,
        timeouts=McpTimeouts(
            connect_seconds=connect / 1000 if connect else defaults.connect_seconds,
            call_seconds=defaults.call_seconds if call is None else call / 1000,
        ),
        denied=denied,
        max_output_tokens=number("MAX_MCP_OUTPUT_TOKENS") or DEFAULT_TOKENS,
    )
