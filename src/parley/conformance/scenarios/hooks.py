"""Hooks of the client (hook_callback), and of settings."""

from __future__ import annotations

import json
from typing import Any

from parley.conformance.conditions import (
    asks_for,
    asks_with,
    calls_no_model,
    ends_with,
    hook_called,
    made,
    not_made,
    require_field,
    told,
    tool_fails,
    tool_says,
)
from parley.conformance.driver import ASK, BYPASS, EngineDriver, ErrorReply, bash, say, use
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need
from parley.conformance.scenarios.permissions import allow, in_turn
from parley.protocol.base import Json

TOUCH = bash("touch x.txt", "toolu_touch")


def register(*events: str, **matchers: str) -> Json:
    """The `hooks` of initialize: one callback for each event, named after it."""
    return {event: [{"matcher": matchers.get(event), "hookCallbackIds": [f"hook_{event}"]}] for event in events}


def output(event: str, **fields: Any) -> Json:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


async def hooked_turn(engine: EngineDriver, replies: dict[str, Any], *flags: str) -> None:
    """One turn with a hook for each key, and a client that allows everything."""

    def answer(request: Json) -> Any:
        given = replies.get(str(request.get("callback_id")).removeprefix("hook_"), {})
        return given(request) if callable(given) else given

    engine.on("hook_callback", answer)
    engine.on("can_use_tool", allow)
    await engine.turn("go", *ASK, *flags, hooks=register(*replies))
    engine.keep("x.txt", "changed.txt", "again.txt")


def hook_input(log: ScenarioLog) -> None:
    calls = [request for request in log.asked("hook_callback") if request.get("callback_id") == "hook_PreToolUse"]
    need(len(calls) == 2, f"{len(calls)} calls; {log.summary()}")
    for path in (
        "input.session_id:s", "input.transcript_path:s", "input.cwd:s", "input.hook_event_name:s", "input.tool_name:s",
        "input.tool_input:o", "input.tool_use_id:s",
    ):  # fmt: skip
        require_field(calls[0], *path.split(":"))
    need(calls[0]["input"]["tool_input"].get("command") == "touch x.txt", calls[0])


def hook_order(log: ScenarioLog) -> None:
    names = [str(request.get("callback_id")).removeprefix("hook_") for request in log.asked("hook_callback")]
    kept = [name for name in names if name not in ("PermissionRequest", "Notification")]
    wanted = ["UserPromptSubmit", "PreToolUse", "PostToolUse", "PreToolUse", "PostToolUseFailure", "Stop"]
    need(kept == wanted, names)
    need("PermissionRequest" in names, names)


@scenario(
    "hooks",
    check("ask.hook_callback hook.PreToolUse", "trace 054; control.md §8.2",
          "callback_id and input with session_id, transcript_path, cwd, hook_event_name and the call", hook_input),
    check("hook.order hook.PreToolUse hook.PermissionRequest hook.Stop", "traces README, fact 3",
          "UserPromptSubmit, PreToolUse, PermissionRequest, PostToolUse; for a failure PostToolUseFailure; last Stop",
          hook_order),
    check("hook.PostToolUse", "trace 054",
          "tool_response, of the call that succeeded",
          hook_called("PostToolUse", "tool_response", tool_use_id="toolu_touch")),
    check("hook.PostToolUseFailure", "trace 054",
          "`error`, of the call that failed", hook_called("PostToolUseFailure", "error", tool_use_id="toolu_fail")),
    check("hook.UserPromptSubmit", "trace 054",
          "`prompt`, before the first model call", hook_called("UserPromptSubmit", prompt="go")),
    check("hook.Stop", "trace 054",
          "`stop_hook_active` false, before the result", hook_called("Stop", stop_hook_active=False)),
)  # fmt: skip
async def all_hooks(engine: EngineDriver) -> None:
    """Every event of a turn with a good and a failing command."""
    engine.model.play(TOUCH, bash("exit 3", "toolu_fail"), say("ok"))
    events = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "PermissionRequest")
    await hooked_turn(engine, {event: {} for event in (*events, "Notification")})


