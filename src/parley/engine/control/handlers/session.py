"""The handlers of control requests: one function and one row in `HANDLERS` each.

A handler returns the payload of the success reply, or raises NotPossible. A slow handler is a coroutine function;
`dispatcher.py` awaits it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.control.handlers import mcp, settings
from parley.engine.session.messages import CAPABILITIES
from parley.engine.text import sanitize
from parley.engine.turn.structured_output import OutputSchema
from parley.errors import NotPossible, SessionError, UsageError
from parley.models.catalog import list_known_models
from parley.protocol.base import UNSET, Json
from parley.protocol.messages import requests
from parley.version import PROTOCOL_LEVEL, __version__

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.engine.turn.client_tools import ClientToolSpec

TASK_TAIL_BYTES = 8 * 1024
"""The longest part of a task's output in one reply."""
MAX_TITLE_CHARS = 1000


def initialize(
    session: Session, request: requests.Initialize
) -> requests.InitializeAnswer | Awaitable[requests.InitializeAnswer]:
    # Validate everything first: a refused handshake has no effect.
    schema = parse_schema(session, request.jsonSchema) if isinstance(request.jsonSchema, dict) else None
    own_tools = parse_tools(request.clientTools) if isinstance(request.clientTools, list) else None
    if request.guard is True:
        session.gate.guard(session.outbox.host)
    # Hooks that cannot be guaranteed are not applied, and the answer says so.
    applied = request.hooks is UNSET or session.hooks.register(request.hooks or {})
    if isinstance(request.agents, dict):
        session.config.agents.registry.set_host_agents(request.agents)
    if isinstance(request.forwardSubagentText, bool):
        session.forwards_subagent_text = request.forwardSubagentText
    conversation, own = session.conversation, request.systemPrompt
    if isinstance(own, str | list):
        conversation.instructions = msgspec.structs.replace(
            conversation.instructions, replaced=own if isinstance(own, str) else "\n\n".join(own)
        )
    if isinstance(request.appendSystemPrompt, str):
        conversation.instructions = msgspec.structs.replace(
            conversation.instructions, appended=request.appendSystemPrompt
        )
    if schema is not None:
        conversation.set_output_schema(schema)
    if isinstance(request.promptSuggestions, bool):
        session.enable_suggestions(request.promptSuggestions)
    if own_tools is not None:
        session.get_client_tools().declare(own_tools)
    if isinstance(request.skills, list):
        session.commands.restrict(request.skills)
    if session.main_agent is not None:
        session.main_agent.activate()
    greeted = session.servers.start_host_servers(request)
    answer = requests.InitializeAnswer(
        commands=session.commands.list_commands(),
        agents=session.config.agents.registry.to_json(),
        output_style=session.config.extensions.output_style,
        available_output_styles=list(
            dict.fromkeys([*session.config.extensions.list_styles(), session.config.extensions.output_style])
        ),
        models=list_known_models(),
        account={
            "tokenSource": "none",
            "apiKeySource": session.config.model.api_key_source,
            "apiProvider": "firstParty",
        },
        pid=os.getpid(),
        claude_code_version=PROTOCOL_LEVEL,
        parley_version=__version__,
        current_permission_mode=session.mode,
        hook_on_failure_supported=True,
        hooks_applied=applied if request.hooks else UNSET,
        other_hook_ask_outranks_host=True,
        fast_mode_state="off",
        session_state=session.state,
        analytics_disabled=True,
        capabilities=CAPABILITIES,
    )
    return answer_after_start(answer) if greeted else answer


async def answer_after_start(answer: requests.InitializeAnswer) -> requests.InitializeAnswer:
    """The answer, sent after the requests that were sent before it."""
    return answer


def parse_schema(session: Session, schema: Json) -> OutputSchema:
    """Raises NotPossible if the schema is invalid."""
    try:
        return OutputSchema(schema, session.limits.max_schema_attempts)
    except UsageError as exc:
        raise NotPossible(str(exc)) from None


