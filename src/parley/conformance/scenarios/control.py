"""Control requests of the client, between and during turns."""

from __future__ import annotations

from parley.conformance.conditions import (
    answer_has,
    answered,
    answered_with,
    asks_with,
    file_is,
    first_line,
    hook_called,
    last_request,
    line_has,
    lines_are,
    only_made,
    refused,
    require_field,
    some_line,
    tool_succeeds,
)
from parley.conformance.driver import ASK, BYPASS, EngineDriver, bash, say, use
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need

OTHER_MODEL = "claude-haiku-4-5"
THOUGHT = "Something to think about."
PROMPT_ID = "00000000-0000-4000-8000-000000000001"


def rewind_off(log: ScenarioLog) -> None:
    answer = log.reply("rewind off")
    is_refused = answer.get("subtype") == "error" or (answer.get("response") or {}).get("canRewind") is False
    need(is_refused, answer)


@scenario(
    "control-requests",
    check("request.set_permission_mode out.system/status system.status", "trace 050",
          "success, and a line `system/status` with the new permissionMode; an error for an unknown mode",
          answered("good mode"), refused("bad mode"), some_line("system/status", permissionMode="acceptEdits"),
          line_has("system/init", -1, permissionMode="acceptEdits")),
    check("request.set_model", "trace 051", f"success, and the next turn's request names {OTHER_MODEL}",
          answered("set_model"), line_has("result", 1),
          lambda log: need(str(log.main_requests()[-1]["model"]).startswith(OTHER_MODEL), log.main_requests()[-1])),
    check("turn.foreign-thinking request.set_model", "the Messages API: a model reads its own thinking",
          "the request to another model is without the thinking of the first, and has its text",
          last_request("one", lacks=THOUGHT)),
    check("request.set_max_thinking_tokens", "trace 051", "success", answered("set_max_thinking_tokens")),
    check("request.mcp_status", "trace 052", "`mcpServers`, a list", answer_has("mcp_status", "mcpServers:a")),
    check("request.get_context_usage", "control.md §6; trace 052",
          "categories, totalTokens, maxTokens, rawMaxTokens, percentage, model, isAutoCompactEnabled and lists",
          answer_has("get_context_usage", "categories:a", "totalTokens:n", "maxTokens:n", "rawMaxTokens:n",
                     "percentage:n", "model:s", "isAutoCompactEnabled:b", "memoryFiles:a",
                     "mcpTools:a", "agents:a", "gridRows:a")),
    check("request.mcp_reconnect", "trace 069", "an error for an unknown server", refused("unknown server")),
    check("control.unknown-request in.control_request envelope.error", "traces README, bad input",
          "an unknown request is answered with an error, and the session continues",
          refused("unknown request"), line_has("result", 1, result="two")),
    check("control.rewind-off request.rewind_files", "trace 100",
          "without checkpoints, rewind_files is an error or says canRewind false", rewind_off),
    check("control.idle-interrupt request.interrupt", "trace 071",
          "an interrupt while nothing runs is acknowledged, and the next turn is not affected",
          answered("idle interrupt"), line_has("result", 1, result="two")),
    check("control.second-initialize request.initialize", "traces README, fact 2",
          "a second initialize is answered", answered("second initialize")),
)  # fmt: skip
async def control_requests(engine: EngineDriver) -> None:
    """Between two turns: modes, models, thinking, states and requests that do not exist."""
    engine.model.play(say("one", thinking=THOUGHT), say("two"))
    await engine.begin("go")
    await engine.result()
    await engine.ask("set_permission_mode", "good mode", mode="acceptEdits")
    await engine.ask("set_permission_mode", "bad mode", mode="nonsense")
    await engine.ask("set_model", model=OTHER_MODEL)
    await engine.ask("set_max_thinking_tokens", max_thinking_tokens=3000)
    await engine.ask("mcp_status")
    await engine.ask("get_context_usage")
    await engine.ask("mcp_reconnect", "unknown server", serverName="nosuch")
    await engine.ask("no_such_request", "unknown request")
    await engine.ask("rewind_files", "rewind off", user_message_id=PROMPT_ID)
    await engine.ask("interrupt", "idle interrupt")
    await engine.ask("initialize", "second initialize", hooks=None)
    engine.user("again")
    await engine.result()
    await engine.finish()


