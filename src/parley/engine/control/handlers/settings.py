"""Handlers that change or report the model, the permission mode, thinking and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from parley.errors import NotPossible
from parley.protocol.base import UNSET, Json
from parley.protocol.messages import requests
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.options import MODES
from parley.settings.base import WIRE_NAMES, MergedSettings, SettingsAccess, SettingsWriteError

if TYPE_CHECKING:
    from parley.engine.session.session import Session


def set_model(session: Session, request: requests.SetModel) -> requests.SetModelAnswer:
    before = session.conversation.model
    choice = session.conversation.use_model(request.model if isinstance(request.model, str) else "default")
    if choice != before:
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


def set_max_thinking_tokens(session: Session, request: requests.SetMaxThinkingTokens) -> None:
    wanted = request.max_thinking_tokens
    if isinstance(wanted, int) and wanted < 0:
        raise NotPossible(f"max_thinking_tokens must be 0 or more, not {wanted}")
    if wanted is not UNSET:
        tokens = session.config.model.thinking.budget_tokens if wanted is None else wanted
        session.conversation.thinking = msgspec.structs.replace(session.conversation.thinking, budget_tokens=tokens)


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
    session.permission_mode.change(request.mode)
    return {"mode": session.mode}


def apply_flag_settings(session: Session, request: requests.ApplyFlagSettings) -> None:
    change_settings(session, request.settings, lambda held: held.apply(request.settings))


def update_settings(session: Session, request: requests.UpdateSettings) -> None:
    change_settings(session, request.settings, lambda held: held.update(request.source, request.settings))


def change_settings(session: Session, settings: Json, change: Callable[[SettingsAccess], MergedSettings]) -> None:
    """Let a change of the settings take effect: all of it, or nothing. Raises NotPossible."""
    held = require_settings(session)
    before = held.merged.get("model")
    if isinstance(settings.get("model"), str):
        session.conversation.find_model(settings["model"])
    try:
        after = change(held)
    except SettingsWriteError as exc:
        raise NotPossible(str(exc)) from None
    session.config.permissions.policy.apply_settings(after)
    session.hooks.set_commands(after)
    if session.mode == "bypassPermissions" and not session.may_bypass():
        session.permission_mode.change("default")
    environment = session.config.tool_context.environment
    environment.clear()
    environment.update(held.child_environment())
    if after.get("model") != before:
        session.conversation.use_model(after.get("model", "default"))


def get_settings(session: Session, request: requests.GetSettings) -> Json:
    held = require_settings(session)
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


def require_settings(session: Session) -> SettingsAccess:
    if session.config.settings is None:
        raise NotPossible("this session has no settings")
    return session.config.settings


def list_permission_rules(session: Session, request: requests.ListPermissionRules) -> Json:
    return {"state": session.config.permissions.policy.list_rules()}


def get_hooks_listing(session: Session, request: requests.GetHooksListing) -> Json:
    from parley.hooks.base import EVENTS

    dispatcher, merged = session.hooks.dispatcher, require_settings(session).merged
    listed = [hook.to_json() for hook in dispatcher.list_hooks()] if dispatcher is not None else []
    inert = [found for found in merged.ignored if found.key == "hooks"]
    return {
        "events": list(dict.fromkeys(hook["event"] for hook in listed)),
        "hooks": listed,
        "eventCatalog": [
            {"name": event.name, "description": event.when, "matchField": event.matched or None}
            for event in EVENTS.values()
        ],
        "policy": {"disableAllHooks": merged.get("disableAllHooks") is True},
        "errors": [f"{found.path}: without effect: {found.reason}" for found in inert],
    }
