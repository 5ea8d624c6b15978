"""Hooks of the client (hook_callback), and of settings."""

from __future__ import annotations

import json
from typing import Any

from parley.conformance.driver import ASK, BYPASS, EngineDriver, ErrorReply
from parley.conformance.model import bash, say, use
from parley.conformance.registry import check, require_field, scenario
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
    await engine.start(*ASK, *flags)
    await engine.initialize(hooks=register(*replies))
    engine.user("go")
    await engine.result()
    await engine.finish()
    engine.keep("x.txt", "changed.txt", "again.txt")


@scenario("hooks")
async def all_hooks(engine: EngineDriver) -> None:
    """Every event of a turn with a good and a failing command."""
    engine.model.play(TOUCH, bash("exit 3", "toolu_fail"), say("ok"))
    events = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "PermissionRequest")
    await hooked_turn(engine, {event: {} for event in (*events, "Notification")})


@check(
    "ask.hook_callback", "hook.PreToolUse", on="hooks", basis="trace 054; control.md §8.2",
    expects="callback_id and input with session_id, transcript_path, cwd, hook_event_name and the call",
)  # fmt: skip
def hook_input(log: ScenarioLog) -> None:
    calls = [request for request in log.asked("hook_callback") if request.get("callback_id") == "hook_PreToolUse"]
    need(len(calls) == 2, f"{len(calls)} calls; {log.summary()}")
    for path in (
        "input.session_id:s", "input.transcript_path:s", "input.cwd:s", "input.hook_event_name:s", "input.tool_name:s",
        "input.tool_input:o", "input.tool_use_id:s",
    ):  # fmt: skip
        require_field(calls[0], *path.split(":"))
    need(calls[0]["input"]["tool_input"].get("command") == "touch x.txt", calls[0])


@check(
    "hook.order", "hook.PreToolUse", "hook.PermissionRequest", "hook.Stop", on="hooks", basis="traces README, fact 3",
    expects="UserPromptSubmit, PreToolUse, PermissionRequest, PostToolUse; for a failure PostToolUseFailure; last Stop",
)  # fmt: skip
def hook_order(log: ScenarioLog) -> None:
    names = [str(request.get("callback_id")).removeprefix("hook_") for request in log.asked("hook_callback")]
    kept = [name for name in names if name not in ("PermissionRequest", "Notification")]
    wanted = ["UserPromptSubmit", "PreToolUse", "PostToolUse", "PreToolUse", "PostToolUseFailure", "Stop"]
    need(kept == wanted, names)
    need("PermissionRequest" in names, names)


@check("hook.PostToolUse", on="hooks", basis="trace 054", expects="tool_response, of the call that succeeded")
def post_input(log: ScenarioLog) -> None:
    calls = log.hooks("PostToolUse")
    need(len(calls) == 1 and calls[0].get("tool_use_id") == "toolu_touch" and "tool_response" in calls[0], calls)


@check("hook.PostToolUseFailure", on="hooks", basis="trace 054", expects="`error`, of the call that failed")
def failure_input(log: ScenarioLog) -> None:
    calls = log.hooks("PostToolUseFailure")
    need(len(calls) == 1 and calls[0].get("tool_use_id") == "toolu_fail" and calls[0].get("error"), calls)


@check("hook.UserPromptSubmit", on="hooks", basis="trace 054", expects="`prompt`, before the first model call")
def prompt_input(log: ScenarioLog) -> None:
    calls = log.hooks("UserPromptSubmit")
    need(len(calls) == 1 and calls[0].get("prompt") == "go", calls)


@check("hook.Stop", on="hooks", basis="trace 054", expects="`stop_hook_active` false, before the result")
def stop_input(log: ScenarioLog) -> None:
    calls = log.hooks("Stop")
    need(len(calls) == 1 and calls[0].get("stop_hook_active") is False, calls)


@scenario("hook-decides")
async def hook_decides(engine: EngineDriver) -> None:
    """PreToolUse denies, allows, changes and asks."""
    replies = in_turn(
        output("PreToolUse", permissionDecision="deny", permissionDecisionReason="hook says no"),
        output("PreToolUse", permissionDecision="allow", updatedInput={"command": "touch changed.txt"}),
        output("PreToolUse", permissionDecision="ask", permissionDecisionReason="please check"),
    )
    engine.model.play(TOUCH, bash("touch again.txt", "toolu_again"), bash("ls", "toolu_ls"), say("ok"))
    await hooked_turn(engine, {"PreToolUse": replies})


