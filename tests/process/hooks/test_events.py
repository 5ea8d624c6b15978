"""Every hook event fires in the executable: a command of a settings file notes its input.

One session triggers all of them. A row of `EXPECTED` has the fields of an event's input, beyond those of all events.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from unittest.mock import ANY

from parley.hooks.events import EVENTS
from tests.helpers.hooks import reply, specific
from tests.helpers.mcp import config, own, script, seen
from tests.helpers.process import ProcessHarness
from tests.helpers.session import Json

COMMON = {"session_id", "transcript_path", "cwd", "prompt_id", "hook_event_name", "permission_mode", "effort"}
TOOLS = "Agent,Bash,EnterWorktree,ExitWorktree,TaskCreate,TaskUpdate"
AGENT = {"description": "Look", "prompt": "SUBTASK", "subagent_type": "Explore"}
TURNS = (
    script(
        [("Bash", {"command": "touch made"})],
        [("Bash", {"command": "exit 3"})],
        [("Bash", {"command": "rm made"})],
        [("TaskCreate", {"subject": "Fix it", "description": "All tests pass"})],
        [("TaskUpdate", {"taskId": "1", "status": "completed"})],
        [("Agent", AGENT)],
        [("Bash", {"command": "cd inner"})],
        [("mcp__workshop__greet", {})],
        [("EnterWorktree", {"name": "side"})],
        [("ExitWorktree", {"action": "remove"})],
        "Done.",
        "The summary.",
    )
    + "[[turn]]\nwhen = 'SUBTASK'\ntext = 'Seen.'\n"
    + "[[turn]]\nwhen = 'fail'\nerror = { status = 400, type = 'invalid_request_error', message = 'bad' }\n"
)
TOUCH = {"tool_name": "Bash", "tool_input": {"command": "touch made"}}
ID = {"tool_use_id": "t1"}
FAILED = {"tool_name": "Bash", "tool_input": {"command": "exit 3"}, "tool_use_id": "t2"}
DENIED = {"tool_name": "Bash", "tool_input": {"command": "rm made"}, "tool_use_id": "t3"}
TASK = {"task_id": "1", "task_subject": "Fix it", "task_description": "All tests pass"}
NO_WORK = {"stop_hook_active": False, "background_tasks": [], "session_crons": []}
SWITCH = {
    "from_model": "scripted:$DIR/script.toml",
    "to_model": "offline",
    "requested_model": "offline",
    "source": "sdk",
    "context_tokens": ANY,
    "prompt_cache_warm": True,
    "cache_ttl": "5m",
    "estimated_cache_write_usd": 0.0,
    "pricing": "catalog",
}
EXPECTED: dict[str, Json] = {
    "PreToolUse": {**TOUCH, **ID},
    "PermissionRequest": {**TOUCH, "permission_suggestions": ANY},
    "PostToolUse": {**TOUCH, **ID, "tool_response": ANY, "duration_ms": ANY},
    "PostToolUseFailure": {**FAILED, "error": "Exit code 3", "is_interrupt": False, "duration_ms": ANY},
    "PostToolBatch": {"tool_calls": [{**TOUCH, **ID, "tool_response": "(Bash completed with no output)"}]},
    "UserPromptSubmit": {"prompt": "/review a.py", "source": "sdk"},
    "SessionStart": {"source": "startup", "model": "scripted:$DIR/script.toml"},
    "SessionEnd": {"reason": "other"},
    "Stop": {**NO_WORK, "last_assistant_message": "Done."},
    "StopFailure": {
        "error": "unknown",
        "error_details": "API Error: 400 bad",
        "last_assistant_message": "API Error: 400 bad",
    },
    "SubagentStart": {"agent_id": ANY, "agent_type": "Explore"},
    "SubagentStop": {
        **NO_WORK,
        "agent_id": ANY,
        "agent_type": "Explore",
        "agent_transcript_path": ANY,
        "last_assistant_message": "Seen.",
    },
    "PreCompact": {"trigger": "manual", "custom_instructions": "short"},
    "PostCompact": {"trigger": "manual", "compact_summary": "The summary."},
    "Notification": {
        "notification_type": "permission_prompt",
        "title": "Permission needed",
        "message": "Your permission is needed to use Bash",
    },
    "MessageDisplay": {"turn_id": ANY, "message_id": ANY, "index": 0, "final": True, "delta": "Done."},
    "PermissionDenied": {**DENIED, "reason": "Bash(rm *)"},
    "UserPromptExpansion": {
        "expansion_type": "slash_command",
        "command_name": "review",
        "command_args": "a.py",
        "command_source": "user",
        "prompt": "/review a.py",
    },
    "Elicitation": {
        "mcp_server_name": "workshop",
        "message": "What is your name?",
        "mode": "form",
        "requested_schema": ANY,
    },
    "ElicitationResult": {
        "mcp_server_name": "workshop",
        "mode": "form",
        "action": "accept",
        "content": {"name": "Ada"},
    },
    "PreModelSwitch": SWITCH,
    "PostModelSwitch": SWITCH,
    "TaskCreated": TASK,
    "TaskCompleted": TASK,
    "WorktreeCreate": {"name": "side"},
    "WorktreeRemove": {"worktree_path": "$DIR/home/side"},
    "InstructionsLoaded": {"file_path": "$DIR/CLAUDE.md", "memory_type": "Project", "load_reason": "session_start"},
    "CwdChanged": {"old_cwd": "$DIR", "new_cwd": "$DIR/inner"},
    "DirectoryAdded": {"directory": "$DIR/repo", "source": "register_repo_root"},
    "ConfigChange": {"source": "user_settings", "file_path": "$DIR/home/.claude/settings.json"},
    "FileChanged": {"file_path": "$DIR/watched.txt", "event": "add"},
}


def settings(folder: Path) -> Json:
    """A command for every event."""
    side = folder / "home" / "side"
    answers = {
        "SessionStart": f"echo '{json.dumps(specific(watchPaths=[str(folder / 'watched.txt')]))}'",
        "WorktreeCreate": f"mkdir -p {side}; echo {side}",
        "WorktreeRemove": f"rm -r {side}",
    }
    commands = {event: f"cat >> {folder}/told; {answers.get(event, 'true')}" for event in EVENTS}
    return {
        "hooks": {event: [{"hooks": [{"type": "command", "command": text}]}] for event, text in commands.items()},
        "permissions": {"deny": ["Bash(rm *)"], "allow": ["Bash(exit *)"]},
    }


def prepare(folder: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True, capture_output=True)
    for name, text in {
        "CLAUDE.md": "Be kind.",
        "home/.claude/commands/review.md": "Review $ARGUMENTS.",
        "home/.claude/settings.json": "{}",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("inner", "repo"):
        (folder / name).mkdir()


async def until_run(harness: ProcessHarness, event: str) -> None:
    await seen(harness, lambda line: line.get("subtype") == "hook_response" and line["hook_event"] == event)


async def talk(harness: ProcessHarness) -> None:
    """Trigger every event."""
    folder = harness.folder
    await harness.request("initialize")
    harness.prompt("/review a.py")
    waiting = await harness.receive("control_request")
    (folder / "watched.txt").write_text("new")
    await harness.answer("update_settings", source="userSettings", settings={"language": "French"})
    await harness.answer("register_repo_root", directory=str(folder / "repo"))
    for event in ("FileChanged", "DirectoryAdded", "Notification"):
        await until_run(harness, event)
    harness.send(reply(waiting, {"behavior": "allow"}))

    def react(line: Json) -> bool:
        subtype = line.get("request", {}).get("subtype")
        if subtype == "can_use_tool":
            harness.send(reply(line, {"behavior": "allow"}))
        elif subtype == "elicitation":
            harness.send(reply(line, {"action": "accept", "content": {"name": "Ada"}}))
        return bool(line["type"] == "result")

    assert (await harness.receive_until(react))["result"] == "Done."
    await harness.turn("/compact short")
    await harness.turn("fail")
    await harness.answer("set_model", model="offline")
    await harness.turn("say bye")


def read_inputs(folder: Path) -> dict[str, Json]:
    """The first input of each event, without the common fields. `$DIR` stands for the working directory."""
    found: dict[str, Json] = {}
    for line in (folder / "told").read_text().replace(str(folder), "$DIR").splitlines():
        input = json.loads(line)
        assert input.keys() >= {"session_id", "transcript_path", "cwd"}
        fields = {name: value for name, value in input.items() if name not in COMMON}
        found.setdefault(input["hook_event_name"], fields)
    return found


async def test_every_event_fires_with_its_own_fields(tmp_path: Path) -> None:
    prepare(tmp_path)
    async with ProcessHarness(
        tmp_path,
        TURNS,
        *("--permission-prompt-tool", "stdio", "--include-hook-events", "--tools", TOOLS),
        *("--mcp-config", *config(workshop=own("greeter.py")), "--allowedTools", "mcp__workshop"),
        settings=settings(tmp_path),
    ) as harness:
        await talk(harness)

    found = read_inputs(tmp_path)
    assert found == EXPECTED
    assert {event: found[event].keys() <= set(spec.fields) for event, spec in EVENTS.items()} == dict.fromkeys(
        EVENTS, True
    )
