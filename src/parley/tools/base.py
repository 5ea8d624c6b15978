"""The interface of a tool, and the tools of a session.

A tool is one class in one file: an input struct, from which its schema is made, a description for the model, and
`run`. It accesses the machine only through its context. If it cannot do its work it raises ToolError, whose text
tells the model what to do instead.

`ToolRegistry` has the tools of a session by name. It makes each on first use: the names are enough for the first
messages of a session, and importing all tools takes longer than the answer to `initialize` may.

See also: `catalog.py` for what is declared about each tool.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from parley.errors import ToolError
from parley.observer import NULL_OBSERVER, Observer
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions
from parley.workspace.base import Files, FileSearch, Scope, Worktree
from parley.workspace.process.processes import PreparedCommand, Processes, ResultFile

if TYPE_CHECKING:
    from parley.memory.base import Recall
    from parley.tools.background import Background
    from parley.tools.mcp_servers import ResourceServer
    from parley.tools.planning import Goal
    from parley.tools.schedule import Schedule
    from parley.tools.worktree import SessionWorktrees
    from parley.workspace.sandbox.commands import CommandSandbox
    from parley.workspace.web import Web


MAX_PLAN_BYTES = 200_000
SHOWN = "shown"
HIDDEN = Meta(extra_json_schema={SHOWN: False})
"""Of a field that models are not shown: an older name, or something for clients."""
REQUIRED = Meta(extra_json_schema={SHOWN: True})
"""Of a field that models are told to give. It is read without, too."""
T = TypeVar("T")


class ToolOutput(Struct, frozen=True, kw_only=True):
    """The result of a tool."""

    content: str | list[Json]
    """For the model."""
    detail: Any = None
    """For the host: the line's `tool_use_result`."""
    is_error: bool | None = None
    """None omits the field, as most tools do on success."""
    memories: tuple[Json, ...] = ()
    """Entries of the long-term memory that it shows, for the client."""


class NoInput(Struct, frozen=True, forbid_unknown_fields=True):
    """The input of a tool that takes none."""


class CommandOrder(PreparedCommand, frozen=True, kw_only=True):
    """A command to run for a call."""

    command: str
    """The command line, as the model wrote it."""
    description: str
    timeout_seconds: float


class AgentCalls(Protocol):
    """Starts subagents, lists them and sends them messages, for one caller. Raises ToolError."""

    async def delegate(self, call: Any, tool_use_id: str) -> ToolOutput:
        """Run a subagent for an Agent call: its input, and its id."""

    async def send(self, to: str, message: str, tool_use_id: str) -> ToolOutput:
        """Send an agent, by id or name, a message for the call with this id."""

    def list_agents(self) -> list[Json]:
        """The agents that SendMessage reaches, oldest first: id, name, type, description, status."""


class DeferredTools(Protocol):
    """The tools of one agent whose definitions its model gets when it asks for them."""

    def tools(self) -> Mapping[str, Tool]:
        """All of them by name, also those that are loaded. The same object until the tools change."""

    def all_names(self) -> Collection[str]:
        """The names of all tools of the agent, deferred or not."""

    def load(self, names: Collection[str]) -> None:
        """Give the model the definitions from its next call on. Raises SessionError."""


class PendingServers(Protocol):
    """The MCP servers that are still connecting."""

    def names(self) -> list[str]: ...

    async def wait(self, names: Collection[str], seconds: float) -> dict[str, str]:
        """Wait until these servers have connected or failed, at most so long. Returns what is known of each."""


class ModelQueries(Protocol):
    """Questions to models outside the conversation. Both raise ModelError."""

    async def ask_small(self, prompt: str) -> str:
        """The answer of the small model."""

    async def consult(self, prompt: str, tools: list[Json]) -> list[Json]:
        """The blocks of an answer of the session's model, which can use these tools of its backend.

        Raises ModelError also if the backend has no such tools."""


