"""What a tool is.

One file a tool: an input struct (its schema is made from it), a description for the
model, and `run`. A tool touches the machine only through its context. What it cannot do
it says with a ToolError, whose text helps the model to go on.
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
    """What a tool gave."""

    content: str | list[Json]
    """For the model."""
    detail: Any = None
    """For the host: the line's `tool_use_result`."""
    is_error: bool | None = None
    """None leaves the field out, as most tools do on success."""


class CommandOrder(Struct, frozen=True, kw_only=True):
    """A command that is to be run for a call."""

    argv: list[str]
    command: str
    """The command line, as the model wrote it."""
    description: str
    tool_use_id: str
    cwd: str
    environment: Mapping[str, str]
    timeout_seconds: float


class Context:
    """What the tools of a session share. One object per session; `reach` differs from call to call."""

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
        """Where commands start; a command may change it for the next one."""
        self.worktree: Worktree | None = None
        """The checkout that an agent has for itself; None where it works in the person's."""
        self.environment = environment
        """For children. No key of ours is in it."""
        self.files = files
        self.search = search
        """Who finds files; None where there are none."""
        self.processes = processes
        self.tasks: Background | None = None
        """What runs in the background; None where there is no session."""
        self.tool_use_id = ""
        """The call that runs. Calls that only read may run side by side, and must not rely on it."""
        self.results_folder = results_folder
        """Where output goes that is too much for a line."""
        self.new_id = new_id
        self.ask_small_model = ask_small_model
        """One question to a cheap model; None where there is none. Raises ModelError."""
        self.consult: Callable[[str, list[Json]], Awaitable[list[Json]]] | None = None
        """One question to the session's own model with tools of its backend: the blocks of the answer.

        None where there is no session. Raises ModelError, also where the backend has no tools."""
        self.delegate: Callable[[Any, str], Awaitable[ToolOutput]] | None = None
        """Hand the input of an Agent call, and the call's id, to a subagent; None where there is no session."""
        self.send: Callable[[str, str, str], Awaitable[ToolOutput]] | None = None
        """Give an agent, by id or name, a message, for the call of this id; None where there is no session."""
        self.set_mode: Callable[[str | None], None] | None = None
        """Change the permission mode; None goes back to the mode before plan mode."""
        self.web = web
        """The network; None where there is no way to it."""
        self.plan_file = plan_file
        """Where a plan may be written in plan mode."""
        self.resources: dict[str, ResourceServer] = {}
        """The MCP servers that have resources, by name."""
        self.follow: Callable[[str, str], Awaitable[str | list[Json]]] | None = None
        """What a skill says, by its name and with arguments; None where there is no session. Raises ToolError."""
        self.open_memory: Callable[[], Recall] | None = None
        """Where what was learned and said before is looked up; None where nothing is remembered."""
        self.in_view: Callable[[], Collection[tuple[str, int]]] = frozenset
        """The messages that the model sees anyway: their sessions, and their numbers there."""
        self.observer = observer
        """Who hears what is done; children are told of it."""
        self.clock = clock
        """Seconds, for durations."""
        self.hides: Callable[[str], bool] = lambda path: False
        """Whether a rule denies even the mention of a path; asked by the tools that find files."""
        self.strict_reads = False
        """Whether the model must read a file before it changes it. Older ones must; set anew with the model."""
        self.notes: dict[str, Any] = {}
        """What a tool remembers from call to call, under its own name (e.g. which files were read)."""

    def fork(self) -> Context:
        """For a subagent: the same session, and a memory and a place of its own."""
        twin = object.__new__(Context)
        twin.__dict__.update(self.__dict__)
        twin.notes, twin.tool_use_id = {}, ""
        return twin

    def move(self, worktree: Worktree) -> None:
        """Work in a checkout of its own. What may not be mentioned of the person's may not be mentioned of this."""
        hides = self.hides
        self.worktree, self.cwd = worktree, worktree.cwd
        self.hides = lambda path: hides(path) or hides(worktree.original(path))