def answered_during_turn(log: ScenarioLog) -> None:
    log.answer("set_permission_mode")
    log.answer("mcp_status")
    end = log.index(log.result_line("toolu_sleep"))
    answers = [log.index(line) for line in log.all("control_response")]
    need(len(answers) == 3 and max(answers) < end, f"answers at {answers}, the tool's result at {end}")


@scenario(
    "control-during-turn",
    check("control.during-turn request.set_permission_mode", "trace 123; users.md U-2.7",
          "requests are answered while a tool runs, before its result", answered_during_turn),
    check("control.mode-in-turn mode.acceptEdits", "trace 123",
          "the new mode holds for the next call of the same turn: Write is not asked for",
          asks_with("can_use_tool", "tool_name", ["Bash"]), tool_succeeds("toolu_write")),
)  # fmt: skip
async def control_during_turn(engine: EngineDriver) -> None:
    """While a command runs the mode is changed; the next call is judged by it."""
    engine.model.play(
        bash("sleep 1.2; touch slept", "toolu_sleep"),
        use("Write", {"file_path": str(engine.cwd / "w.txt"), "content": "w"}, "toolu_write"),
        say("ok"),
    )
    engine.on("can_use_tool", lambda request: {"behavior": "allow", "updatedInput": request.get("input", {})})
    await engine.begin("go", *ASK)
    await engine.line("control_request/can_use_tool")
    await engine.ask("set_permission_mode", mode="acceptEdits")
    await engine.ask("mcp_status")
    await engine.result()
    await engine.finish()


@scenario(
    "rewind",
    check("request.rewind_files client_env.CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING user.uuid", "trace 100",
          "canRewind true; the file has its old text, the new one is gone; an error for an unknown id",
          lambda log: need(log.facts.get("changed") == "ALPHA\n", log.summary()),
          answered_with("rewind_files", canRewind=True), only_made("a.txt"), file_is("a.txt", "alpha\n"),
          refused("unknown id")),
)  # fmt: skip
async def rewind(engine: EngineDriver) -> None:
    """With checkpoints: a file is changed and one is made; then both are taken back."""
    engine.put({"a.txt": "alpha\n"})
    at = engine.cwd
    engine.model.play(
        use("Read", {"file_path": str(at / "a.txt")}, "toolu_read"),
        use("Edit", {"file_path": str(at / "a.txt"), "old_string": "alpha", "new_string": "ALPHA"}, "toolu_edit"),
        use("Write", {"file_path": str(at / "new.txt"), "content": "n\n"}, "toolu_write"),
        say("ok"),
    )
    await engine.start(*BYPASS, "--replay-user-messages", env={"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true"})
    await engine.initialize()
    engine.user("go", uuid=PROMPT_ID)
    await engine.result()
    engine.log.facts["changed"] = (at / "a.txt").read_text()
    await engine.ask("rewind_files", user_message_id=PROMPT_ID)
    await engine.ask("rewind_files", "unknown id", user_message_id="nosuch")
    engine.keep("a.txt", "new.txt")
    await engine.finish()


def replayed(log: ScenarioLog) -> None:
    found = [line for line in log.all("user") if line.get("isReplay") is True]
    need(len(found) == 1 and found[0].get("uuid") == PROMPT_ID, f"{found}; {log.summary()}")
    need("go" in str(found[0].get("message")), found)


@scenario(
    "replay",
    check("flag.replay-user-messages user.isReplay out.user+isReplay-true user.uuid", "trace 075",
          "the prompt comes back as a user line with isReplay and its own uuid", replayed),
)  # fmt: skip
async def replay(engine: EngineDriver) -> None:
    """--replay-user-messages: prompts come back."""
    engine.model.play(say("one"), say("two"))
    await engine.start("--replay-user-messages", "")
    await engine.initialize()
    engine.user("go", uuid=PROMPT_ID)
    await engine.result()
    await engine.finish()


