"""The answers to requests that change how a session goes on, or tell how it is set: model, mode, thinking, settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from parley.errors import ModelError, NotPossible, UsageError
from parley.models.catalog import Choice, facts, resolve
from parley.protocol.base import UNSET, Json
from parley.protocol.messages import requests as ask
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.options import MODES
from parley.settings.base import WIRE_NAMES, Held, Merged, NotWritten

if TYPE_CHECKING:
    from parley.engine.session.session import Session


def set_model(session: Session, request: ask.SetModel) -> ask.SetModelAnswer:
    before = session.conversation.model
    choice = take_model(session, request.model if isinstance(request.model, str) else "default")
    if choice != before:
        text = f"<local-command-stdout>Set model to `{choice.shown}`</local-command-stdout>"
        session.tell(
            User(
                message=UserContent(content=text),
                parent_tool_use_id=None,
                timestamp=session.stamp.now(),
                isReplay=True,
            )
        )
    return ask.SetModelAnswer(model=choice.shown)


def take_model(session: Session, name: str) -> Choice:
    """Make a model the session's. Raises NotPossible if there is no such model."""
    choice = usable_model(session, name)
    session.conversation.model = choice
    session.setup.tool_context.strict_reads = facts(choice.name).reads_first
    return choice


def usable_model(session: Session, name: str) -> Choice:
    choice = resolve(session.setup.model_name if name == "default" else name)
    try:
        session.open_model(choice)
    except UsageError as flaw:
        raise NotPossible(str(flaw)) from None
    except ModelError:
        pass  # a key may still come; the turn that needs it will tell
    return choice


def set_max_thinking_tokens(session: Session, request: ask.SetMaxThinkingTokens) -> None:
    wanted = request.max_thinking_tokens
    if isinstance(wanted, int) and wanted < 0:
        raise NotPossible(f"max_thinking_tokens must be 0 or more, not {wanted}")
    if wanted is not UNSET:
        tokens = session.setup.thinking.tokens if wanted is None else wanted
        session.conversation.thinking = msgspec.structs.replace(session.conversation.thinking, tokens=tokens)


def set_permission_mode(session: Session, request: ask.SetPermissionMode) -> Json:
    if request.mode not in MODES:
        raise NotPossible(
            f"Cannot set permission mode: {request.mode!r} is none of {', '.join(sorted(MODES))}", "invalid_mode"
        )
    if request.mode == "bypassPermissions" and not session.may_bypass():
        raise NotPossible(
            "bypassPermissions is disabled by the settings (disableBypassPermissionsMode)"
            if session.setup.may_bypass
            else "bypassPermissions must be allowed at launch, with --allow-dangerously-skip-permissions",
            "bypass_not_launched",
        )
    session.permission_mode.change(request.mode)
    return {"mode": session.mode}


def apply_flag_settings(session: Session, request: ask.ApplyFlagSettings) -> None:
    change_settings(session, request.settings, lambda held: held.apply(request.settings))


def update_settings(session: Session, request: ask.UpdateSettings) -> None:
    change_settings(session, request.settings, lambda held: held.update(request.source, request.settings))


def change_settings(session: Session, settings: Json, change: Callable[[Held], Merged]) -> None:
    """Let a change of the settings take effect: all of it, or nothing. Raises NotPossible."""
    held = known_settings(session)
    before = held.merged.get("model")
    if isinstance(settings.get("model"), str):
        usable_model(session, settings["model"])
    try:
        after = change(held)
    except NotWritten as flaw:
        raise NotPossible(str(flaw)) from None
    session.setup.permits.settle(after)
    session.listeners.settle(session, after)
    if session.mode == "bypassPermissions" and not session.may_bypass():
        session.permission_mode.change("default")
    environment = session.setup.tool_context.environment
    environment.clear()
    environment.update(held.child_environment())
    if after.get("model") != before:
        take_model(session, after.get("model", "default"))


def get_settings(session: Session, request: ask.GetSettings) -> Json:
    held = known_settings(session)
    return {
        "effective": held.merged.plain(),
        "sources": [
            {"source": WIRE_NAMES[layer.source], "path": layer.path, "settings": layer.values}
            for layer in reversed(held.layers())
        ],
        "applied": {"model": session.conversation.model.shown, "effort": session.conversation.effort},
        "inert": [
            {"key": inert.key, "source": WIRE_NAMES[inert.source], "path": inert.path, "reason": inert.reason}
            for inert in held.merged.inert
        ],
    }


def known_settings(session: Session) -> Held:
    if session.setup.settings is None:
        raise NotPossible("this session has no settings")
    return session.setup.settings


def list_permission_rules(session: Session, request: ask.ListPermissionRules) -> Json:
    return {"state": session.setup.permits.listed()}


def get_hooks_listing(session: Session, request: ask.GetHooksListing) -> Json:
    from parley.hooks.base import EVENTS

    live, merged = session.listeners.live, known_settings(session).merged
    listed = [hook.listed() for hook in live.all()] if live is not None else []
    inert = [found for found in merged.inert if found.key == "hooks"]
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
