"""Requests of clients that show pages beside the conversation: status, plan, export, memory, skills, sandbox."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.context.history import tokens_from_chars
from parley.engine.context.usage_report import report_context, report_templates
from parley.engine.ledger import format_usd
from parley.errors import NotPossible
from parley.models.base import is_note
from parley.protocol.base import UNSET, Json, sanitize, to_builtins
from parley.protocol.messages import panel_requests
from parley.protocol.messages.result import ModelUsage
from parley.settings.base import MergedSettings
from parley.tools.catalog import find_traits
from parley.version import PROTOCOL_LEVEL, __version__
from parley.workspace.base import Scope

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.hooks.event_spec import HookEventSpec


MAX_RESULT_LINES = 20
MAX_ARGUMENT_CHARS = 200
MAX_SLUG_CHARS = 40
SANDBOX_PATHS = {
    "deny_read": "denyRead",
    "allow_read": "allowRead",
    "allow_write": "allowWrite",
    "deny_write": "denyWrite",
}
DETAILS = ("full", "summary")
CONTENT = {"command": "Command", "url": "URL", "prompt": "Prompt", "tool": "MCP tool", "callbackId": "Callback"}
"""The field that says what a hook runs, and its label."""
LEAVE_SAFE_MODE = "Start the session without --safe-mode."
LEAVE_BARE_MODE = "Start the session without --bare."


def get_status(session: Session, request: panel_requests.GetStatus) -> Json:
    config, conversation = session.config, session.conversation
    servers = session.servers.states()
    rows = {
        "Session": {
            "Version": f"{__version__} (protocol {PROTOCOL_LEVEL})",
            "Session ID": session.id,
            "Title": session.journal.title or "",
            "cwd": conversation.tool_context.state.cwd,
            "Transcript": config.storage.transcript_path(),
            "API key": config.model.api_key_source,
        },
        "Environment": {
            "Model": conversation.model.display_name,
            "Permission mode": session.mode,
            "Output style": config.extensions.output_style,
            "Memory": ", ".join(path for path, _, _ in conversation.instructions.memory_files()),
            "MCP servers": ", ".join(f"{server.name} ({server.status})" for server in servers),
            "Settings": ", ".join(layer.path for layer in config.settings.layers()),
        },
    }
    return {
        "sections": [
            {"title": title, "rows": [{"label": label, "value": value} for label, value in section.items() if value]}
            for title, section in rows.items()
        ]
    }


def get_plan(session: Session, request: panel_requests.GetPlan) -> Json:
    """The plan file, or the last plan that the model presented."""
    context = session.conversation.tool_context
    written = context.read_plan()
    if written is not None:
        return {"exists": True, "plan": written, "path": context.plan_file}
    plans = [
        block["input"].get(find_traits(block["name"]).plan_field)
        for message in session.journal.history.list_messages()
        for block in message.content
        if block.get("type") == "tool_use" and isinstance(block["input"], dict)
    ]
    shown = next((plan for plan in reversed(plans) if isinstance(plan, str) and plan), None)
    return {"exists": False} if shown is None else {"exists": True, "plan": shown}


def export_conversation(session: Session, request: panel_requests.ExportConversation) -> Json:
    lines = [line for message in session.journal.history.render() for line in format_message(message)]
    asked = next((line[3:] for line in lines if line.startswith("\n❯ ")), "")
    slug = re.sub(r"[^a-z0-9]+", "-", asked.lower())[:MAX_SLUG_CHARS].strip("-")
    now = session.clock.now()
    day, time = now[:10], now[11:19].replace(":", "")
    name = f"{day}-{time}-{slug}.txt" if slug else f"conversation-{day}-{time}.txt"
    return {"text": "\n".join(lines), "default_filename": name}


def format_message(message: Json) -> Iterator[str]:
    mark = "❯" if message["role"] == "user" else "●"
    for block in message["content"]:
        match block.get("type"):
            case "text" if not is_note(block):
                yield f"\n{mark} {sanitize(block['text']).strip()}"
            case "tool_use":
                call = json.dumps(block.get("input"), ensure_ascii=False)
                yield f"\n● {block.get('name')}({shorten(call)})"
            case "tool_result":
                yield from format_result(block.get("content"))
            case "image" | "document" as kind:
                yield f"\n{mark} [{kind}]"


def format_result(content: Any) -> Iterator[str]:
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    text = "\n".join(str(block.get("text", f"[{block.get('type')}]")) for block in blocks if isinstance(block, dict))
    lines = sanitize(text).splitlines() or ["(no output)"]
    for at, line in enumerate(lines[:MAX_RESULT_LINES]):
        yield f"  {'⎿ ' if at == 0 else '  '}{line}"
    if len(lines) > MAX_RESULT_LINES:
        yield f"    … {len(lines) - MAX_RESULT_LINES} more lines"


def shorten(text: str) -> str:
    return text if len(text) <= MAX_ARGUMENT_CHARS else text[: MAX_ARGUMENT_CHARS - 1] + "…"


def get_memory_dialog(session: Session, request: panel_requests.GetMemoryDialog) -> Json:
    """The memory files: those that exist, and those that users usually write."""
    instructions = session.conversation.instructions
    found = {path: kind for path, kind, _ in instructions.memory_files()}
    usual = {path: kind for kind, path in instructions.usual_memory_files}
    has_memory = session.config.open_memory is not None
    return {
        "files": [
            {
                "kind": kind.lower(),
                "path": path,
                "label": f"{kind} instructions",
                "description": f"Saved in {path}",
                "exists": path in found or (not session.config.is_remote and os.path.exists(path)),
            }
            for path, kind in {**found, **usual}.items()
        ],
        "folders": [],
        "memories": [],
        "auto_memory": {"enabled": has_memory, "toggleable": False, "status": "on" if has_memory else "off"},
        "auto_dream": {"shown": False, "enabled": False, "toggleable": False, "status": "off", "detail": ""},
    }


def get_skills_dialog(session: Session, request: panel_requests.GetSkillsDialog) -> Json:
    """The skills and commands from files. `advertised` says whether the model is offered one."""
    commands = session.commands
    listed = [] if commands.are_off else [one for one in commands.templates().values() if one.source != "builtin"]
    return {
        "skills": [
            {
                "name": template.name,
                "display_name": template.name,
                "description": template.description,
                "source": template.source,
                "tokens": tokens_from_chars(len(template.name) + len(template.description)),
                "state": "on",
                "advertised": commands.find_usable(template.name) is not None,
                "handles": {},
            }
            for template in listed
        ]
    }


def get_sandbox_dialog(session: Session, request: panel_requests.GetSandboxDialog) -> Json:
    """The state of the sandbox, in the form that clients read."""
    settings = session.config.settings
    merged, problem = settings.merged, settings.find_sandbox_problem(settings.merged)
    sandbox = session.config.workspace.find_sandbox(Scope())
    enabled = sandbox is not None and sandbox.describe() != "none"
    auto_allows = merged.is_on("sandbox.autoAllowBashIfSandboxed")
    value = merged.values.get("sandbox.enabled")
    is_locked = value is not None and value.source == "managed"
    return {
        "supported": not problem,
        "locked": is_locked,
        "overrides_locked": False,
        "policy_origins": [],
        "enabled": enabled,
        "enabled_in_settings": merged.is_on("sandbox.enabled"),
        "mode": "disabled" if not enabled else "auto-allow" if auto_allows else "regular",
        "auto_allow_available": not problem,
        "no_sandbox_allowed": not is_locked,
        "unsandboxed_fallback": merged.get("sandbox.allowUnsandboxedCommands") is not False,
        "dependencies": {"errors": [problem] if problem else [], "warnings": []},
        "excluded_commands": list(merged.get("sandbox.excludedCommands", ())),
        "restrictions": {
            **{f"fs_{name}": list(merged.get(f"sandbox.filesystem.{key}", ())) for name, key in SANDBOX_PATHS.items()},
            "network_allowed_domains": list(merged.get("sandbox.network.allowedDomains", ())),
            "network_denied_domains": list(merged.get("sandbox.network.deniedDomains", ())),
            "network_managed": merged.is_on("sandbox.network.allowManagedDomainsOnly"),
            "unix_sockets": [],
            "allow_all_unix_sockets": merged.is_on("sandbox.network.allowAllUnixSockets"),
            "ignored_glob_patterns": [],
        },
    }


def get_context_usage(session: Session, request: panel_requests.GetContextUsage) -> panel_requests.ContextUsage:
    """The numbers are estimates: `full` and `summary` have the same answer."""
    if request.detail not in (UNSET, None, *DETAILS):
        raise NotPossible(f"detail {request.detail!r:.100} is unknown (choose from {', '.join(DETAILS)})")
    commands = session.commands
    usage = report_context(session.conversation, session.servers.quoted_instructions())
    skills, slash_commands = report_templates(commands.templates().values(), commands.offered())
    return msgspec.structs.replace(usage, skills=skills, slashCommands=slash_commands)


def get_usage(session: Session, request: panel_requests.GetUsage) -> Json:
    """The totals of a session. An API key has no plan, so there are no rate limits of one."""
    ledger = session.ledger
    return {
        "session": {
            "total_cost_usd": ledger.cost_usd,
            "total_api_duration_ms": round(ledger.api_seconds * 1000),
            "total_duration_ms": round((session.clock.monotonic() - session.started_at) * 1000),
            "total_lines_added": ledger.lines_added,
            "total_lines_removed": ledger.lines_removed,
            "model_usage": {model: to_builtins(used) for model, used in ledger.by_model().items()},
        },
        "subscription_type": None,
        "rate_limits_available": False,
        "rate_limits": None,
        "behaviors": None,
    }


def get_session_cost(session: Session, request: panel_requests.GetSessionCost) -> Json:
    """The cost as text for a person."""
    ledger, total_seconds = session.ledger, session.clock.monotonic() - session.started_at
    lines = [
        f"Total cost: {format_usd(ledger.cost_usd)}",
        f"Time in model calls: {ledger.api_seconds:.1f} s",
        f"Time since the start: {total_seconds:.1f} s",
        *(f"{model}: {format_model_cost(used)}" for model, used in ledger.by_model().items()),
    ]
    return {"text": "\n".join(lines)}


def format_model_cost(used: ModelUsage) -> str:
    return (
        f"{used.inputTokens} input, {used.outputTokens} output, {used.cacheReadInputTokens} cache read, "
        f"{used.cacheCreationInputTokens} cache write ({format_usd(used.costUSD)})"
    )


def get_hooks_listing(session: Session, request: panel_requests.GetHooksListing) -> Json:
    from parley.hooks.events import EVENTS

    merged = session.config.settings.merged
    hooks = [describe_hook(hook.to_json()) for hook in session.hooks.list_hooks()]
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