def states_for_sdks(log: ScenarioLog) -> None:
    lines = log.all("system/session_state_changed", 0)
    need([line.get("state") for line in lines] == ["running", "requires_action", "running", "idle"], lines)
    need(all(line.get("sdk_host_only") is True for line in lines), lines)
    need(log.index(lines[-1]) > log.index(log.first("result", 0)), "idle came before the result")


def states_for_all(log: ScenarioLog) -> None:
    lines = log.all("system/session_state_changed", 1)
    need([line.get("state") for line in lines] == ["running", "idle"], f"{lines}; {log.summary(1)}")
    need(not any(line.get("sdk_host_only") for line in lines), lines)


@scenario(
    "session-state",
    check("system.session_state_changed out.system/session_state_changed "
          "client_env.CLAUDE_CODE_SDK_READS_SESSION_STATE", "trace 102",
          "running, requires_action while asking, running, and idle after the result, each with sdk_host_only",
          states_for_sdks),
    check("env.CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "trace 102",
          "running and idle, without sdk_host_only", states_for_all),
)  # fmt: skip
async def session_state(engine: EngineDriver) -> None:
    """session_state_changed, switched on by either of two variables."""
    engine.on("can_use_tool", lambda request: {"behavior": "allow", "updatedInput": request.get("input", {})})
    engine.model.play(bash("touch x.txt"), say("one"), say("two"))
    for variable in ("CLAUDE_CODE_SDK_READS_SESSION_STATE", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"):
        await engine.begin("go", *ASK, env={variable: "1"})
        await engine.result()
        await engine.until(lambda line: line.get("state") == "idle", "state idle", from_start=True)
        await engine.finish()


def boundary(log: ScenarioLog) -> None:
    statuses = [line.get("status", "?") for line in log.all("system/status")]
    need(statuses[:2] == ["compacting", None], statuses)
    line = log.first("system/compact_boundary")
    need(require_field(line, "compact_metadata.trigger", "s") == "manual", line)
    require_field(line, "compact_metadata.pre_tokens", "n")


def summarized(log: ScenarioLog) -> None:
    bodies = [
        body for body in log.main_requests() if "'next'" in str(body["messages"]) or "next" in str(body["messages"][-1])
    ]
    need(bodies, log.summary())
    need("SUMMARY-OF-THINGS" in str(bodies[-1]["messages"]), str(bodies[-1]["messages"])[:500])


@scenario(
    "compaction",
    check("system.compact_boundary out.system/compact_boundary system.status", "trace 081",
          "status compacting, status null with compact_result, compact_boundary with trigger manual and pre_tokens",
          boundary),
    check("compaction.summary out.system/compact_boundary", "trace 081",
          "the next request has the summary in place of the turns before it", summarized),
    check("hook.PreCompact", "trace 081",
          "the hook is called with trigger manual and custom_instructions",
          hook_called("PreCompact", trigger="manual"),
          lambda log: need("keep it short" in str(log.hooks("PreCompact")), log.hooks("PreCompact"))),
    check("top.conversation_reset out.conversation_reset", "trace 101",
          "/clear is a turn with `conversation_reset`, and the next request has none of the turns before it",
          first_line("conversation_reset", "new_conversation_id:s"), last_request("anew", lacks="SUMMARY-OF-THINGS"),
          lines_are("result", 6)),
)  # fmt: skip
async def compaction(engine: EngineDriver) -> None:
    """/compact after two turns, then a turn on the summary; then /clear."""
    engine.on("hook_callback", {})
    engine.model.play(say("one"), say("two"), say("<summary>SUMMARY-OF-THINGS</summary>"), say("after"), say("fresh"))
    await engine.start()
    await engine.initialize(hooks={"PreCompact": [{"matcher": None, "hookCallbackIds": ["hook_0"]}]})
    for prompt in ("first", "second", "/compact keep it short", "next", "/clear", "anew"):
        engine.user(prompt)
        await engine.result()
    await engine.finish()
