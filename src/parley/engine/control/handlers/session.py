"""The engine's answers to the host's control requests: one function and one row each.

A function returns the payload of a success, or raises NotPossible. It never waits: one
whose answer takes its time is a coroutine, and control/dispatcher.py awaits it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.control.handlers import mcp, settings
from parley.engine.session.messages import CAPABILITIES
from parley.engine.text import sanitized
from parley.engine.turn.structured_output import Form
from parley.errors import NotPossible, SessionError, UsageError
from parley.models.catalog import listing
from parley.protocol.base import UNSET, Json
from parley.protocol.messages import requests as ask
from parley.version import PROTOCOL_LEVEL, __version__

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.engine.turn.client_tools import Declared

TASK_TAIL_BYTES = 8 * 1024
"""As much of a task's output as a host gets at a time."""
MOST_TITLE_CHARS = 1000


def initialize(session: Session, request: ask.Initialize) -> ask.InitializeAnswer | Awaitable[ask.InitializeAnswer]:
    # What cannot be had is said before anything is changed: a handshake that is refused has no effect.
    form = read_schema(session, request.jsonSchema) if isinstance(request.jsonSchema, dict) else None
    own_tools = read_client_tools(request.clientTools) if isinstance(request.clientTools, list) else None
    if request.guard is True:
        session.asker.guard(session.host)
    # What cannot be relied on is not applied: a client that relies on it must hear of it.
    applied = request.hooks is UNSET or session.listeners.register(session, request.hooks or {})
    if isinstance(request.agents, dict):
        session.setup.agents.take(request.agents)
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
    if form is not None:
        conversation.take_form(form)
    if isinstance(request.promptSuggestions, bool):
        session.want_suggestions(request.promptSuggestions)
    if own_tools is not None:
        session.calls_of_client().declare(own_tools)
    if isinstance(request.skills, list):
        session.commands.want(request.skills)
    if session.lead is not None:
        session.lead.settle()
    greeted = session.servers.greet(request)
    answer = ask.InitializeAnswer(
        commands=session.commands.listed(),
        agents=session.setup.agents.listing(),
        output_style=session.setup.output_style,
        available_output_styles=list(dict.fromkeys([*session.setup.styles(), session.setup.output_style])),
        models=listing(),
        account={"tokenSource": "none", "apiKeySource": session.setup.api_key_source, "apiProvider": "firstParty"},
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
    return behind(answer) if greeted else answer


async def behind(answer: ask.InitializeAnswer) -> ask.InitializeAnswer:
    """The answer, told behind what was begun before."""
    return answer


def read_schema(session: Session, schema: Json) -> Form:
    """Raises NotPossible if it is none."""
    try:
        return Form(schema, session.limits.max_form_attempts)
    except UsageError as flaw:
        raise NotPossible(str(flaw)) from None


def read_client_tools(tools: list[Json]) -> list[Declared]:
    """Raises NotPossible if these are none."""
    from parley.engine.turn.client_tools import declared

    try:
        return declared(tools)
    except UsageError as flaw:
        raise NotPossible(str(flaw)) from None


def interrupt(session: Session, request: ask.Interrupt) -> ask.InterruptAnswer:
    behind = session.prompts.behind()
    named = [prompt.uuid for prompt in behind if prompt.named]
    if request.cancel_queued is not True:
        return ask.InterruptAnswer(still_queued=named)
    for prompt in behind:
        if not prompt.is_notification:  # the end of a task is news all the same
            session.prompts.withdraw(prompt)
    return ask.InterruptAnswer(still_queued=[], cancelled=named)


def cancel_message(session: Session, request: ask.CancelAsyncMessage) -> Json:
    waiting = next((prompt for prompt in session.prompts.waiting() if prompt.uuid == request.message_uuid), None)
    if waiting is not None:
        session.prompts.withdraw(waiting)
    return {"cancelled": waiting is not None}


async def rewind_files(session: Session, request: ask.RewindFiles) -> ask.RewindAnswer:
    if not session.setup.may_rewind:
        raise NotPossible("File rewinding is not enabled.")
    dry_run = request.dry_run is True
    files = session.setup.tool_context.files
    rewound = await asyncio.to_thread(files.rewind, request.user_message_id, dry_run=dry_run)
    # Clients ignore the answer to a rewind but not an error. To look ahead is to want to know.
    if not rewound.possible and not (dry_run and rewound.left_alone):
        raise NotPossible(rewound.reason)
    reason = rewound.reason or UNSET
    if not dry_run:
        return ask.RewindAnswer(canRewind=True, error=reason, skippedLinks=rewound.skipped_links)
    return ask.RewindAnswer(
        canRewind=rewound.possible,
        error=reason,
        filesChanged=list(rewound.files),
        insertions=rewound.insertions,
        deletions=rewound.deletions,
    )


def stop_task(session: Session, request: ask.StopTask) -> Json:
    session.tasks.stop(known_task(session, request.task_id))
    return {}


def background_tasks(session: Session, request: ask.BackgroundTasks) -> Json:
    call = request.tool_use_id if isinstance(request.tool_use_id, str) else None
    if session.subagents is not None:
        session.subagents.move_behind(call)
    session.tasks.send_behind(call)
    return {}


def get_task_output(session: Session, request: ask.GetTaskOutput) -> Json:
    tail = session.tasks.tail(known_task(session, request.task_id), TASK_TAIL_BYTES)
    return {"output": tail.text, "total_bytes": tail.total_bytes, "truncated": tail.is_cut}


def known_task(session: Session, task_id: str) -> str:
    if session.tasks.find(task_id) is None:
        raise NotPossible(f"No task found with ID: {task_id}")
    return task_id


def list_models(session: Session, request: ask.ListModels) -> Json:
    return {"models": listing()}


def version(session: Session, request: ask.GetBinaryVersion) -> Json:
    return {"version": PROTOCOL_LEVEL, "parley_version": __version__}


def get_context_usage(session: Session, request: ask.GetContextUsage) -> ask.ContextUsage:
    from parley.engine.control.handlers import usage

    return usage.context(session)


def get_usage(session: Session, request: ask.GetUsage) -> Json:
    from parley.engine.control.handlers import usage

    return usage.usage(session)


def get_session_cost(session: Session, request: ask.GetSessionCost) -> Json:
    from parley.engine.control.handlers import usage

    return usage.cost(session)


async def read_file(session: Session, request: ask.ReadFile) -> Json:
    from parley.engine.control.handlers import files as viewer

    return await viewer.read_file(session, request)


async def seed_read_state(session: Session, request: ask.SeedReadState) -> None:
    from parley.engine.control.handlers import files as viewer

    await viewer.seed_read_state(session, request)


async def file_suggestions(session: Session, request: ask.FileSuggestions) -> Json:
    from parley.engine.control.handlers import files as viewer

    return await viewer.file_suggestions(session, request)


def reload_skills(session: Session, request: ask.ReloadSkills) -> Json:
    from parley.engine.control.handlers import plugins

    return plugins.reload_skills(session, request)


def reload_plugins(session: Session, request: ask.ReloadPlugins) -> Json:
    from parley.engine.control.handlers import plugins

    return plugins.reload_plugins(session, request)


def reload_output_styles(session: Session, request: ask.ReloadOutputStyles) -> Json:
    return {"available_output_styles": session.setup.styles()}


def rename_session(session: Session, request: ask.RenameSession) -> Json:
    if isinstance(request.session_id, str) and request.session_id != session.id:
        raise NotPossible(f"this is the session {session.id}, not {request.session_id}")
    title = sanitized(" ".join(request.title.split()))
    if not 0 < len(title) <= MOST_TITLE_CHARS:
        raise NotPossible(f"a title has 1 to {MOST_TITLE_CHARS} characters")
    try:
        session.record.note("title", {"title": title})
    except SessionError as flaw:
        raise NotPossible(str(flaw)) from None
    return {}


def acknowledge(session: Session, request: ask.SetColor | ask.SetHasSubscribers) -> Json:
    """A hint for clients that draw or batch; an engine that does neither has nothing to do."""
    return {}


def end_session(session: Session, request: ask.EndSession) -> None:
    """The answer goes out first; see control/dispatcher.py."""


ANSWERERS: dict[type, Callable[[Session, Any], Any]] = {
    ask.Initialize: initialize,
    ask.Interrupt: interrupt,
    ask.SetModel: settings.set_model,
    ask.SetMaxThinkingTokens: settings.set_max_thinking_tokens,
    ask.SetPermissionMode: settings.set_permission_mode,
    ask.CancelAsyncMessage: cancel_message,
    ask.RewindFiles: rewind_files,
    ask.StopTask: stop_task,
    ask.BackgroundTasks: background_tasks,
    ask.GetTaskOutput: get_task_output,
    ask.ApplyFlagSettings: settings.apply_flag_settings,
    ask.UpdateSettings: settings.update_settings,
    ask.GetSettings: settings.get_settings,
    ask.ListPermissionRules: settings.list_permission_rules,
    ask.GetHooksListing: settings.get_hooks_listing,
    ask.ListModels: list_models,
    ask.GetBinaryVersion: version,
    ask.McpStatus: mcp.mcp_status,
    ask.McpReconnect: mcp.mcp_reconnect,
    ask.McpToggle: mcp.mcp_toggle,
    ask.McpSetServers: mcp.mcp_set_servers,
    ask.McpMessage: mcp.mcp_message,
    ask.McpCall: mcp.mcp_call,
    ask.McpReadResource: mcp.mcp_read_resource,
    ask.GetContextUsage: get_context_usage,
    ask.GetUsage: get_usage,
    ask.GetSessionCost: get_session_cost,
    ask.ReadFile: read_file,
    ask.SeedReadState: seed_read_state,
    ask.FileSuggestions: file_suggestions,
    ask.ReloadSkills: reload_skills,
    ask.ReloadPlugins: reload_plugins,
    ask.ReloadOutputStyles: reload_output_styles,
    ask.RenameSession: rename_session,
    ask.SetColor: acknowledge,
    ask.SetHasSubscribers: acknowledge,
    ask.EndSession: end_session,
}
