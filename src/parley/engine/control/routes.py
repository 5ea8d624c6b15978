"""Which function answers each control request.

A handler takes the session and the request. It returns the payload of the success reply, or raises NotPossible. A slow
handler is a coroutine function; `dispatcher.py` awaits it. The module of a handler is imported with its first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from parley.protocol.base import Struct

HANDLERS: dict[str, str] = {
    "initialize": "initialize.initialize",
    "interrupt": "session.interrupt",
    "set_model": "settings.set_model",
    "set_max_thinking_tokens": "settings.set_max_thinking_tokens",
    "set_permission_mode": "settings.set_permission_mode",
    "cancel_async_message": "session.cancel_message",
    "rewind_files": "files.rewind_files",
    "stop_task": "session.stop_task",
    "background_tasks": "session.background_tasks",
    "get_task_output": "session.get_task_output",
    "apply_flag_settings": "settings.apply_flag_settings",
    "update_settings": "settings.update_settings",
    "get_settings": "settings.get_settings",
    "list_permission_rules": "settings.list_permission_rules",
    "check_permission": "settings.check_permission",
    "update_permissions": "settings.update_permissions",
    "get_hooks_listing": "panels.get_hooks_listing",
    "list_models": "session.list_models",
    "get_binary_version": "session.get_version",
    "mcp_status": "mcp.mcp_status",
    "mcp_reconnect": "mcp.mcp_reconnect",
    "mcp_toggle": "mcp.mcp_toggle",
    "mcp_set_servers": "mcp.mcp_set_servers",
    "mcp_message": "mcp.mcp_message",
    "mcp_call": "mcp.mcp_call",
    "mcp_read_resource": "mcp.mcp_read_resource",
    "set_mcp_permission_mode_override": "mcp.set_mode_override",
    "get_context_usage": "panels.get_context_usage",
    "get_usage": "panels.get_usage",
    "get_session_cost": "panels.get_session_cost",
    "read_file": "files.read_file",
    "seed_read_state": "files.seed_read_state",
    "file_suggestions": "files.file_suggestions",
    "reload_skills": "settings.reload_skills",
    "reload_plugins": "settings.reload_plugins",
    "reload_output_styles": "settings.reload_output_styles",
    "rename_session": "session.rename_session",
    "set_color": "session.acknowledge",
    "set_has_subscribers": "session.acknowledge",
    "end_session": "session.end_session",
    "register_repo_root": "files.register_repo_root",
    "set_cwd": "files.set_cwd",
    "claim_session": "session.claim_session",
    "generate_session_title": "side.generate_session_title",
    "side_question": "side.side_question",
    "set_prompt_suggestions_paused": "settings.set_prompt_suggestions_paused",
    "get_status": "panels.get_status",
    "get_plan": "panels.get_plan",
    "export_conversation": "panels.export_conversation",
    "get_memory_dialog": "panels.get_memory_dialog",
    "get_skills_dialog": "panels.get_skills_dialog",
    "get_sandbox_dialog": "panels.get_sandbox_dialog",
    "mcp_authenticate": "mcp.mcp_authenticate",
    "mcp_oauth_callback_url": "mcp.mcp_oauth_callback_url",
    "mcp_clear_auth": "mcp.mcp_clear_auth",
}
"""The module in `handlers/` and the function, by the subtype of the request."""
SIDE = "side."

LOGIN = "Parley has no login of its own: set ANTHROPIC_API_KEY, apiKeyHelper or the key of another backend"
FEEDBACK = "feedback goes to a service of the vendor; Parley does not send any"
CHROME = "the browser extension belongs to the vendor; connect a browser through an MCP server instead"
NOT_OURS: dict[str, str] = {
    "remote_control": "remote control runs through servers of the vendor",
    "channel_enable": "channels run through servers of the vendor",
    "claude_authenticate": LOGIN,
    "claude_oauth_callback": LOGIN,
    "claude_oauth_wait_for_completion": LOGIN,
    "submit_feedback": FEEDBACK,
    "submit_survey_feedback": FEEDBACK,
    "message_rated": FEEDBACK,
    "ultrareview_launch": "the review runs on servers of the vendor",
    "set_chrome_browser_hints": CHROME,
    "get_chrome_dialog": CHROME,
    "get_chrome_browsers": CHROME,
    "select_chrome_browser": CHROME,
}
"""Why requests that need a service of the vendor are refused."""


class LongAnswer(Struct, frozen=True):
    """What a handler returns whose work takes long: the dispatcher reports its progress to the client."""

    run: Callable[[Callable[[Any], None]], Awaitable[Any]]
    """Gets the function that reports an `ApiRetry`, and returns the answer."""


def asks_a_model(subtype: str) -> bool:
    """Whether a request may cost money: the handlers of all that do are in one module."""
    return HANDLERS.get(subtype, "").startswith(SIDE)


def explain_refusal(subtype: str) -> str:
    """Why no handler exists for a request."""
    reason = NOT_OURS.get(subtype)
    if reason is None:
        return f"Unsupported control request subtype: {subtype}"
    return f"{subtype} is not available: {reason}"


def find_handler(subtype: str) -> Callable[[Any, Any], Any] | None:
    """The handler of a request; None if the request is not supported."""
    row = HANDLERS.get(subtype)
    if row is None:
        return None
    module, function = row.split(".")
    handler: Callable[[Any, Any], Any] = getattr(import_module(f"parley.engine.control.handlers.{module}"), function)
    return handler