@scenario(
    "hook-decides",
    check("hook.deny hook.PreToolUse hook_output.hookSpecificOutput", "trace 056",
          "`deny`: the call does not run, its result is an error with the reason",
          tool_fails("toolu_touch", "hook says no"), not_made("x.txt")),
    check("hook.allow hook.PreToolUse", "trace 055; control.md §8.5",
          "`allow` with updatedInput: the changed command runs without a question",
          made("changed.txt"), not_made("again.txt")),
    check("hook.ask hook.PreToolUse", "trace 057; users.md U-2.1",
          "`ask`: the client is asked for a command that would otherwise run", asks_for("toolu_ls")),
)  # fmt: skip
async def hook_decides(engine: EngineDriver) -> None:
    """PreToolUse denies, allows, changes and asks."""
    replies = in_turn(
        output("PreToolUse", permissionDecision="deny", permissionDecisionReason="hook says no"),
        output("PreToolUse", permissionDecision="allow", updatedInput={"command": "touch changed.txt"}),
        output("PreToolUse", permissionDecision="ask", permissionDecisionReason="please check"),
    )
    engine.model.play(TOUCH, bash("touch again.txt", "toolu_again"), bash("ls", "toolu_ls"), say("ok"))
    await hooked_turn(engine, {"PreToolUse": replies})


@scenario(
    "hook-context",
    check("hook.context hook.UserPromptSubmit hook.PostToolUse hook_output.decision-block-+reason",
          "traces 059 and 060",
          "additionalContext and the reason of a block reach the model",
          told("PROMPT-CONTEXT", "POST-CONTEXT", "POST-BLOCK-REASON")),
    check("hook.stop-block hook.Stop", "control.md §8.5",
          "a blocked Stop makes the model go on with the reason; the second time `stop_hook_active` is true",
          lambda log: need([each["stop_hook_active"] for each in log.hooks("Stop")] == [False, True], log.summary()),
          told("STOP-BLOCK-REASON"), ends_with(result="two")),
)  # fmt: skip
async def hook_context(engine: EngineDriver) -> None:
    """Context of UserPromptSubmit and PostToolUse, a blocked result, and a Stop hook that continues the turn."""
    post = in_turn(
        output("PostToolUse", additionalContext="POST-CONTEXT"), {"decision": "block", "reason": "POST-BLOCK-REASON"}
    )
    stop = in_turn({"decision": "block", "reason": "STOP-BLOCK-REASON"}, {})
    engine.model.play(TOUCH, bash("echo two", "toolu_two"), say("one"), say("two"))
    await hooked_turn(
        engine,
        {"UserPromptSubmit": output("UserPromptSubmit", additionalContext="PROMPT-CONTEXT"), "PostToolUse": post,
         "Stop": stop},
    )  # fmt: skip


@scenario(
    "hook-blocks-prompt",
    check("hook.block-prompt hook.UserPromptSubmit", "trace 060",
          "a blocked prompt makes no model call and still has a result", ends_with(), calls_no_model()),
)  # fmt: skip
async def hook_blocks_prompt(engine: EngineDriver) -> None:
    engine.model.play(say("never"))
    await hooked_turn(engine, {"UserPromptSubmit": {"decision": "block", "reason": "prompt blocked"}})


def permission_hook(log: ScenarioLog) -> None:
    calls = log.hooks("PermissionRequest")
    need(calls and calls[0].get("tool_name") == "Bash" and isinstance(calls[0].get("tool_input"), dict), calls)
    need("x.txt" in log.files, log.summary())


@scenario(
    "hook-permission",
    check("hook.PermissionRequest", "trace 064",
          "the hook is called with tool_name and tool_input; its `allow` lets the call run", permission_hook),
)  # fmt: skip
async def hook_permission(engine: EngineDriver) -> None:
    """PermissionRequest decides before the client does; a hook that fails; one that answers later."""
    engine.model.play(TOUCH, say("ok"))
    engine.on("hook_callback", output("PermissionRequest", decision={"behavior": "allow"}))
    await engine.turn("go", *ASK, hooks=register("PermissionRequest"))
    engine.keep("x.txt")