@check(
    "hook.deny", "hook.PreToolUse", "hook_output.hookSpecificOutput", on="hook-decides", basis="trace 056",
    expects="`deny`: the call does not run, its result is an error with the reason",
)  # fmt: skip
def hook_denies(log: ScenarioLog) -> None:
    found = log.tool_result("toolu_touch")
    need(found.get("is_error") is True and "hook says no" in str(found.get("content")), found)
    need("x.txt" not in log.files, "the command ran")


@check(
    "hook.allow", "hook.PreToolUse", on="hook-decides", basis="trace 055; control.md §8.5",
    expects="`allow` with updatedInput: the changed command runs without a question",
)  # fmt: skip
def hook_allows(log: ScenarioLog) -> None:
    need("changed.txt" in log.files and "again.txt" not in log.files, f"{sorted(log.files)}; {log.summary()}")


@check(
    "hook.ask", "hook.PreToolUse", on="hook-decides", basis="trace 057; users.md U-2.1",
    expects="`ask`: the client is asked for a command that would otherwise run",
)  # fmt: skip
def hook_asks(log: ScenarioLog) -> None:
    asked = [request.get("tool_use_id") for request in log.asked("can_use_tool")]
    need(asked == ["toolu_ls"], asked)


@scenario("hook-context")
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


@check(
    "hook.context", "hook.UserPromptSubmit", "hook.PostToolUse", "hook_output.decision-block-+reason",
    on="hook-context",
    basis="traces 059 and 060", expects="additionalContext and the reason of a block reach the model",
)  # fmt: skip
def context_arrives(log: ScenarioLog) -> None:
    for text in ("PROMPT-CONTEXT", "POST-CONTEXT", "POST-BLOCK-REASON"):
        need(log.told_model(text), f"{text} did not reach the model; {log.summary()}")


@check(
    "hook.stop-block", "hook.Stop", on="hook-context", basis="control.md §8.5",
    expects="a blocked Stop makes the model go on with the reason; the second time `stop_hook_active` is true",
)  # fmt: skip
def stop_goes_on(log: ScenarioLog) -> None:
    calls = log.hooks("Stop")
    need([call.get("stop_hook_active") for call in calls] == [False, True], calls)
    need(log.told_model("STOP-BLOCK-REASON"), "the reason did not reach the model")
    need(log.last("result").get("result") == "two", log.last("result"))


@scenario("hook-blocks-prompt")
async def hook_blocks_prompt(engine: EngineDriver) -> None:
    engine.model.play(say("never"))
    await hooked_turn(engine, {"UserPromptSubmit": {"decision": "block", "reason": "prompt blocked"}})


@check(
    "hook.block-prompt", "hook.UserPromptSubmit", on="hook-blocks-prompt", basis="trace 060",
    expects="a blocked prompt makes no model call and still has a result",
)  # fmt: skip
def prompt_is_blocked(log: ScenarioLog) -> None:
    log.last("result")
    need(not log.main_requests(), f"{len(log.main_requests())} model calls")


@scenario("hook-permission")
async def hook_permission(engine: EngineDriver) -> None:
    """PermissionRequest decides before the client does; a hook that fails; one that answers later."""
    engine.model.play(TOUCH, say("ok"))
    engine.on("hook_callback", output("PermissionRequest", decision={"behavior": "allow"}))
    await engine.start(*ASK)
    await engine.initialize(hooks=register("PermissionRequest"))
    engine.user("go")
    await engine.result()
    await engine.finish()
    engine.keep("x.txt")


@check(
    "hook.PermissionRequest", on="hook-permission", basis="trace 064",
    expects="the hook is called with tool_name and tool_input; its `allow` lets the call run",
)  # fmt: skip
def permission_hook(log: ScenarioLog) -> None:
    calls = log.hooks("PermissionRequest")
    need(calls and calls[0].get("tool_name") == "Bash" and isinstance(calls[0].get("tool_input"), dict), calls)
    need("x.txt" in log.files, log.summary())


@scenario("hook-fails")
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


@check(
    "hook.failure", "ask.hook_callback", "initialize.hooks", on="hook-fails", basis="control.md §8.1, §8.2",
    expects="a failed hook does not end the turn; other matchers are not called; an unknown event is accepted",
)  # fmt: skip
def failed_hook(log: ScenarioLog) -> None:
    called = [request.get("callback_id") for request in log.asked("hook_callback")]
    need(called == ["hook_bash"], f"{called}; {log.summary()}")
    log.tool_result("toolu_touch")
    need(log.last("result").get("result") == "ok", log.last("result"))


