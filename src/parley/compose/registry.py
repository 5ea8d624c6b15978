"""The only list of varieties. Rows are strings, so that nothing is imported before it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from parley.engine.clock import Stamp
from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.protocol.dialects.base import Dialect, World
from parley.protocol.options import Options

MODELS = {
    "anthropic": "parley.models.backends.anthropic:Anthropic",
    "bedrock": "parley.models.backends.cloud:Bedrock",
    "vertex": "parley.models.backends.cloud:Vertex",
    "openai": "parley.models.backends.openai:OpenAI",
    "scripted": "parley.models.fake.scripted:Scripted",
    "offline": "parley.models.fake.offline:Offline",
    "replay": "parley.models.recording.replay:Replay",
}
TOOLS = {
    "Task": "parley.tools.delegation.agent:Agent",
    "Bash": "parley.tools.shell.bash:Bash",
    "Edit": "parley.tools.files.edit:Edit",
    "Glob": "parley.tools.search.glob:Glob",
    "Grep": "parley.tools.search.grep:Grep",
    "NotebookEdit": "parley.tools.files.notebook:NotebookEdit",
    "AskUserQuestion": "parley.tools.planning.question:AskUserQuestion",
    "EnterPlanMode": "parley.tools.planning.plan:EnterPlanMode",
    "ExitPlanMode": "parley.tools.planning.plan:ExitPlanMode",
    "ListMcpResourcesTool": "parley.tools.mcp_resources:ListMcpResources",
    "ReadMcpResourceTool": "parley.tools.mcp_resources:ReadMcpResource",
    "SendMessage": "parley.tools.delegation.send_message:SendMessage",
    "Skill": "parley.tools.delegation.skill:Skill",
    "TaskCreate": "parley.tools.planning.task_list:TaskCreate",
    "TaskGet": "parley.tools.planning.task_list:TaskGet",
    "TaskList": "parley.tools.planning.task_list:TaskList",
    "TaskOutput": "parley.tools.shell.task_output:TaskOutput",
    "TaskStop": "parley.tools.shell.task_stop:TaskStop",
    "TaskUpdate": "parley.tools.planning.task_list:TaskUpdate",
    "TodoWrite": "parley.tools.planning.todo:TodoWrite",
    "WebFetch": "parley.tools.web.fetch:WebFetch",
    "WebSearch": "parley.tools.web.search:WebSearch",
    "Read": "parley.tools.files.read:Read",
    "Write": "parley.tools.files.write:Write",
    "memory_read": "parley.memory.tools:MemoryRead",
    "memory_search": "parley.memory.tools:MemorySearch",
}
WIRES = {
    "sdk": "parley.mcp.host_transport:Bridge",
    "stdio": "parley.mcp.stdio:Stdio",
    "sse": "parley.mcp.remote:Sse",
    "http": "parley.mcp.remote:Http",
}
STORES = {
    "claude": "parley.stores.files.claude:Claude",
    "folder": "parley.stores.files.folder:Folder",
    "sqlite": "parley.stores.sql.sqlite:Sqlite",
    "postgres": "parley.stores.sql.postgres:Postgres",
    "memory": "parley.stores.memory:Memory",
}
OBSERVERS = {"opentelemetry": "parley.telemetry.otel:observer"}
HOOKS = {"callback": "parley.hooks.callback:registered", "command": "parley.hooks.settings:commands"}
DIALECTS = {
    "stream-json": "parley.protocol.dialects.stream_json:StreamJson",
    "spec001": "parley.protocol.dialects.spec001:Spec001",
    "miriad": "parley.protocol.dialects.miriad:Miriad",
    "jsonrpc": "parley.protocol.dialects.jsonrpc:JsonRpc",
}

OVER_STDIO = ("miriad", "jsonrpc")
"""The dialects of `--stdio`: one conversation a database, and nobody who could be asked."""


def variety(table: dict[str, str], name: str, what: str) -> Any:
    """The class of a row. Raises UsageError if there is no such row."""
    if name not in table:
        raise UsageError(f"there is no {what} {name!r} here; there are {', '.join(table)}")
    module, _, cls = table[name].partition(":")
    return getattr(import_module(module), cls)


def dialect_name(options: Options) -> str:
    return options.dialect or ("miriad" if options.stdio else "stream-json")


def dialect(options: Options, stamp: Stamp) -> Dialect:
    """How lines are spelled. Raises UsageError."""
    made: Dialect = variety(DIALECTS, dialect_name(options), "dialect")(World(now=stamp.now, new_uuid=stamp.new_uuid))
    return made


class Manners(Struct, frozen=True, kw_only=True):
    """What a dialect wants of the session behind it, beside words of its own."""

    streams: bool = False
    """Whether `stream-json` has the events of the model's stream in it, unasked."""
    hook_events: bool = False
    """Whether the runs of hooks are told unasked."""
    lists_schemas: bool = False
    layouts: tuple[str, ...] = ("claude", "folder")
    """Where a session is looked for by its id when no store is named; a new one is in the first."""
    joint: str = "\n"
    """What stands between prompts that go into the conversation together."""
    folds: bool = True
    """Whether prompts that waited for the end of a turn make up the next one together; else each is one."""


MANNERS = {
    "spec001": Manners(streams=True, hook_events=True, lists_schemas=True, layouts=("folder", "claude")),
    **dict.fromkeys(OVER_STDIO, Manners(joint="\n\n", folds=False)),
}


def manners(options: Options) -> Manners:
    return MANNERS.get(dialect_name(options), Manners())


def partial(options: Options) -> bool:
    """Whether the events of the model's stream are told."""
    if options.output_format == "message":
        return False
    return options.include_partial_messages or (manners(options).streams and options.output_format == "stream-json")
