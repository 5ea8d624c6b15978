"""Every control method sends the matching request of the protocol."""

from __future__ import annotations

from typing import Any

from parley import Client, Options, PermissionUpdate
from tests.helpers.sdk import run
from tests.session.sdk.test_transport import Played

REQUESTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "interrupt": ((), {"subtype": "interrupt"}),
    "set_permission_mode": (("plan",), {"subtype": "set_permission_mode", "mode": "plan"}),
    "set_model": (("m",), {"subtype": "set_model", "model": "m"}),
    "set_max_thinking_tokens": ((9,), {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 9}),
    "rewind_files": (("u", True), {"subtype": "rewind_files", "user_message_id": "u", "dry_run": True}),
    "get_mcp_status": ((), {"subtype": "mcp_status"}),
    "reconnect_mcp_server": (("s",), {"subtype": "mcp_reconnect", "serverName": "s"}),
    "toggle_mcp_server": (("s", False), {"subtype": "mcp_toggle", "serverName": "s", "enabled": False}),
    "mcp_call": (("t", {"a": 1}), {"subtype": "mcp_call", "tool": "t", "arguments": {"a": 1}}),
    "mcp_read_resource": (("s", "u"), {"subtype": "mcp_read_resource", "serverName": "s", "uri": "u"}),
    "stop_task": (("t",), {"subtype": "stop_task", "task_id": "t"}),
    "background_tasks": (("t",), {"subtype": "background_tasks", "tool_use_id": "t"}),
    "get_task_output": (("t",), {"subtype": "get_task_output", "task_id": "t"}),
    "get_context_usage": ((), {"subtype": "get_context_usage"}),
    "get_settings": ((), {"subtype": "get_settings"}),
    "apply_flag_settings": (({"a": 1},), {"subtype": "apply_flag_settings", "settings": {"a": 1}}),
    "list_permission_rules": ((), {"subtype": "list_permission_rules"}),
    "check_permission": (
        ("Bash", {"command": "ls"}, "plan"),
        {"subtype": "check_permission", "tool_name": "Bash", "input": {"command": "ls"}, "mode": "plan"},
    ),
    "update_permissions": (
        ([PermissionUpdate("removeDirectories", directories=["/d"], destination="session")],),
        {
            "subtype": "update_permissions",
            "updates": [{"type": "removeDirectories", "directories": ["/d"], "destination": "session"}],
        },
    ),
    "update_settings": (
        ("userSettings", {"theme": "dark"}),
        {"subtype": "update_settings", "source": "userSettings", "settings": {"theme": "dark"}},
    ),
    "file_suggestions": (("no",), {"subtype": "file_suggestions", "query": "no"}),
    "get_usage": ((), {"subtype": "get_usage"}),
    "export_conversation": ((), {"subtype": "export_conversation"}),
    "get_status": ((), {"subtype": "get_status"}),
    "get_memory_files": ((), {"subtype": "get_memory_dialog"}),
    "read_file": (("/f", 9), {"subtype": "read_file", "path": "/f", "max_bytes": 9}),
    "seed_read_state": (("/f", 1.5), {"subtype": "seed_read_state", "path": "/f", "mtime": 1.5}),
    "cancel_async_message": (("u",), {"subtype": "cancel_async_message", "message_uuid": "u"}),
    "reload_skills": ((), {"subtype": "reload_skills"}),
    "reload_plugins": ((), {"subtype": "reload_plugins"}),
    "reload_output_styles": ((), {"subtype": "reload_output_styles"}),
    "supported_models": ((), {"subtype": "list_models"}),
    "session_cost": ((), {"subtype": "get_session_cost"}),
}

SHORT_NAMES = {
    "context_usage": "get_context_usage",
    "mcp_reconnect": "reconnect_mcp_server",
    "mcp_status": "get_mcp_status",
    "mcp_toggle": "toggle_mcp_server",
    "rewind": "rewind_files",
    "send": "ask",
}


def test_a_short_name_is_the_same_method() -> None:
    assert {name: getattr(Client, name) for name in SHORT_NAMES} == {
        name: getattr(Client, long) for name, long in SHORT_NAMES.items()
    }


def test_a_request_has_its_protocol_name() -> None:
    transport = Played()

    async def play() -> None:
        async with Client(Options(), transport) as client:
            for name, (given, _) in REQUESTS.items():
                await getattr(client, name)(*given)

    run("asyncio", play)

    _, *asked = [line["request"] for line in transport.written]
    assert asked == [request for _, request in REQUESTS.values()]