class SessionServices(Struct, frozen=True, kw_only=True):
    """What a session offers its tools. A service that is None does not exist there."""

    tasks: Background | None = None
    """Background tasks."""
    models: ModelQueries | None = None
    """Questions to models outside the conversation."""
    open_agents: Callable[[], AgentCalls] | None = None
    """The subagents of the agent that calls; loaded at the first use."""
    run_skill: Callable[[str, str], Awaitable[str | list[Json]]] | None = None
    """The text of a skill, by name and arguments. Raises ToolError."""
    resource_servers: Callable[[], Mapping[str, ResourceServer]] = dict
    """The MCP servers that have resources now, by name."""
    pending_servers: PendingServers | None = None
    """The MCP servers that are still connecting."""
    deferred_tools: Callable[[], DeferredTools | None] = lambda: None
    """The tools of the agent that calls which can be searched; None if all are loaded."""
    has_result: Callable[[str, str], bool] = lambda call, text: False
    """Whether the model can still see a text as the result of a call of the agent."""
    set_mode: Callable[[str | None], None] | None = None
    """Changes the permission mode; None restores the mode before plan mode."""
    open_schedule: Callable[[], Schedule] | None = None
    """The scheduled prompts."""
    open_goal: Callable[[], Goal] | None = None
    """The goal that the session works towards."""
    open_worktrees: Callable[[], SessionWorktrees] | None = None
    """Moves the session into a git worktree and back."""
    describe_plan_mode: Callable[[Context], str] = lambda context: ""
    """What the model is told of plan mode."""
    open_memory: Callable[[], Recall] | None = None
    """Opens the long-term memory."""
    in_view: Callable[[], Collection[tuple[str, int]]] = frozenset
    """The messages that the model sees already: their sessions and numbers."""
    ask_host: Callable[[str, int], Awaitable[bool]] | None = None
    """Asks the client whether a command may connect to a host; None if no one can be asked. Does not raise."""
    report_refusal: Callable[[str], None] = lambda text: None
    """Tells the client that the sandbox refused a connection."""
    must_read_first: Callable[[], bool] = lambda: False
    """Whether the session's model must read a file before it changes it. Older models must."""


class AgentState(Struct, kw_only=True):
    """What the calls of one agent leave for its next ones. The only part of a context that changes."""

    cwd: str
    """Where commands start. A command can change it for the next one."""
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    """What a tool keeps from call to call, under its own name (for example which files were read)."""


class Workspace(Struct, frozen=True, kw_only=True):
    """The machine, as a session and all its agents reach it."""

    environment: dict[str, str]
    """For child processes. It holds none of our keys. Settings can change it."""
    files: Files
    open_search: Callable[[], FileSearch] | None = None
    """Opens the search for files; None without files."""
    processes: Processes
    open_web: Callable[[], Web] | None = None
    """Opens the network; None without access."""
    results_folder: Path
    """The folder for output that is too long for a line."""
    plan_file: str | None = None
    """The file a plan may be written to in plan mode."""
    new_id: Callable[[], str]
    clock: Callable[[], float] = time.monotonic
    """Seconds, for durations."""
    observer: Observer = NULL_OBSERVER
    """Traces what is done; child processes inherit its context."""
    options: CliOptions = msgspec.field(default_factory=CliOptions)
    """The options of the session, without the key."""
    find_sandbox: Callable[[Scope], CommandSandbox | None] = lambda scope: None
    """What decides where a command with this scope runs; None if it runs outside of a sandbox."""
    watch_output: Callable[[str, bytes], None] | None = None
    """Gets the output of commands that a call waits for, as it arrives, with the id of the call."""

    def read_plan(self) -> str | None:
        """The content of the plan file; None if there is none, or it cannot be read."""
        if self.plan_file is None:
            return None
        try:
            found = self.files.peek(self.plan_file, Scope(files=(self.plan_file,)))
        except ToolError:
            return None
        return None if found is None else found.data[:MAX_PLAN_BYTES].decode(errors="replace")

    def new_result_file(self, ending: str) -> ResultFile:
        """A new file in the results folder."""
        return ResultFile(self.results_folder / f"{self.new_id()}.{ending}", self.processes.outputs)