def parse_tools(tools: list[Json]) -> list[ClientToolSpec]:
    """Raises NotPossible if the declarations are invalid."""
    from parley.engine.turn.client_tools import parse_client_tools

    try:
        return parse_client_tools(tools)
    except UsageError as exc:
        raise NotPossible(str(exc)) from None


def interrupt(session: Session, request: requests.Interrupt) -> requests.InterruptAnswer:
    queued = session.prompts.list_queued()
    uuids = [prompt.uuid for prompt in queued if prompt.has_client_uuid]
    if request.cancel_queued is not True:
        return requests.InterruptAnswer(still_queued=uuids)
    for prompt in queued:
        if not prompt.is_notification:  # the end of a task is reported nevertheless
            session.prompts.cancel(prompt)
    return requests.InterruptAnswer(still_queued=[], cancelled=uuids)


def cancel_message(session: Session, request: requests.CancelAsyncMessage) -> Json:
    waiting = next(
        (prompt for prompt in session.prompts.list_cancellable() if prompt.uuid == request.message_uuid), None
    )
    if waiting is not None:
        session.prompts.cancel(waiting)
    return {"cancelled": waiting is not None}


async def rewind_files(session: Session, request: requests.RewindFiles) -> requests.RewindAnswer:
    if not session.config.client.may_rewind:
        raise NotPossible("File rewinding is not enabled.")
    dry_run = request.dry_run is True
    files = session.config.tool_context.files
    rewound = await asyncio.to_thread(files.rewind, request.user_message_id, dry_run=dry_run)
    # Clients ignore the answer to a rewind, but not an error. A dry run answers with the reason.
    if not rewound.possible and not (dry_run and rewound.left_alone):
        raise NotPossible(rewound.reason)
    reason = rewound.reason or UNSET
    if not dry_run:
        return requests.RewindAnswer(canRewind=True, error=reason, skippedLinks=rewound.skipped_links)
    return requests.RewindAnswer(
        canRewind=rewound.possible,
        error=reason,
        filesChanged=list(rewound.files),
        insertions=rewound.insertions,
        deletions=rewound.deletions,
    )


def stop_task(session: Session, request: requests.StopTask) -> Json:
    session.tasks.stop(require_task(session, request.task_id))
    return {}


def background_tasks(session: Session, request: requests.BackgroundTasks) -> Json:
    call = request.tool_use_id if isinstance(request.tool_use_id, str) else None
    if session.subagents is not None:
        session.subagents.move_to_background(call)
    session.tasks.move_command_to_background(call)
    return {}


def get_task_output(session: Session, request: requests.GetTaskOutput) -> Json:
    tail = session.tasks.tail(require_task(session, request.task_id), TASK_TAIL_BYTES)
    return {"output": tail.text, "total_bytes": tail.total_bytes, "truncated": tail.is_cut}


def require_task(session: Session, task_id: str) -> str:
    if session.tasks.find(task_id) is None:
        raise NotPossible(f"No task found with ID: {task_id}")
    return task_id


def list_models(session: Session, request: requests.ListModels) -> Json:
    return {"models": list_known_models()}


def get_version(session: Session, request: requests.GetBinaryVersion) -> Json:
    return {"version": PROTOCOL_LEVEL, "parley_version": __version__}


def get_context_usage(session: Session, request: requests.GetContextUsage) -> requests.ContextUsage:
    from parley.engine.context.usage_report import report_context

    return report_context(session.conversation)


def get_usage(session: Session, request: requests.GetUsage) -> Json:
    from parley.engine.control.handlers import usage

    return usage.usage_report(session.ledger, session.clock.monotonic() - session.started_at)


def get_session_cost(session: Session, request: requests.GetSessionCost) -> Json:
    from parley.engine.control.handlers import usage

    return usage.cost_report(session.ledger, session.clock.monotonic() - session.started_at)


