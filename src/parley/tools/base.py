"""The interface of a tool.

A tool is one class in one file: an input struct, from which its schema is made, a description for the model, and
`run`. It accesses the machine only through its context. If it cannot do its work it raises ToolError, whose text
tells the model what to do instead.

See also: `catalog.py` for what is declared about each tool, `registry.py` for the tools of a session.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import msgspec

from parley.observer import NULL_OBSERVER, Observer
from parley.protocol.base import Json, Struct
from parley.workspace.base import Files, FileSearch, Scope, Worktree
from parley.workspace.process.processes import Processes

if TYPE_CHECKING:
    from parley.memory.base import Recall
    from parley.tools.mcp_resources import ResourceServer
    from parley.tools.shell.background import Background
    from parley.workspace.web import Web


class ToolOutput(Struct, frozen=True, kw_only=True):
    """The result of a tool."""

    content: str | list[Json]
    """For the model."""
    detail: Any = None
    """For the host: the line's `tool_use_result`."""
    is_error: bool | None = None
    """None omits the field, as most tools do on success."""


class CommandOrder(Struct, frozen=True, kw_only=True):
    """A command to run for a call."""

    argv: list[str]
    command: str
    """The command line, as the model wrote it."""
    description: str
    tool_use_id: str
    cwd: str
    environment: Mapping[str, str]
    timeout_seconds: float


class Context:
    """What the tools of a session share. One object per session; `reach` is per call."""

    def __init__(
        self,
        *,
        cwd: str,
        environment: dict[str, str],
        files: Files,
        processes: Processes,
        results_folder: Path,
        new_id: Callable[[], str],
        ask_small_model: Callable[[str], Awaitable[str]] | None = None,
        web: Web | None = None,
        plan_file: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        search: FileSearch | None = None,
        observer: Observer = NULL_OBSERVER,
    ) -> None:
        self.cwd = cwd
        """Where commands start. A command can change it for the next one."""
        self.worktree: Worktree | None = None
        """The worktree of an agent; None if it works in the checkout of the session."""
        self.environment = environment
        """For child processes. It holds none of our keys."""
        self.files = files
        self.search = search
        """Searches files; None without files."""
        self.processes = processes
        self.tasks: Background | None = None
        """Background tasks; None without a session."""
        self.tool_use_id = ""
        """The running call. Read-only calls run concurrently and must not rely on it."""
        self.results_folder = results_folder
        """The folder for output that is too long for a line."""
        self.new_id = new_id
        self.ask_small_model = ask_small_model
        """One question to the small model; None without a session. Raises ModelError."""
        self.consult: Callable[[str, list[Json]], Awaitable[list[Json]]] | None = None
        """One question to the session's model with server-side tools: the blocks of the answer.

        None without a session. Raises ModelError, also if the backend has no such tools."""
        self.delegate: Callable[[Any, str], Awaitable[ToolOutput]] | None = None
        """Passes the input of an Agent call, and the id of the call, to a subagent; None without a session."""
        self.send: Callable[[str, str, str], Awaitable[ToolOutput]] | None = None
        """Sends an agent (by id or name) a message for the call with this id; None without a session."""
        self.set_mode: Callable[[str | None], None] | None = None
        """Changes the permission mode; None restores the mode before plan mode."""
        self.web = web
        """The network; None without access."""
        self.plan_file = plan_file
        """The file a plan may be written to in plan mode."""
        self.resources: dict[str, ResourceServer] = {}
        """The MCP servers that have resources, by name."""
        self.follow: Callable[[str, str], Awaitable[str | list[Json]]] | None = None
        """The text of a skill, by name and arguments; None without a session. Raises ToolError."""
        self.open_memory: Callable[[], Recall] | None = None
        """Opens the long-term memory; None without one."""
        self.in_view: Callable[[], Collection[tuple[str, int]]] = frozenset
        """The messages that the model sees already: their sessions and numbers."""
        self.observer = observer
        """Traces what is done; child processes inherit its context."""
        self.clock = clock
        """Seconds, for durations."""
        self.hides: Callable[[str], bool] = lambda path: False
        """Whether a rule denies even the mention of a path. Search tools call it."""
        self.strict_reads = False
        """Whether the model must read a file before it changes it. Set with the model; older ones must."""
        self.notes: dict[str, Any] = {}
        """What a tool keeps from call to call, under its own name (for example which files were read)."""

    def fork(self) -> Context:
        """The context of a subagent: the same session, with its own notes and working directory."""
        twin = object.__new__(Context)
        twin.__dict__.update(self.__dict__)
        twin.notes, twin.tool_use_id = {}, ""
        return twin

    def move(self, worktree: Worktree) -> None:
        """Work in a worktree. Paths hidden in the original checkout are hidden here as well."""
        hides = self.hides
        self.worktree, self.cwd = worktree, worktree.cwd
        self.hides = lambda path: hides(path) or hides(worktree.original(path))


