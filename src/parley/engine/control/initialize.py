"""The handshake: the client declares what it has, the engine answers with what it offers.

Everything is checked first: a refused handshake has no effect. A field that has no effect is named on stderr and, with
the next turn, in a message to the client. One that would restrict the session is refused.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from parley._launched import launched_pid
from parley.engine.context.system_prompt import is_replaced
from parley.errors import NotPossible, UsageError
from parley.mcp.base import PREFIX
from parley.models.catalog import list_known_models
from parley.protocol.base import UNSET, Json, UnsetType, sanitize
from parley.protocol.messages import requests
from parley.protocol.messages.system import CAPABILITIES
from parley.version import PROTOCOL_LEVEL, __version__

if TYPE_CHECKING:
    from parley.engine.session.config import ClientToolSpec
    from parley.engine.session.session import Session
    from parley.engine.turn.structured_output import OutputSchema


PROTOCOL_VERSION = "1.0"
MAX_TITLE_CHARS = 1000
RESTRICTING = {
    "allowedTools": "--allowedTools",
    "disallowedTools": "--disallowedTools",
    "maxBudgetUsd": "--max-budget-usd",
    "maxTurns": "--max-turns",
    "permissionMode": "--permission-mode",
    "permissions": "--settings",
    "sandbox": "--settings",
    "settings": "--settings",
    "strictMcpConfig": "--strict-mcp-config",
    "tools": "--tools",
}
"""Options that restrict a session and are not fields of the request, and the flags that they have."""


def initialize(
    session: Session, request: requests.Initialize
) -> requests.InitializeAnswer | Awaitable[requests.InitializeAnswer]:
    check(session, request)
    schema = parse_schema(session, request.jsonSchema) if isinstance(request.jsonSchema, dict) else None
    own_tools = parse_tools(request.clientTools) if isinstance(request.clientTools, list) else None
    if request.guard is True:
        session.gate.guard(session.outbox.host)
    # Hooks that cannot be guaranteed are not applied, and the answer says so.
    applied = request.hooks is UNSET or session.hooks.register(request.hooks or {})
    if isinstance(request.agents, dict):
        session.config.agents.registry.set_host_agents(request.agents)
    if isinstance(request.forwardSubagentText, bool):
        session.declared.forwards_text = request.forwardSubagentText
    apply_prompt(session, request)
    apply_declarations(session, request)
    if schema is not None:
        session.conversation.set_output_schema(schema)
    if isinstance(request.promptSuggestions, bool):
        session.enable_suggestions(request.promptSuggestions)
    if own_tools is not None:
        session.get_client_tools().declare(own_tools)
    if isinstance(request.skills, list):
        session.commands.restrict(request.skills)
    if session.main_agent is not None:
        session.main_agent.activate()
    greeted = session.servers.start_host_servers(request)
    answer = build_answer(session, request, hooks_applied=applied)
    for text in list_notices(session, request, answer):
        session.config.warn(text)
        session.outbox.add_notice(text, tag="initialize")
    return answer_after_start(answer) if greeted else answer


def build_answer(session: Session, request: requests.Initialize, *, hooks_applied: bool) -> requests.InitializeAnswer:
    return requests.InitializeAnswer(
        commands=session.commands.list_commands(),
        agents=session.config.agents.registry.to_json(),
        output_style=session.config.extensions.output_style,
        available_output_styles=list(
            dict.fromkeys([*session.config.extensions.list_styles(), session.config.extensions.output_style])
        ),
        models=list_known_models(session.config.model.aliases, session.config.model.is_allowed),
        account={
            "tokenSource": "none",
            "apiKeySource": session.config.model.api_key_source,
            "apiProvider": "firstParty",
        },
        pid=launched_pid(),
        claude_code_version=PROTOCOL_LEVEL,
        parley_version=__version__,
        current_permission_mode=session.mode,
        hook_on_failure_supported=True,
        hooks_applied=hooks_applied if request.hooks else UNSET,
        plugins_applied=are_plugins_loaded(session, request.plugins),
        mcp_servers_applied=are_servers_taken(session, request.mcpServers),
        sdk_mcp_manifests_parked=describe_manifests(session, request),
        other_hook_ask_outranks_host=True,
        fast_mode_state="off",
        session_state=session.state,
        analytics_disabled=True,
        capabilities=list(CAPABILITIES),
    )


# Checks.


def check(session: Session, request: requests.Initialize) -> None:
    """Raises NotPossible if a field cannot have its effect and the session must not start without it."""
    for name in request.unknown_fields:
        if name in RESTRICTING:
            raise NotPossible(
                f"initialize.{name} is not supported and cannot be ignored, because it restricts the "
                f"session; use {RESTRICTING[name]}"
            )
    if isinstance(request.managedSettings, dict) and not has_managed_settings(session, request.managedSettings):
        text = "initialize.managedSettings takes effect only in the first request of a session that was started with"
        raise NotPossible(f"{text} --await-initialize and --managed-settings-in-initialize")
    if request.agents and (key := session.config.settings.merged.find_lock("agents")):
        raise NotPossible(f"initialize.agents is disabled by managed settings ({key})")
    if isinstance(request.title, str) and len(request.title) > MAX_TITLE_CHARS:
        raise NotPossible(f"initialize.title must have at most {MAX_TITLE_CHARS} characters")
    for alias, name in (request.toolAliases or {}).items():
        if not alias or not name:
            raise NotPossible(f"initialize.toolAliases: {alias!r} and {name!r} must be non-empty names of tools")
    for name, config in list_server_configs(request):
        if isinstance(config, dict) and "tools" in config:
            check_policies(name, request)


def list_server_configs(request: requests.Initialize) -> Iterable[tuple[str, Any]]:
    return request.sdkMcpServerConfigs.items() if isinstance(request.sdkMcpServerConfigs, dict) else ()


def check_policies(name: str, request: requests.Initialize) -> list[str]:
    """What has no effect in the policies for the tools of a server. Raises NotPossible if they are invalid."""
    from parley.mcp.config import parse_policies, parse_tools

    configs: Json = dict(list_server_configs(request))
    try:
        tools, notes = parse_tools(configs[name]["tools"])
    except msgspec.ValidationError as exc:
        raise NotPossible(f"initialize.sdkMcpServerConfigs: {name!r:.200}: tools: {exc}") from None
    parse_policies(tools, notes, may_allow=False)
    return notes


def has_managed_settings(session: Session, settings: Json) -> bool:
    """Whether these settings are in effect since the start."""
    options = session.config.options
    if not options.managed_settings_in_initialize or options.managed_settings is None:
        return False
    return bool(msgspec.json.decode(options.managed_settings) == settings)


def list_notices(session: Session, request: requests.Initialize, answer: requests.InitializeAnswer) -> Iterator[str]:
    """A sentence for every field that has no effect here."""
    for name in request.unknown_fields:
        yield f"initialize.{name} is unknown and has no effect"
    if request.features or request.protocolVersion not in (UNSET, None, PROTOCOL_VERSION):
        yield f"initialize.protocolVersion and features have no effect: this engine uses version {PROTOCOL_VERSION}"
    if request.supportedDialogKinds:
        yield "initialize.supportedDialogKinds has no effect: this engine shows no dialogs"
    if answer.plugins_applied is False:
        how = "" if session.config.options.await_initialize else "; plugins are loaded only with --await-initialize"
        yield f"initialize.plugins: not all of these plugins are loaded{how}"
    if answer.mcp_servers_applied is False:
        yield (
            "initialize.mcpServers has no effect: servers are read only from the first request of a session that was "
            "started with --await-initialize and without --safe-mode; use mcp_set_servers"
        )
    if request.excludeDynamicSections is True and is_replaced(session.conversation.instructions):
        yield "initialize.excludeDynamicSections has no effect: a custom system prompt has no such sections"
    if request.title and session.config.options.name:
        yield "initialize.title has no effect: the title is set by --name"
    if request.agentProgressSummaries is True and session.config.options.disable_agent_summaries:
        yield "initialize.agentProgressSummaries has no effect: CLAUDE_CODE_DISABLE_AGENT_PROGRESS_SUMMARIES is set"
    for name in sorted(set(request.skills if isinstance(request.skills, list) else ())):
        if name not in session.commands.templates():
            yield f"initialize: there is no skill {name!r}"
    for name, agent in (request.agents or {}).items():
        if agent.observer or agent.observerMessage:
            yield f"initialize.agents.{name}.observer has no effect: observers are not supported"
    for alias, name in (request.toolAliases or {}).items():
        if not name.startswith(PREFIX) and name not in session.config.tools:
            yield f"initialize.toolAliases: {alias!r} has no effect: there is no tool {name!r}"
    if request.sdkMcpServerConfigs:
        yield from list_server_notices(request)


def list_server_notices(request: requests.Initialize) -> Iterator[str]:
    from parley.mcp.config import HOST_FIELDS

    for name, config in list_server_configs(request):
        field = f"initialize.sdkMcpServerConfigs: {name!r:.200}"
        if name not in (request.sdkMcpServers or ()):
            yield f"{field} has no effect: the server is not listed in sdkMcpServers"
            continue
        if not isinstance(config, dict):
            yield f"{field} has no effect: it is not an object"
            continue
        if unknown := [key for key in config if key not in HOST_FIELDS]:
            yield f"{field}: {', '.join(unknown):.200} has no effect"
        if "tools" in config:
            yield from (f"{field}: {note}" for note in check_policies(name, request))


# Effects.


def apply_prompt(session: Session, request: requests.Initialize) -> None:
    conversation, own = session.conversation, request.systemPrompt
    if isinstance(own, str | list):
        conversation.instructions = msgspec.structs.replace(
            conversation.instructions, replaced=own if isinstance(own, str) else "\n\n".join(own)
        )
    if isinstance(request.appendSystemPrompt, str):
        conversation.instructions = msgspec.structs.replace(
            conversation.instructions, appended=request.appendSystemPrompt
        )
    if isinstance(request.excludeDynamicSections, bool):
        conversation.instructions = msgspec.structs.replace(
            conversation.instructions, excludes_dynamic=request.excludeDynamicSections
        )
    if isinstance(request.systemPromptSnapshot, bool):
        conversation.records_prompt = request.systemPromptSnapshot


def apply_declarations(session: Session, request: requests.Initialize) -> None:
    declared = session.declared
    if isinstance(request.title, str):
        declared.title = sanitize(" ".join(request.title.split()))
    if isinstance(request.planModeInstructions, str):
        declared.plan_instructions, declared.knows_plan = request.planModeInstructions, False
    if isinstance(request.agentProgressSummaries, bool):
        wanted = request.agentProgressSummaries and not session.config.options.disable_agent_summaries
        declared.summarizes_agents = wanted
    if isinstance(request.toolAliases, dict):
        session.tool_executor.aliases = request.toolAliases
    if declared.can_stop_tasks is None:  # the first client decides
        declared.can_stop_tasks = request.perTaskStopAffordance is True


# The answer.


def are_plugins_loaded(session: Session, plugins: list[requests.PluginEntry] | None | UnsetType) -> bool | UnsetType:
    """Whether all plugins of the request were loaded at the start."""
    if not plugins:
        return UNSET
    loaded = {plugin["path"] for plugin in session.plugins[0]}
    cwd = session.config.cwd
    return all(os.path.realpath(os.path.join(cwd, os.path.expanduser(one.path))) in loaded for one in plugins)


def are_servers_taken(session: Session, servers: Json | None | UnsetType) -> bool | UnsetType:
    """Whether the session was started with these servers. Some of them may have been refused or have failed since."""
    if not servers:
        return UNSET
    options = session.config.options
    if not options.await_initialize or options.safe_mode:
        return False
    given = [msgspec.json.decode(text) for text in options.mcp_config or () if text.startswith("{")]
    return {"mcpServers": servers} in given


def describe_manifests(session: Session, request: requests.Initialize) -> dict[str, str] | UnsetType:
    """What became of the handshakes that the client has performed in advance."""
    if not isinstance(request.sdkMcpServerManifests, dict) or not request.sdkMcpServers:
        return UNSET
    return session.servers.parked


async def answer_after_start(answer: requests.InitializeAnswer) -> requests.InitializeAnswer:
    """The answer, sent after the requests that were sent before it."""
    return answer


def parse_schema(session: Session, schema: Json) -> OutputSchema:
    """Raises NotPossible if the schema is invalid."""
    from parley.engine.turn.structured_output import OutputSchema

    try:
        return OutputSchema(schema, session.conversation.options.max_schema_attempts)
    except UsageError as exc:
        raise NotPossible(str(exc)) from None


def parse_tools(tools: list[Json]) -> list[ClientToolSpec]:
    """Raises NotPossible if the declarations are invalid."""
    from parley.engine.turn.client_tools import parse_client_tools

    try:
        return parse_client_tools(tools)
    except UsageError as exc:
        raise NotPossible(str(exc)) from None