class Context(Workspace, frozen=True, kw_only=True):
    """What the tools of one agent work with: the workspace, the agent's state, and the session.

    It does not change, except for `state`. `reach` and the id of the call (`reach.call`) are per call."""

    state: AgentState
    session: SessionServices = SessionServices()
    worktree: Worktree | None = None
    """The worktree that the agent works in; None if it works in the user's checkout."""
    hides: Callable[[str], bool] = lambda path: False
    """Whether a rule denies even the mention of a path. Search tools call it."""

    def fork(self, open_agents: Callable[[], AgentCalls], worktree: Worktree | None = None) -> Context:
        """The context of a subagent, with its own state and subagents, in the same folder or in a worktree."""
        forked = replace(
            self, session=replace(self.session, open_agents=open_agents), state=AgentState(cwd=self.state.cwd)
        )
        return forked if worktree is None else forked.move_to(worktree)

    def move_to(self, worktree: Worktree) -> Context:
        """The same context in a worktree. Paths hidden in the main checkout are hidden in the worktree as well."""
        hides = self.hides
        return replace(
            self,
            state=AgentState(cwd=worktree.cwd),
            worktree=worktree,
            hides=lambda path: hides(path) or hides(worktree.original(path)),
        )


def make_context(
    workspace: Workspace,
    cwd: str,
    session: SessionServices | None = None,
    hides: Callable[[str], bool] = lambda path: False,
) -> Context:
    """The context of a session's own agent, which starts in `cwd`; without a session, of its tools alone."""
    shared = asdict(workspace)
    return Context(**shared, state=AgentState(cwd=cwd), session=session or SessionServices(), hides=hides)


class Tool:
    """What a tool says of itself, and its work."""

    name: str
    description: str
    reads_only: bool
    input: type[Struct] = NoInput
    input_schema: Json | None = None
    """The schema of a tool whose input is not a struct."""
    always_asks: bool = False
    """Whether only a person can answer, whatever the rules allow."""
    runs_elsewhere: bool = False
    """Whether the client runs it and decides on it."""
    is_deferrable: bool = False
    """Whether its definition may be left out until the model asks for it."""
    search_hint: str = ""
    """Further words to find it by."""
    display_name: str = ""
    """The name to show, if it differs from the name it is called by."""
    mcp_server: Json | None = None
    """Its MCP server, as reported to clients; None for other tools."""
    server_name: str = ""
    """Its MCP server, as in its name; empty for other tools."""
    call_meta: Json | None = None
    """How a client may show its calls."""

    async def run(self, call: Any, context: Context, reach: Scope) -> ToolOutput:
        """Do the work, within `reach`. Raises ToolError."""
        raise NotImplementedError

    def prepare(self, input: Json, context: Context) -> Json:
        """The input as it is shown, approved and run. An invalid input is returned unchanged: it is refused later."""
        return input

    def task_event(self, input: Json, context: Context) -> Json | None:
        """The hook event that a call fires before it runs, with its fields; None for none."""
        return None

    def asks_person(self, input: Json, context: Context) -> bool:
        """Whether only a person can allow this call."""
        return self.always_asks


def customize_tool(tool: Tool, method: Literal["with_skills", "with_agents", "with_options"], value: Any) -> Tool:
    """The tool for a session with these skills or agents, which its description lists, or with these options.

    A tool that depends on them has the method. It gets the names and descriptions of skills, a function that returns
    those of agents, or `CliOptions`.
    """
    make: Callable[[Any], Tool] | None = getattr(tool, method, None)
    return tool if make is None else make(value)


def open_service(opener: Callable[[], T] | None, what: str) -> T:
    """A service of the session. Raises ToolError if it does not exist there; `what` says what is missing."""
    if opener is None:
        raise ToolError(f"{what} are not available in this session.")
    return opener()


WORK_LIST = "work list"
"""The note with a function that describes what is left to do."""