class Tool(Protocol):
    name: ClassVar[str]
    description: ClassVar[str]
    reads_only: ClassVar[bool]
    input: ClassVar[type[Struct]]

    async def run(self, call: Any, context: Context, reach: Scope) -> ToolOutput:
        """Do the work, within `reach`. Raises ToolError."""


@runtime_checkable
class PreparesInput(Protocol):
    """A tool that completes its input before the permission decision."""

    def prepare(self, input: Json, context: Context) -> Json:
        """The input as it is shown, approved and run. Never raises: an invalid input is returned unchanged."""


@runtime_checkable
class ListsSkills(Protocol):
    """A tool whose description lists the skills of a session."""

    def with_skills(self, skills: Sequence[tuple[str, str]]) -> Tool:
        """The tool for these skills: names and descriptions."""


@runtime_checkable
class ListsAgents(Protocol):
    """A tool whose description lists the agents of a session."""

    def with_agents(self, kinds: Callable[[], list[Json]]) -> Tool:
        """The tool for these agents: their names and descriptions."""


def always_asks(tool: Tool) -> bool:
    """Whether only a person can answer, whatever the rules allow: `always_asks` on the class."""
    return getattr(tool, "always_asks", False)


def runs_elsewhere(tool: Tool) -> bool:
    """Whether the client runs it and decides on it: `runs_elsewhere` on the class."""
    return getattr(tool, "runs_elsewhere", False)


def display_name(tool: Tool, called: str) -> str:
    """The name to show, if it differs from the name it is called by."""
    return getattr(tool, "display_name", None) or called


def server_of(tool: Tool) -> Json | None:
    """The MCP server of a tool, as reported to clients; None for other tools."""
    return getattr(tool, "mcp_server", None)


def server_name(tool: Tool) -> str:
    """The MCP server of a tool, as in the name of the tool; empty for other tools."""
    return getattr(tool, "server_name", "")


class InvalidInput(Exception):
    """The input from the model does not match the schema of the tool."""


def own_schema(tool: Tool) -> Json | None:
    """The schema of a tool whose input is not a struct: `input_schema` on the tool."""
    return getattr(tool, "input_schema", None)


def read_input(tool: Tool, input: Json) -> Any:
    """The input as the struct of the tool, or unchanged if the tool has a schema instead.

    Raises InvalidInput with a message for the model."""
    if own_schema(tool) is not None:
        return input
    try:
        return msgspec.convert(input, tool.input)
    except msgspec.ValidationError as exc:
        issue = f"{tool.name} failed due to the following issue:\n{exc}"
        raise InvalidInput(f"{issue}\nParameters: {describe_parameters(tool)}") from None


def describe_parameters(tool: Tool) -> str:
    """The parameters of a tool, for a model that got one wrong."""
    names = tool.input.__struct_encode_fields__
    required = len(names) - len(tool.input.__struct_defaults__)
    defaults = [msgspec.NODEFAULT] * required + list(tool.input.__struct_defaults__)
    named = zip(names, defaults, strict=True)
    return ", ".join(f"{name} (required)" if default is msgspec.NODEFAULT else name for name, default in named)


def tool_schema(tool: Tool) -> Json:
    """The tool as the model API lists it."""
    # A tool may accept more than it shows: `shown` is the part for the model.
    shown: type[Struct] = getattr(tool, "shown", tool.input)
    fields = own_schema(tool) or input_schema(shown)
    return {"name": tool.name, "description": tool.description, "input_schema": fields}


@functools.cache
def input_schema(shown: type[Struct]) -> Json:
    """Cached: every model call sends all of them."""
    [made], parts = msgspec.json.schema_components([shown], ref_template="#/$defs/{name}")
    name = made["$ref"].rpartition("/")[2]
    own = {key: value for key, value in parts.pop(name).items() if key not in ("title", "description")}
    return {**own, "additionalProperties": False, **({"$defs": parts} if parts else {})}
