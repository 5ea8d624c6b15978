"""The hooks of a session, for a client that lists them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from parley.engine.control.handlers.settings import require_settings
from parley.protocol.base import Json, sanitize
from parley.protocol.messages import panel_requests

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.hooks.events import HookEventSpec
    from parley.settings.base import MergedSettings

CONTENT = {"command": "Command", "url": "URL", "prompt": "Prompt", "tool": "MCP tool", "callbackId": "Callback"}
"""The field that says what a hook runs, and its label."""
LEAVE_SAFE_MODE = "Start the session without --safe-mode."
LEAVE_BARE_MODE = "Start the session without --bare."


def get_hooks_listing(session: Session, request: panel_requests.GetHooksListing) -> Json:
    from parley.hooks.events import EVENTS

    dispatcher, merged = session.hooks.dispatcher, require_settings(session).merged
    hooks = [describe_hook(hook.to_json()) for hook in dispatcher.list_hooks()] if dispatcher is not None else []
    order = {event: at for at, event in enumerate(EVENTS)}
    hooks.sort(key=lambda hook: order.get(hook["event"], len(order)))
    counts = Counter(hook["event"] for hook in hooks)
    options = session.config.options
    answer: Json = {
        "events": [
            {**describe_event(event), "hookCount": counts[event.name]}
            for event in EVENTS.values()
            if counts[event.name]
        ],
        "hooks": hooks,
        "eventCatalog": [describe_event(event) for event in EVENTS.values()],
        "policy": describe_policy(merged, hooks),
        "errors": [
            {"file": found.path, "path": "hooks", "message": f"without effect: {found.reason}"}
            for found in merged.ignored
            if found.key == "hooks"
        ],
    }
    if options.safe_mode:
        answer["safeMode"] = {"managedHooksStillApply": True, "exitHint": LEAVE_SAFE_MODE}
    if options.bare:
        answer["bareMode"] = {"exitHint": LEAVE_BARE_MODE}
    return answer


def describe_event(event: HookEventSpec) -> Json:
    """`matchField` is what a matcher is compared with; only this engine names it."""
    return {
        "name": event.name,
        "summary": event.when,
        "supportsMatcher": bool(event.matched),
        "matchField": event.matched or None,
    }


def describe_hook(hook: Json) -> Json:
    """A hook with the texts that clients show."""
    field = next((field for field in CONTENT if field in hook), "")
    text = sanitize(str(hook.get(field, hook["type"])))
    if field == "tool":
        text = sanitize(f"{hook.get('server')}: {hook['tool']}")
    shown = " ".join(sanitize(hook.get("statusMessage") or text).split())
    more = {"condition": hook.get("if"), "runsOnce": hook.get("once"), "runsInBackground": hook.get("async")}
    return {
        **hook,
        "sourceLabel": "the client" if hook["source"] == "callback" else hook["source"],
        "displayText": shown,
        "commandText": text,
        "contentLabel": CONTENT.get(field, "Hook"),
        **{name: value for name, value in more.items() if value},
    }


def describe_policy(merged: MergedSettings, hooks: list[Json]) -> Json:
    switch = merged.values.get("disableAllHooks")
    is_off = switch is not None and switch.value is True
    managed = {layer.path for layer in merged.hooks if layer.source == "managed"}
    return {
        "disabledByPolicy": is_off and switch is not None and switch.source == "managed",
        "managedOnly": merged.is_on("allowManagedHooksOnly"),
        "pluginOnly": merged.is_locked("hooks"),
        "allDisabled": is_off,
        "policyHookCount": sum(hook["source"] in managed for hook in hooks),
    }