def describe_work(context: Context) -> str:
    """What is on the work list of an agent; empty if nothing is left to do."""
    describe: Callable[[], str] = context.state.notes.get(WORK_LIST, str)
    return describe()


class InvalidInput(Exception):
    """The input from the model does not match the schema of the tool."""


def read_input(tool: Tool, input: Json) -> Any:
    """The input as the struct of the tool, or unchanged if the tool has a schema instead.

    Raises InvalidInput with a message for the model."""
    if tool.input_schema is not None:
        return input
    try:
        return msgspec.convert(input, tool.input)
    except msgspec.ValidationError as exc:
        issue = f"{tool.name} failed due to the following issue:\n{exc}"
        raise InvalidInput(f"{issue}\nParameters: {describe_parameters(tool)}") from None


def describe_parameters(tool: Tool) -> str:
    """The parameters of a tool, for a model that got one wrong."""
    schema = input_schema(tool.input)
    required = schema.get("required", ())
    return ", ".join(f"{name} (required)" if name in required else name for name in schema["properties"])


def tool_schema(tool: Tool) -> Json:
    """The tool as the model API lists it."""
    fields = tool.input_schema or input_schema(tool.input)
    return {"name": tool.name, "description": tool.description, "input_schema": fields}


@functools.cache
def input_schema(input: type[Struct]) -> Json:
    """What models are shown of an input. Cached: every model call sends all of them."""
    [made], parts = msgspec.json.schema_components([input], ref_template="#/$defs/{name}")
    name = made["$ref"].rpartition("/")[2]
    own = {key: value for key, value in shorten(parts.pop(name)).items() if key != "description"}
    return {**own, "additionalProperties": False, **({"$defs": shorten(parts)} if parts else {})}