class Tool(Protocol):
    name: ClassVar[str]
    description: ClassVar[str]
    reads_only: ClassVar[bool]
    input: ClassVar[type[Struct]]

    async def run(self, call: Any, context: Context, reach: Scope) -> ToolOutput:
        """Do it, no further than `reach`. Raises ToolError."""


@runtime_checkable
class PreparesInput(Protocol):
    """A tool that completes its input before anybody decides on it."""

    def prepare(self, input: Json, context: Context) -> Json:
        """The input as it is shown, allowed and run. Never fails: what does not fit comes back as it is."""


@runtime_checkable
class ListsSkills(Protocol):
    """A tool whose description lists what a session has."""

    def with_skills(self, skills: Sequence[tuple[str, str]]) -> Tool:
        """The tool for these: names, and what each is for."""


@runtime_checkable
class ListsAgents(Protocol):
    """A tool whose description lists the agents of a session."""

    def with_agents(self, kinds: Callable[[], list[Json]]) -> Tool:
        """The tool for these agents: their names and descriptions."""


def always_asks(tool: Tool) -> bool:
    """Whether the answer can only come from a person, whatever the rules allow: `always_asks` on the class."""
    return getattr(tool, "always_asks", False)


def runs_elsewhere(tool: Tool) -> bool:
    """Whether somebody else runs it, and has the last word on that: `runs_elsewhere` on the class."""
    return getattr(tool, "runs_elsewhere", False)


def display_name(tool: Tool, called: str) -> str:
    """What people call it, where that differs from the name it was called by."""
    return getattr(tool, "display_name", None) or called


def server_of(tool: Tool) -> Json | None:
    """The MCP server a tool belongs to, as hosts are told of it; None for a tool of ours."""
    return getattr(tool, "mcp_server", None)


def server_name(tool: Tool) -> str:
    """The MCP server a tool belongs to, as its name spells it; empty for a tool of ours."""
    return getattr(tool, "server_name", "")


class InvalidInput(Exception):
    """The model's input does not fit the tool."""


def own_schema(tool: Tool) -> Json | None:
    """The schema of a tool whose input is no struct of ours: `input_schema` on the tool."""
    return getattr(tool, "input_schema", None)


def read_input(tool: Tool, input: Json) -> Any:
    """The input as the tool's struct, or as it is where the tool has a schema instead.

    Raises BadInput with words for the model."""
    if own_schema(tool) is not None:
        return input
    try:
        return msgspec.convert(input, tool.input)
    except msgspec.ValidationError as exc:
        issue = f"{tool.name} failed due to the following issue:\n{exc}"
        raise InvalidInput(f"{issue}\nParameters: {describe_parameters(tool)}") from None


def describe_parameters(tool: Tool) -> str:
    """The names of a tool's parameters, for a model that got one wrong."""
    names = tool.input.__struct_encode_fields__
    required = len(names) - len(tool.input.__struct_defaults__)
    defaults = [msgspec.NODEFAULT] * required + list(tool.input.__struct_defaults__)
    named = zip(names, defaults, strict=True)
    return ", ".join(f"{name} (required)" if default is msgspec.NODEFAULT else name for name, default in named)


def tool_schema(tool: Tool) -> Json:
    """The tool as the model API lists it."""
    # A tool may understand more than it shows: `shown` is the part for the model.
    shown: type[Struct] = getattr(tool, "shown", tool.input)
    fields = own_schema(tool) or input_schema(shown)
    return {"name": tool.name, "description": tool.description, "input_schema": fields}


@functools.cache
def input_schema(shown: type[Struct]) -> Json:
    """Made once: every model call carries all of them."""
    [made], parts = msgspec.json.schema_components([shown], ref_template="#/$defs/{name}")
    name = made["$ref"].rpartition("/")[2]
    own = {key: value for key, value in parts.pop(name).items() if key not in ("title", "description")}
    return {**own, "additionalProperties": False, **({"$defs": parts} if parts else {})}