async def read_file(session: Session, request: requests.ReadFile) -> Json:
    from parley.engine.control.handlers import files as viewer

    return await viewer.read_file(session, request)


async def seed_read_state(session: Session, request: requests.SeedReadState) -> None:
    from parley.engine.control.handlers import files as viewer

    await viewer.seed_read_state(session, request)


async def file_suggestions(session: Session, request: requests.FileSuggestions) -> Json:
    from parley.engine.control.handlers import files as viewer

    return await viewer.file_suggestions(session, request)


def reload_skills(session: Session, request: requests.ReloadSkills) -> Json:
    from parley.engine.control.handlers import plugins

    return plugins.reload_skills(session, request)


def reload_plugins(session: Session, request: requests.ReloadPlugins) -> Json:
    from parley.engine.control.handlers import plugins

    return plugins.reload_plugins(session, request)


def reload_output_styles(session: Session, request: requests.ReloadOutputStyles) -> Json:
    return {"available_output_styles": session.config.extensions.list_styles()}


def rename_session(session: Session, request: requests.RenameSession) -> Json:
    if isinstance(request.session_id, str) and request.session_id != session.id:
        raise NotPossible(f"this is the session {session.id}, not {request.session_id}")
    title = sanitize(" ".join(request.title.split()))
    if not 0 < len(title) <= MAX_TITLE_CHARS:
        raise NotPossible(f"a title has 1 to {MAX_TITLE_CHARS} characters")
    try:
        session.journal.append_event("title", {"title": title})
    except SessionError as exc:
        raise NotPossible(str(exc)) from None
    return {}


def acknowledge(session: Session, request: requests.SetColor | requests.SetHasSubscribers) -> Json:
    """A hint for clients that draw or batch. It has no effect on the engine."""
    return {}


def end_session(session: Session, request: requests.EndSession) -> None:
    """The answer goes out first; see control/dispatcher.py."""


HANDLERS: dict[type, Callable[[Session, Any], Any]] = {
    requests.Initialize: initialize,
    requests.Interrupt: interrupt,
    requests.SetModel: settings.set_model,
    requests.SetMaxThinkingTokens: settings.set_max_thinking_tokens,
    requests.SetPermissionMode: settings.set_permission_mode,
    requests.CancelAsyncMessage: cancel_message,
    requests.RewindFiles: rewind_files,
    requests.StopTask: stop_task,
    requests.BackgroundTasks: background_tasks,
    requests.GetTaskOutput: get_task_output,
    requests.ApplyFlagSettings: settings.apply_flag_settings,
    requests.UpdateSettings: settings.update_settings,
    requests.GetSettings: settings.get_settings,
    requests.ListPermissionRules: settings.list_permission_rules,
    requests.GetHooksListing: settings.get_hooks_listing,
    requests.ListModels: list_models,
    requests.GetBinaryVersion: get_version,
    requests.McpStatus: mcp.mcp_status,
    requests.McpReconnect: mcp.mcp_reconnect,
    requests.McpToggle: mcp.mcp_toggle,
    requests.McpSetServers: mcp.mcp_set_servers,
    requests.McpMessage: mcp.mcp_message,
    requests.McpCall: mcp.mcp_call,
    requests.McpReadResource: mcp.mcp_read_resource,
    requests.GetContextUsage: get_context_usage,
    requests.GetUsage: get_usage,
    requests.GetSessionCost: get_session_cost,
    requests.ReadFile: read_file,
    requests.SeedReadState: seed_read_state,
    requests.FileSuggestions: file_suggestions,
    requests.ReloadSkills: reload_skills,
    requests.ReloadPlugins: reload_plugins,
    requests.ReloadOutputStyles: reload_output_styles,
    requests.RenameSession: rename_session,
    requests.SetColor: acknowledge,
    requests.SetHasSubscribers: acknowledge,
    requests.EndSession: end_session,
}