@scenario(
    "hook-fails",
    check("hook.failure ask.hook_callback initialize.hooks", "control.md §8.1, §8.2",
          "a failed hook does not end the turn; other matchers are not called; an unknown event is accepted",
          asks_with("hook_callback", "callback_id", ["hook_bash"]), tool_says("toolu_touch"), ends_with(result="ok")),
)  # fmt: skip
async def hook_fails(engine: EngineDriver) -> None:
    """A hook that answers with an error, and one for another tool."""
    engine.model.play(TOUCH, say("ok"))
    engine.on("hook_callback", ErrorReply("hook crashed"))
    engine.on("can_use_tool", allow)
    await engine.start(*ASK)
    hooks = {"PreToolUse": [
        {"matcher": "Bash", "hookCallbackIds": ["hook_bash"], "timeout": 5},
        {"matcher": "Write|Edit", "hookCallbackIds": ["hook_write"]},
    ], "NoSuchEvent": [{"matcher": None, "hookCallbackIds": ["hook_none"]}]}  # fmt: skip
    await engine.initialize(hooks=hooks)
    engine.user("go")
    await engine.result()
    await engine.finish()
    engine.keep("x.txt")


def deferred(log: ScenarioLog) -> None:
    found = require_field(log.last("result"), "deferred_tool_use", "o")
    need(found.get("id") == "toolu_touch" and found.get("name") == "Bash", found)
    need("x.txt" not in log.files, "the call ran")


@scenario(
    "hook-defer",
    check("hook.defer result.deferred_tool_use", "messages.md §7; control.md §8.5",
          "`defer` ends the turn without running the call; the result has deferred_tool_use", deferred),
)  # fmt: skip
async def hook_defer(engine: EngineDriver) -> None:
    engine.model.play(TOUCH, say("never"))
    await hooked_turn(engine, {"PreToolUse": output("PreToolUse", permissionDecision="defer")})


@scenario(
    "hook-stops",
    check("hook.continue-false hook_output.continue-false+stopReason",
          "control.md §8.4, users.md U-2.5; the recorded engine still runs the call (trace 062)",
          "`continue: false` before a call: it does not run, and the turn ends with hook_stopped",
          ends_with(terminal_reason="hook_stopped"), not_made("x.txt"), is_advice=True),
)  # fmt: skip
async def hook_stops(engine: EngineDriver) -> None:
    engine.model.play(TOUCH, say("never"))
    await hooked_turn(engine, {"PreToolUse": {"continue": False, "stopReason": "halt"}})


@scenario(
    "hook-agents",
    check("hook.SubagentStart", "trace 054",
          "agent_id and agent_type", hook_called("SubagentStart", "agent_id", agent_type="general-purpose")),
    check("hook.SubagentStop", "trace 054",
          "stop_hook_active and agent_id", hook_called("SubagentStop", "agent_id", stop_hook_active=False)),
)  # fmt: skip
async def hook_agents(engine: EngineDriver) -> None:
    """SubagentStart and SubagentStop."""
    call = {"description": "Do it", "prompt": "SUBTASK please", "subagent_type": "general-purpose",
            "run_in_background": False}  # fmt: skip
    engine.model.play(use("Task", call, "toolu_agent"), say("ok"), say("Sub answer.", when="SUBTASK"))
    engine.on("hook_callback", {})
    await engine.turn("go", *BYPASS, hooks=register("SubagentStart", "SubagentStop"))


def hook_started(log: ScenarioLog) -> None:
    lines = [line for line in log.all("system/hook_started") if line.get("hook_event") == "PreToolUse"]
    need(len(lines) == 1, log.summary())
    for name in ("hook_id", "hook_name", "hook_event"):
        require_field(lines[0], name, "s")


def hook_response(log: ScenarioLog) -> None:
    lines = [line for line in log.all("system/hook_response") if line.get("hook_event") == "PreToolUse"]
    need(len(lines) == 1 and lines[0].get("outcome") == "success", f"{lines}; {log.summary()}")
    need("hooked" in str(lines[0].get("stdout")), lines)
    for name in ("output", "stdout", "stderr"):
        require_field(lines[0], name, "s")


@scenario(
    "hook-events",
    check("system.hook_started out.system/hook_started flag.include-hook-events", "trace 066",
          "hook_started with hook_id, hook_name and hook_event", hook_started),
    check("system.hook_response out.system/hook_response", "trace 066",
          "hook_response for the same hook, with its output and outcome success", hook_response),
)  # fmt: skip
async def hook_events(engine: EngineDriver) -> None:
    """Command hooks of --settings, reported with --include-hook-events."""
    command = {"type": "command", "command": "echo hooked"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [command]}]}}
    engine.model.play(TOUCH, say("ok"))
    await engine.turn("go", *BYPASS, "--include-hook-events", "--settings", json.dumps(settings))
