"""The only list of varieties. Rows are strings, so that nothing is imported before it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from parley.engine.clock import Clock
from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.protocol.dialects.base import Dialect, DialectContext
from parley.protocol.options import CliOptions

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
    "Glob": "parley.tools.search.glob:GlobTool",
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
TRANSPORTS = {
    "sdk": "parley.mcp.host_transport:HostTransport",
    "stdio": "parley.mcp.stdio:Stdio",
    "sse": "parley.mcp.remote:Sse",
    "http": "parley.mcp.remote:Http",
}
STORES = {
    "claude": "parley.stores.files.claude:ClaudeStore",
    "folder": "parley.stores.files.folder:FolderStore",
    "sqlite": "parley.stores.sql.sqlite:SqliteStore",
    "postgres": "parley.stores.sql.postgres:PostgresStore",
    "memory": "parley.stores.memory:MemoryStore",
}
OBSERVERS = {"opentelemetry": "parley.telemetry.otel:create_observer"}
HOOKS = {"callback": "parley.hooks.callback:build_callbacks", "command": "parley.hooks.settings:load_command_hooks"}
DIALECTS = {
    "stream-json": "parley.protocol.dialects.stream_json:StreamJson",
    "spec001": "parley.protocol.dialects.spec001:Spec001",
    "miriad": "parley.protocol.dialects.miriad:Miriad",
    "jsonrpc": "parley.protocol.dialects.jsonrpc:JsonRpcDialect",
}

OVER_STDIO = ("miriad", "jsonrpc")
"""The dialects of `--stdio`: one conversation a database, and nobody who could be asked."""


def load(table: dict[str, str], name: str, kind: str) -> Any:
    """The class of a row. Raises UsageError if there is no such row."""
    if name not in table:
        raise UsageError(f"there is no {kind} {name!r} here; there are {', '.join(table)}")
    module, _, cls = table[name].partition(":")
    return getattr(import_module(module), cls)


def dialect_name(options: CliOptions) -> str:
    return options.dialect or ("miriad" if options.stdio else "stream-json")


def make_dialect(options: CliOptions, clock: Clock) -> Dialect:
    """How lines are spelled. Raises UsageError."""
    made: Dialect = load(DIALECTS, dialect_name(options), "dialect")(
        DialectContext(now=clock.now, new_uuid=clock.new_uuid)
    )
    return made


class DialectProfile(Struct, frozen=True, kw_only=True):
    """What a dialect wants of the session behind it, beside words of its own."""

    partial_messages: bool = False
    """Whether `stream-json` has the events of the model's stream in it, unasked."""
    hook_events: bool = False
    """Whether the runs of hooks are told unasked."""
    include_tool_schemas: bool = False
    layouts: tuple[str, ...] = ("claude", "folder")
    """Where a session is looked for by its id when no store is named; a new one is in the first."""
    prompt_separator: str = "\n"
    """What stands between prompts that go into the conversation together."""
    merge_prompts: bool = True
    """Whether prompts that waited for the end of a turn make up the next one together; else each is one."""


PROFILES = {
    "spec001": DialectProfile(
        partial_messages=True, hook_events=True, include_tool_schemas=True, layouts=("folder", "claude")
    ),
    **dict.fromkeys(OVER_STDIO, DialectProfile(prompt_separator="\n\n", merge_prompts=False)),
}


def get_profile(options: CliOptions) -> DialectProfile:
    return PROFILES.get(dialect_name(options), DialectProfile())


def include_partial_messages(options: CliOptions) -> bool:
    """Whether the events of the model's stream are told."""
    if options.output_format == "message":
        return False
    return options.include_partial_messages or (
        get_profile(options).partial_messages and options.output_format == "stream-json"
    )
