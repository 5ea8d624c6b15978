"""Requests of clients that show pages beside the conversation: status, plan, export, memory, skills, sandbox."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from parley.engine.context.history import tokens_from_chars
from parley.protocol.base import Json, sanitize
from parley.protocol.messages import panel_requests
from parley.settings.base import MergedSettings
from parley.tools.catalog import find_traits
from parley.version import PROTOCOL_LEVEL, __version__
from parley.workspace.base import Scope

if TYPE_CHECKING:
    from parley.engine.session.session import Session

MAX_RESULT_LINES = 20
MAX_ARGUMENT_CHARS = 200
MAX_SLUG_CHARS = 40
NO_SETTINGS = "this session has no settings"
SANDBOX_PATHS = {
    "deny_read": "denyRead",
    "allow_read": "allowRead",
    "allow_write": "allowWrite",
    "deny_write": "denyWrite",
}


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
            "Settings": ", ".join(layer.path for layer in config.settings.layers()) if config.settings else "",
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
            case "text":
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
    merged = MergedSettings() if settings is None else settings.merged
    problem = NO_SETTINGS if settings is None else settings.find_sandbox_problem(merged)
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