def shorten(shape: Any) -> Any:
    """A schema without what tells the model nothing: titles, and that an optional field may be null."""
    if isinstance(shape, list):
        return [*map(shorten, shape)]
    if not isinstance(shape, dict):
        return shape
    choices = [choice for choice in shape.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        shape = {**shape, **choices[0]}
        del shape["anyOf"]
    fields = shape.get("properties")
    if isinstance(fields, dict) and shape.get("type") == "object":
        required = [*shape.get("required", ())]
        names = [name for name, field in fields.items() if field.get(SHOWN) or name in required]
        kept = {name: field for name, field in fields.items() if field.get(SHOWN) is not False}
        shape = {**shape, "properties": kept, "required": names}
    is_required = shape.get(SHOWN) is True
    is_empty = "default" in shape and (is_required or shape["default"] in (None, ""))
    left_out = {"title", SHOWN} | ({"default"} if is_empty else set())
    return {key: shorten(value) for key, value in shape.items() if key not in left_out or isinstance(value, dict)}


class ToolRegistry(Mapping[str, Tool]):
    """The tools of a session by their names: built-in ones, then external ones (MCP servers, the client)."""

    def __init__(
        self,
        names: Iterable[str],
        make: Callable[[str], Tool],
        find_definition: Callable[[str], Json | None] = lambda name: None,
    ) -> None:
        """`find_definition` returns what is known of a tool's schema without making the tool."""
        self._made: dict[str, Tool | None] = dict.fromkeys(names)
        self._make = make
        self._find_definition = find_definition
        self._external: dict[str, Tool] = {}
        self._overrides: dict[str, Tool] = {}
        self._absent: Callable[[str], str] = lambda name: ""
        self._schemas: list[Json] | None = None
        self._external_schemas: list[Json] | None = None
        self._keeps: Callable[[str, str], bool] = lambda name, server: True
        self._may_offer: Callable[[str], bool] = lambda name: True
        self._added: set[str] = set()
        """Tools that were given, and may have other definitions than built-in ones."""
        self._own: set[str] = set()
        """Tools that a subset does not have."""
        self.revision = 0
        """Changes whenever the tools change."""

    def restrict(self, keeps: Callable[[str, str], bool]) -> None:
        """Offer only the tools for which `keeps(name, server)` is true, external ones included."""
        self._keeps = keeps
        self._made = {name: tool for name, tool in self._made.items() if keeps(name, "")}
        self.set_external(self._external, self._absent)
        self._reset()

    def _reset(self) -> None:
        """The tools have changed."""
        self._schemas = None
        self.revision += 1

    def may_offer(self, name: str) -> bool:
        """Whether a built-in tool may be added: an agent can be limited to certain tools."""
        return self._keeps(name, "") and self._may_offer(name)

    @property
    def has_external(self) -> bool:
        return bool(self._external)

    @property
    def external(self) -> dict[str, Tool]:
        """The tools of MCP servers and clients."""
        return dict(self._external)

    def set_external(self, tools: Mapping[str, Tool], absent: Callable[[str], str]) -> None:
        """Replace the external tools; `absent` explains why one is missing.

        Built-in tools come first and in a fixed order, so that a prompt cache keeps them.
        """
        self._external = {
            name: tool for name, tool in tools.items() if name not in self._made and self._keeps(name, tool.server_name)
        }
        self._absent = absent
        self._external_schemas = None
        self.revision += 1

    def set_overrides(self, tools: Mapping[str, Tool]) -> None:
        """Replace the tools that take precedence over those of the same names."""
        self._overrides = dict(tools)
        self.revision += 1

    def is_override(self, name: str) -> bool:
        """Whether the client runs the tool of this name."""
        return name in self._overrides

    def subset(self, keeps: Callable[[str, str], bool]) -> ToolRegistry:
        """A registry with some of these tools, for a subagent."""
        # The client runs overrides, and only for the main agent.
        part = ToolRegistry(
            (name for name in self._made if keeps(name, "") and name not in self._overrides and name not in self._own),
            self.__getitem__,
            self._find_definition,
        )
        part.set_external(
            {name: tool for name, tool in self._external.items() if keeps(name, tool.server_name)},
            self.explain_absence,
        )
        part._may_offer = lambda name: keeps(name, "") and self.may_offer(name)
        return part

    def builtin(self, name: str) -> Tool:
        """A built-in tool, whether it is offered or not."""
        return self._made.get(name) or self._make(name)

    def explain_absence(self, name: str) -> str:
        """Why a tool is missing; empty if unknown."""
        return self._absent(name)

    def __getitem__(self, name: str) -> Tool:
        if name in self._overrides:
            return self._overrides[name]
        if name in self._external:
            return self._external[name]
        tool = self._made[name]
        if tool is None:
            tool = self._made[name] = self._make(name)
        return tool

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._external or name in self._overrides

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._made, *self._overrides, *self._external])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def add(self, tool: Tool) -> None:
        """Add a tool after the others; it replaces one of the same name."""
        self._made[tool.name] = tool
        self._added.add(tool.name)
        self._reset()

    def offer(self, name: str) -> None:
        """Add a built-in tool after the others, but not for subsets. It is loaded when it is used."""
        self._made[name] = None
        self._own.add(name)
        self._reset()

    def remove(self, name: str) -> None:
        """Remove a built-in tool."""
        self._made.pop(name, None)
        self._reset()

    def schemas(self) -> list[Json]:
        """The tools as the model API lists them, in the same order every time for its prompt cache."""
        if self._overrides:
            return [tool_schema(self[name]) for name in self]
        if self._schemas is None:
            self._schemas = [self._define(name) for name in self._made]
        if self._external_schemas is None:
            self._external_schemas = [tool_schema(tool) for tool in self._external.values()]
        return self._schemas + self._external_schemas

    def schema(self, name: str) -> Json:
        """One tool as the model API lists it. A built-in one is not loaded for that."""
        return tool_schema(self[name]) if name in self._overrides or name in self._external else self._define(name)

    def _define(self, name: str) -> Json:
        """The schema of a built-in tool."""
        known = None if name in self._added else self._find_definition(name)
        if known is None:
            return tool_schema(self[name])
        return known if known["description"] is not None else {**known, "description": self[name].description}
