"""Handlers that change or report the model, the permission mode, thinking and settings."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.approval.gate import evaluate, prepare_decision
from parley.engine.approval.request import input_digest, permission_request
from parley.errors import NotPossible, SessionError
from parley.models.catalog import EFFORTS
from parley.permissions.base import Allow, Ask, Decision, Deny, InvalidUpdate, ToolRequest, is_auto_disabled
from parley.permissions.rule import Behavior, MalformedRule, parse_rule
from parley.protocol.base import UNSET, Json, Struct
from parley.protocol.messages import panel_requests, requests
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.occasional import CommandsChanged
from parley.protocol.messages.system import Informational
from parley.protocol.options import MODES
from parley.settings.base import WIRE_NAMES, MergedSettings, RuleText, SettingsAccess, SettingsWriteError
from parley.tools.base import InvalidInput, read_input
from parley.tools.catalog import canonical_name

if TYPE_CHECKING:
    from parley.engine.session.config import PluginReload
    from parley.engine.session.session import Session
    from parley.protocol.messages.requests import PluginEntry


THINKING_FORMS = ("summarized", "omitted")
"""The forms of thinking that the backends return; `highlights` is for sessions that the vendor hosts."""
ASK_OUTCOME = "the client is asked"


def set_model(
    session: Session, request: requests.SetModel
) -> requests.SetModelAnswer | Awaitable[requests.SetModelAnswer]:
    name = request.model if isinstance(request.model, str) else "default"
    if any(map(session.hooks.events.has_hooks, ("PreModelSwitch", "PostModelSwitch"))):
        return set_model_with_hooks(session, name)
    return apply_model(session, name)


async def set_model_with_hooks(session: Session, name: str) -> requests.SetModelAnswer:
    """Raises NotPossible if a hook denies the switch."""
    events = session.hooks.events
    before, after = session.conversation.chosen_model, session.conversation.find_model(name)
    if before == after:
        return apply_model(session, name)
    await events.before_model_switch(before, after, name, "sdk")
    answer = apply_model(session, name)
    await events.after_model_switch(before, after, name, "sdk")
    return answer


def apply_model(session: Session, name: str) -> requests.SetModelAnswer:
    before = session.conversation.model
    choice = session.conversation.use_model(name)
    if choice != before and session.journal.history.list_messages():  # before the first turn, nothing is replaced
        text = f"<local-command-stdout>Set model to `{choice.display_name}`</local-command-stdout>"
        session.outbox.send(
            User(
                message=UserContent(content=text),
                parent_tool_use_id=None,
                timestamp=session.clock.now(),
                isReplay=True,
            )
        )
    return requests.SetModelAnswer(model=choice.display_name)


def set_max_thinking_tokens(session: Session, request: panel_requests.SetMaxThinkingTokens) -> None:
    """The display form changes with the next model call. A form that is refused leaves the budget in effect."""
    wanted, form, options = request.max_thinking_tokens, request.thinking_display, session.config.options
    if isinstance(wanted, int) and wanted < 0:
        raise NotPossible(f"max_thinking_tokens must be 0 or more, not {wanted}")
    conversation = session.conversation
    if wanted is not UNSET:
        tokens = options.max_thinking_tokens if wanted is None else wanted
        conversation.thinking = msgspec.structs.replace(conversation.thinking, budget_tokens=tokens)
    if form is UNSET:
        return
    if form is not None and form not in THINKING_FORMS:
        choices = ", ".join(THINKING_FORMS)
        raise NotPossible(f"thinking_display {form!r:.100} is not supported (choose from {choices}, null)")
    display = options.thinking_display if form is None else form
    conversation.thinking = msgspec.structs.replace(conversation.thinking, display=display)


def set_permission_mode(session: Session, request: requests.SetPermissionMode) -> Json:
    if request.mode not in MODES:
        raise NotPossible(
            f"Cannot set permission mode: {request.mode!r} is unknown (choose from {', '.join(sorted(MODES))})",
            "invalid_mode",
        )
    if request.mode == "bypassPermissions" and not session.may_bypass():
        raise NotPossible(
            "bypassPermissions is disabled by the settings (disableBypassPermissionsMode)"
            if session.config.permissions.may_bypass
            else "bypassPermissions must be allowed at launch, with --allow-dangerously-skip-permissions",
            "bypass_not_launched",
        )
    if request.mode == "auto" and is_auto_disabled(session.config.settings.merged):
        raise NotPossible("auto is disabled by the settings (disableAutoMode)", "auto_disabled")
    session.permission_mode.change(request.mode)
    return {"mode": session.mode}


def apply_flag_settings(session: Session, request: panel_requests.ApplyFlagSettings) -> None:
    change_settings(session, request.settings, lambda held: held.apply(request.settings))


def update_settings(session: Session, request: panel_requests.UpdateSettings) -> Awaitable[None] | None:
    if session.hooks.events.has_hooks("ConfigChange"):
        return update_with_hooks(session, request)
    write_settings(session, request)
    return None


async def update_with_hooks(session: Session, request: panel_requests.UpdateSettings) -> None:
    """Raises NotPossible if a hook blocks the change."""
    await session.hooks.events.before_settings_change(request.source)
    write_settings(session, request)
    session.hooks.events.settings_changed()


def write_settings(session: Session, request: panel_requests.UpdateSettings) -> None:
    change_settings(session, request.settings, lambda held: held.update(request.source, request.settings))


def check_rules(permissions: Any) -> None:
    """Raises NotPossible if a deny or ask rule is malformed, because it would not restrict anything."""
    behaviors: tuple[Behavior, ...] = ("deny", "ask")
    for behavior in behaviors if isinstance(permissions, dict) else ():
        texts = permissions.get(behavior)
        for text in texts if isinstance(texts, list) else ():
            found = parse_rule(text, behavior, "flag", "") if isinstance(text, str) else None
            if isinstance(found, MalformedRule):
                raise NotPossible(f"the {behavior} rule {text!r:.200} is malformed: {found.reason}")


def change_settings(session: Session, settings: Json, change: Callable[[SettingsAccess], MergedSettings]) -> None:
    """Let a change of the settings take effect: all of it, or nothing. Raises NotPossible."""
    held = session.config.settings
    check_rules(settings.get("permissions"))
    before, known = held.merged.get("model"), held.notices()
    if isinstance(settings.get("model"), str):
        session.conversation.find_model(settings["model"])
    effort = settings.get("effortLevel")
    if effort is not None and effort not in EFFORTS:
        raise NotPossible(f"effortLevel {effort!r:.100} is unknown (choose from {', '.join(EFFORTS)})")
    try:
        after = change(held)
    except SettingsWriteError as exc:
        raise NotPossible(str(exc)) from None
    for text in held.notices():
        if text not in known:
            session.config.warn(text)
            session.outbox.send(Informational(content=text, level="warning", tag="settings"))
    session.config.permissions.policy.apply_settings(after)
    session.hooks.set_commands(after)
    if session.mode == "bypassPermissions" and not session.may_bypass():
        session.permission_mode.change("default")
    environment = session.config.workspace.environment
    environment.clear()
    environment.update(held.child_environment())
    if "effortLevel" in settings:
        session.conversation.effort = effort or session.config.options.effort
    if after.get("model") != before:
        old = session.conversation.model
        new = session.conversation.use_model(after.get("model", "default"))
        if old != new:
            session.hooks.events.model_switched(old, new, after.get("model"))


def get_settings(session: Session, request: panel_requests.GetSettings) -> Json:
    held = session.config.settings
    return {
        "effective": held.merged.to_json(),
        "sources": [
            {"source": WIRE_NAMES[layer.source], "path": layer.path, "settings": layer.values}
            for layer in reversed(held.layers())
        ],
        "applied": {"model": session.conversation.model.display_name, "effort": session.conversation.effort},
        "inert": [
            {"key": inert.key, "source": WIRE_NAMES[inert.source], "path": inert.path, "reason": inert.reason}
            for inert in held.merged.ignored
        ],
    }


def list_permission_rules(session: Session, request: panel_requests.ListPermissionRules) -> Json:
    return {"state": session.config.permissions.policy.list_rules()}


def set_prompt_suggestions_paused(session: Session, request: panel_requests.SetPromptSuggestionsPaused) -> None:
    """Without suggestions there is nothing to pause."""
    if session.suggester is not None:
        session.suggester.pause(request.paused)


def reload_skills(session: Session, request: panel_requests.ReloadSkills) -> Json:
    reload_templates(session)
    skills = {recipe.name for recipe in session.commands.skills()}
    return {"skills": [command for command in session.commands.list_commands() if command["name"] in skills]}


def reload_plugins(session: Session, request: panel_requests.ReloadPlugins) -> Json:
    """Read plugins again, with those that the client adds. Servers are restarted only if they have changed."""
    if request.refuse_if_busy is True and is_busy(session):
        text = "the session is busy; plugins cannot be reloaded until it is idle"
        raise NotPossible(text, "reload_plugins_busy")
    prepared = session.config.extensions.prepare_plugins(parse_added(session, request))
    if request.hold_on_cache_impact is True:
        added, removed = session.servers.compare_plugin_servers(prepared.servers)
        # Nothing is cached before the first prompt.
        if (added or removed) and session.journal.history.render():
            impact = {"mcp_servers_added": added, "mcp_servers_removed": removed, "lsp_tool_change": None}
            return {**describe_parts(session), "held": True, "cache_impact": impact}
    apply_plugins(session, prepared)
    return {**describe_parts(session), **({"held": False} if request.hold_on_cache_impact is True else {})}


def parse_added(session: Session, request: panel_requests.ReloadPlugins) -> list[PluginEntry]:
    """Raises NotPossible if plugins may not be added."""
    added, settings = request.add_plugins or [], session.config.settings
    if not added:
        return []
    if key := settings.merged.find_lock("plugins"):
        raise NotPossible(f"add_plugins is disabled by managed settings ({key})")
    if session.config.options.safe_mode:
        raise NotPossible("add_plugins has no effect with --safe-mode")
    for plugin in added:
        if not os.path.isabs(plugin.path):
            raise NotPossible(f"add_plugins: the path {plugin.path!r:.500} is not absolute")
    return added


def apply_plugins(session: Session, prepared: PluginReload) -> None:
    prepared.apply()
    session.forget_plugins()
    session.config.agents.registry.reload()
    session.hooks.set_commands(session.config.settings.merged)
    reload_templates(session)
    session.servers.replace_plugin_servers(prepared.servers)


def describe_parts(session: Session) -> Json:
    """What the plugins of a session have brought."""
    found, errors = session.plugins
    return {
        "commands": session.commands.list_commands(),
        "agents": session.config.agents.registry.to_json(),
        "plugins": found,
        "mcpServers": [{"name": state.name, "status": state.status} for state in session.servers.states()],
        "error_count": len(errors),
    }


def is_busy(session: Session) -> bool:
    """Whether a turn or an agent runs, or a prompt waits. A background command alone does not count."""
    return session.is_running or len(session.prompt_queue) > 0 or session.tasks.has_agents()


def reload_output_styles(session: Session, request: panel_requests.ReloadOutputStyles) -> Json:
    return {"available_output_styles": session.config.extensions.list_styles()}


def reload_templates(session: Session) -> None:
    """Read commands and skills again, and report a change."""
    before = session.commands.list_commands()
    session.commands.reload()
    now = session.commands.list_commands()
    if now != before:
        session.outbox.send(CommandsChanged(commands=now))


async def check_permission(session: Session, request: panel_requests.CheckPermission) -> Json:
    """Decides on a call without running it, and without its PreToolUse hooks."""
    tools, context = session.config.tools, session.conversation.tool_context
    tool = tools.get(request.tool_name) or tools.get(canonical_name(request.tool_name))
    if tool is None:
        raise NotPossible(f"the session has no tool {request.tool_name!r:.100} (choose from {', '.join(tools)})")
    mode = request.mode if isinstance(request.mode, str) else session.mode
    if mode not in MODES:
        raise NotPossible(f"unknown permission mode {mode!r:.100} (choose from {', '.join(sorted(MODES))})")
    input = tool.prepare(request.input, context)
    try:
        read_input(tool, input)
    except InvalidInput as exc:
        raise NotPossible(f"the input is invalid, so there is no decision: {exc}") from None
    facts, policy = permission_request(tool, input, context), session.config.permissions.policy
    await prepare_decision(policy, facts, mode)
    decision = evaluate(policy, facts, mode, guarded=session.config.options.guard)
    return explain(decision, facts, mode, session.config.settings.merged.rules, ASK_OUTCOME).to_json()


def update_permissions(session: Session, request: panel_requests.UpdatePermissions) -> Json:
    """Applies all updates or none; returns the rules as `list_permission_rules` does."""
    try:
        session.gate.apply_updates(request.updates)
    except (InvalidUpdate, SessionError) as exc:
        raise NotPossible(str(exc)) from None
    return {"state": session.config.permissions.policy.list_rules()}


VERDICTS: dict[type, str] = {Allow: "allow", Ask: "ask", Deny: "deny"}


class CheckResult(Struct, frozen=True, kw_only=True):
    """A decision and its explanation."""

    tool: str
    input: Json
    mode: str
    decision: str
    outcome: str
    """What would happen with the call."""
    source: str
    reason: str
    reason_type: str
    message: str
    rule: Json | None
    blocked_path: str | None
    suggestions: list[Json]
    input_sha256: str

    def to_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def explain(
    decision: Decision, request: ToolRequest, mode: str, rules: Iterable[RuleText], ask_outcome: str
) -> CheckResult:
    """`rules`: those of the settings files. `ask_outcome`: what happens if the decision is to ask."""
    outcome = "runs" if isinstance(decision, Allow) else "denied"
    return CheckResult(
        tool=request.tool,
        input=request.input,
        mode=mode,
        decision=VERDICTS[type(decision)],
        outcome=ask_outcome if isinstance(decision, Ask) else outcome,
        source=getattr(decision, "source", "rule" if decision.rule is not None else ""),
        reason=decision.reason,
        reason_type=decision.reason_type,
        message=getattr(decision, "message", ""),
        rule=describe_rule(decision, rules),
        blocked_path=getattr(decision, "blocked_path", None),
        suggestions=list(getattr(decision, "suggestions", ())),
        input_sha256=input_digest(request.input),
    )


def describe_rule(decision: Decision, rules: Iterable[RuleText]) -> Json | None:
    """The rule that decided, with its file and line."""
    rule = decision.rule
    if rule is None:
        return None
    found: Json = {"text": rule.text, "behavior": rule.behavior, "source": rule.source}
    for written in rules:
        if (written.text.strip(), written.behavior, written.source) == (rule.text, rule.behavior, rule.source):
            return {**found, "file": written.path, "line": written.line}
    return found