@scenario("hook-defer")
async def hook_defer(engine: EngineDriver) -> None:
    engine.model.play(TOUCH, say("never"))
    await hooked_turn(engine, {"PreToolUse": output("PreToolUse", permissionDecision="defer")})


@check(
    "hook.defer", "result.deferred_tool_use", on="hook-defer", basis="messages.md §7; control.md §8.5",
    expects="`defer` ends the turn without running the call; the result has deferred_tool_use",
)  # fmt: skip
def deferred(log: ScenarioLog) -> None:
    found = require_field(log.last("result"), "deferred_tool_use", "o")
    need(found.get("id") == "toolu_touch" and found.get("name") == "Bash", found)
    need("x.txt" not in log.files, "the call ran")


@scenario("hook-stops")
async def hook_stops(engine: EngineDriver) -> None:
    engine.model.play(TOUCH, say("never"))
    await hooked_turn(engine, {"PreToolUse": {"continue": False, "stopReason": "halt"}})


@check(
    "hook.continue-false", "hook_output.continue-false+stopReason", on="hook-stops", is_advice=True,
    basis="control.md §8.4, users.md U-2.5; the recorded engine still runs the call (trace 062)",
    expects="`continue: false` before a call: it does not run, and the turn ends with hook_stopped",
)  # fmt: skip
def hook_stopped(log: ScenarioLog) -> None:
    need(log.last("result").get("terminal_reason") == "hook_stopped", log.last("result"))
    need("x.txt" not in log.files, "the call ran")


@scenario("hook-agents")
async def hook_agents(engine: EngineDriver) -> None:
    """SubagentStart and SubagentStop."""
    call = {"description": "Do it", "prompt": "SUBTASK please", "subagent_type": "general-purpose",
            "run_in_background": False}  # fmt: skip
    engine.model.play(use("Task", call, "toolu_agent"), say("ok"), say("Sub answer.", when="SUBTASK"))
    engine.on("hook_callback", {})
    await engine.start(*BYPASS)
    await engine.initialize(hooks=register("SubagentStart", "SubagentStop"))
    engine.user("go")
    await engine.result()
    await engine.finish()


@check(
    "hook.SubagentStart", on="hook-agents", basis="trace 054", expects="agent_id and agent_type",
)  # fmt: skip
def subagent_start(log: ScenarioLog) -> None:
    calls = log.hooks("SubagentStart")
    need(len(calls) == 1 and calls[0].get("agent_type") == "general-purpose" and calls[0].get("agent_id"), calls)


@check(
    "hook.SubagentStop", on="hook-agents", basis="trace 054", expects="stop_hook_active and agent_id",
)  # fmt: skip
def subagent_stop(log: ScenarioLog) -> None:
    calls = log.hooks("SubagentStop")
    need(len(calls) == 1 and calls[0].get("stop_hook_active") is False and calls[0].get("agent_id"), calls)


@scenario("hook-events")
async def hook_events(engine: EngineDriver) -> None:
    """Command hooks of --settings, reported with --include-hook-events."""
    command = {"type": "command", "command": "echo hooked"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [command]}]}}
    engine.model.play(TOUCH, say("ok"))
    await engine.turn("go", *BYPASS, "--include-hook-events", "--settings", json.dumps(settings))


@check(
    "system.hook_started", "out.system/hook_started", "flag.include-hook-events", on="hook-events", basis="trace 066",
    expects="hook_started with hook_id, hook_name and hook_event",
)  # fmt: skip
def hook_started(log: ScenarioLog) -> None:
    lines = [line for line in log.all("system/hook_started") if line.get("hook_event") == "PreToolUse"]
    need(len(lines) == 1, log.summary())
    for name in ("hook_id", "hook_name", "hook_event"):
        require_field(lines[0], name, "s")


@check(
    "system.hook_response", "out.system/hook_response", on="hook-events", basis="trace 066",
    expects="hook_response for the same hook, with its output and outcome success",
)  # fmt: skip
def hook_response(log: ScenarioLog) -> None:
    lines = [line for line in log.all("system/hook_response") if line.get("hook_event") == "PreToolUse"]
    need(len(lines) == 1 and lines[0].get("outcome") == "success", f"{lines}; {log.summary()}")
    need("hooked" in str(lines[0].get("stdout")), lines)
    for name in ("output", "stdout", "stderr"):
        require_field(lines[0], name, "s")
