"""Control requests of the client, between and during turns."""

from __future__ import annotations

from parley.conformance.driver import ASK, BYPASS, EngineDriver
from parley.conformance.model import bash, say, use
from parley.conformance.registry import check, require_field, scenario
from parley.conformance.scenario_log import ScenarioLog, need

OTHER_MODEL = "claude-haiku-4-5"
THOUGHT = "Something to think about."
PROMPT_ID = "00000000-0000-4000-8000-000000000001"


@scenario("control-requests")
async def control_requests(engine: EngineDriver) -> None:
    """Between two turns: modes, models, thinking, states and requests that do not exist."""
    engine.model.play(say("one", thinking=THOUGHT), say("two"))
    await engine.start()
    await engine.initialize()
    engine.user("go")
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


@check(
    "request.set_permission_mode", "out.system/status", "system.status", on="control-requests", basis="trace 050",
    expects="success, and a line `system/status` with the new permissionMode; an error for an unknown mode",
)  # fmt: skip
def set_mode(log: ScenarioLog) -> None:
    log.answer("good mode")
    need(log.reply("bad mode").get("subtype") == "error", log.reply("bad mode"))
    modes = [line.get("permissionMode") for line in log.all("system/status")]
    need("acceptEdits" in modes, f"{modes}; {log.summary()}")
    need(log.last("system/init").get("permissionMode") == "acceptEdits", log.last("system/init").get("permissionMode"))


@check(
    "request.set_model", on="control-requests", basis="trace 051",
    expects=f"success, and the next turn's request names {OTHER_MODEL}",
)  # fmt: skip
def set_model(log: ScenarioLog) -> None:
    log.answer("set_model")
    log.nth("result", 1)
    models = [str(body.get("model")) for body in log.main_requests()]
    need(models[-1].startswith(OTHER_MODEL), models)


@check(
    "turn.foreign-thinking", "request.set_model", on="control-requests",
    basis="the Messages API: a model reads its own thinking",
    expects="the request to another model is without the thinking of the first, and has its text",
)  # fmt: skip
def foreign_thinking(log: ScenarioLog) -> None:
    text = str(log.main_requests()[-1]["messages"])
    need("one" in text and THOUGHT not in text, text)


@check("request.set_max_thinking_tokens", on="control-requests", basis="trace 051", expects="success")
def set_thinking(log: ScenarioLog) -> None:
    log.answer("set_max_thinking_tokens")


@check(
    "request.mcp_status", on="control-requests", basis="trace 052", expects="`mcpServers`, a list",
)  # fmt: skip
def mcp_status(log: ScenarioLog) -> None:
    require_field(log.answer("mcp_status"), "mcpServers", "a")


@check(
    "request.get_context_usage", on="control-requests", basis="control.md §6; trace 052",
    expects="categories, totalTokens, maxTokens, rawMaxTokens, percentage, model, isAutoCompactEnabled and lists",
)  # fmt: skip
def context_usage(log: ScenarioLog) -> None:
    answer = log.answer("get_context_usage")
    for path in (
        "categories:a", "totalTokens:n", "maxTokens:n", "rawMaxTokens:n", "percentage:n", "model:s",
        "isAutoCompactEnabled:b", "memoryFiles:a", "mcpTools:a", "agents:a", "gridRows:a",
    ):  # fmt: skip
        require_field(answer, *path.split(":"))


@check(
    "request.mcp_reconnect", on="control-requests", basis="trace 069", expects="an error for an unknown server",
)  # fmt: skip
def reconnect_unknown(log: ScenarioLog) -> None:
    need(log.reply("unknown server").get("subtype") == "error", log.reply("unknown server"))


@check(
    "control.unknown-request", "in.control_request", "envelope.error", on="control-requests",
    basis="traces README, bad input",
    expects="an unknown request is answered with an error, and the session continues",
)  # fmt: skip
def unknown_request(log: ScenarioLog) -> None:
    answer = log.reply("unknown request")
    need(answer.get("subtype") == "error" and isinstance(answer.get("error"), str), answer)
    need(log.nth("result", 1).get("result") == "two", log.summary())


@check(
    "control.rewind-off", "request.rewind_files", on="control-requests", basis="trace 100",
    expects="without checkpoints, rewind_files is an error or says canRewind false",
)  # fmt: skip
def rewind_off(log: ScenarioLog) -> None:
    answer = log.reply("rewind off")
    is_refused = answer.get("subtype") == "error" or (answer.get("response") or {}).get("canRewind") is False
    need(is_refused, answer)


@check(
    "control.idle-interrupt", "request.interrupt", on="control-requests", basis="trace 071",
    expects="an interrupt while nothing runs is acknowledged, and the next turn is not affected",
)  # fmt: skip
def idle_interrupt(log: ScenarioLog) -> None:
    log.answer("idle interrupt")
    need(log.nth("result", 1).get("result") == "two", log.summary())


@check(
    "control.second-initialize", "request.initialize", on="control-requests", basis="traces README, fact 2",
    expects="a second initialize is answered",
)  # fmt: skip
def second_initialize(log: ScenarioLog) -> None:
    log.answer("second initialize")


@scenario("control-during-turn")
async def control_during_turn(engine: EngineDriver) -> None:
    """While a command runs the mode is changed; the next call is judged by it."""
    engine.model.play(
        bash("sleep 1.2; touch slept", "toolu_sleep"),
        use("Write", {"file_path": str(engine.cwd / "w.txt"), "content": "w"}, "toolu_write"),
        say("ok"),
    )
    engine.on("can_use_tool", lambda request: {"behavior": "allow", "updatedInput": request.get("input", {})})
    await engine.start(*ASK)
    await engine.initialize()
    engine.user("go")
    await engine.line("control_request/can_use_tool")
    await engine.ask("set_permission_mode", mode="acceptEdits")
    await engine.ask("mcp_status")
    await engine.result()
    await engine.finish()


@check(
    "control.during-turn", "request.set_permission_mode", on="control-during-turn", basis="trace 123; users.md U-2.7",
    expects="requests are answered while a tool runs, before its result",
)  # fmt: skip
def answered_during_turn(log: ScenarioLog) -> None:
    log.answer("set_permission_mode")
    log.answer("mcp_status")
    end = log.index(log.result_line("toolu_sleep"))
    answers = [log.index(line) for line in log.all("control_response")]
    need(len(answers) == 3 and max(answers) < end, f"answers at {answers}, the tool's result at {end}")


@check(
    "control.mode-in-turn", "mode.acceptEdits", on="control-during-turn", basis="trace 123",
    expects="the new mode holds for the next call of the same turn: Write is not asked for",
)  # fmt: skip
def mode_in_turn(log: ScenarioLog) -> None:
    need([request.get("tool_name") for request in log.asked("can_use_tool")] == ["Bash"], log.asked("can_use_tool"))
    need(log.tool_result("toolu_write").get("is_error") is not True, log.tool_result("toolu_write"))


@scenario("rewind")
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


@check(
    "request.rewind_files", "client_env.CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "user.uuid", on="rewind",
    basis="trace 100",
    expects="canRewind true; the file has its old text, the new one is gone; an error for an unknown id",
)  # fmt: skip
def rewound(log: ScenarioLog) -> None:
    need(log.facts.get("changed") == "ALPHA\n", log.summary())
    need(log.answer("rewind_files").get("canRewind") is True, log.reply("rewind_files"))
    need(log.files == {"a.txt": "alpha\n"}, log.files)
    need(log.reply("unknown id").get("subtype") == "error", log.reply("unknown id"))


@scenario("replay")
async def replay(engine: EngineDriver) -> None:
    """--replay-user-messages: prompts come back."""
    engine.model.play(say("one"), say("two"))
    await engine.start("--replay-user-messages", "")
    await engine.initialize()
    engine.user("go", uuid=PROMPT_ID)
    await engine.result()
    await engine.finish()


@check(
    "flag.replay-user-messages", "user.isReplay", "out.user+isReplay-true", "user.uuid", on="replay", basis="trace 075",
    expects="the prompt comes back as a user line with isReplay and its own uuid",
)  # fmt: skip
def replayed(log: ScenarioLog) -> None:
    found = [line for line in log.all("user") if line.get("isReplay") is True]
    need(len(found) == 1 and found[0].get("uuid") == PROMPT_ID, f"{found}; {log.summary()}")
    need("go" in str(found[0].get("message")), found)


@scenario("session-state")
async def session_state(engine: EngineDriver) -> None:
    """session_state_changed, switched on by either of two variables."""
    engine.on("can_use_tool", lambda request: {"behavior": "allow", "updatedInput": request.get("input", {})})
    engine.model.play(bash("touch x.txt"), say("one"), say("two"))
    for variable in ("CLAUDE_CODE_SDK_READS_SESSION_STATE", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"):
        await engine.start(*ASK, env={variable: "1"})
        await engine.initialize()
        engine.user("go")
        await engine.result()
        await engine.until(lambda line: line.get("state") == "idle", "state idle", from_start=True)
        await engine.finish()


@check(
    "system.session_state_changed", "out.system/session_state_changed",
    "client_env.CLAUDE_CODE_SDK_READS_SESSION_STATE",
    on="session-state", basis="trace 102",
    expects="running, requires_action while asking, running, and idle after the result, each with sdk_host_only",
)  # fmt: skip
def states_for_sdks(log: ScenarioLog) -> None:
    lines = log.all("system/session_state_changed", 0)
    need([line.get("state") for line in lines] == ["running", "requires_action", "running", "idle"], lines)
    need(all(line.get("sdk_host_only") is True for line in lines), lines)
    need(log.index(lines[-1]) > log.index(log.first("result", 0)), "idle came before the result")


@check(
    "env.CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", on="session-state", basis="trace 102",
    expects="running and idle, without sdk_host_only",
)  # fmt: skip
def states_for_all(log: ScenarioLog) -> None:
    lines = log.all("system/session_state_changed", 1)
    need([line.get("state") for line in lines] == ["running", "idle"], f"{lines}; {log.summary(1)}")
    need(not any(line.get("sdk_host_only") for line in lines), lines)


@scenario("compaction")
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


@check(
    "system.compact_boundary", "out.system/compact_boundary", "system.status", on="compaction", basis="trace 081",
    expects="status compacting, status null with compact_result, compact_boundary with trigger manual and pre_tokens",
)  # fmt: skip
def boundary(log: ScenarioLog) -> None:
    statuses = [line.get("status", "?") for line in log.all("system/status")]
    need(statuses[:2] == ["compacting", None], statuses)
    line = log.first("system/compact_boundary")
    need(require_field(line, "compact_metadata.trigger", "s") == "manual", line)
    require_field(line, "compact_metadata.pre_tokens", "n")


@check(
    "compaction.summary", "out.system/compact_boundary", on="compaction", basis="trace 081",
    expects="the next request has the summary in place of the turns before it",
)  # fmt: skip
def summarized(log: ScenarioLog) -> None:
    bodies = [
        body for body in log.main_requests() if "'next'" in str(body["messages"]) or "next" in str(body["messages"][-1])
    ]
    need(bodies, log.summary())
    need("SUMMARY-OF-THINGS" in str(bodies[-1]["messages"]), str(bodies[-1]["messages"])[:500])


@check(
    "hook.PreCompact", on="compaction", basis="trace 081",
    expects="the hook is called with trigger manual and custom_instructions",
)  # fmt: skip
def pre_compact(log: ScenarioLog) -> None:
    calls = log.hooks("PreCompact")
    need(len(calls) == 1 and calls[0].get("trigger") == "manual", f"{calls}; {log.summary()}")
    need("keep it short" in str(calls[0].get("custom_instructions")), calls)


@check(
    "top.conversation_reset", "out.conversation_reset", on="compaction", basis="trace 101",
    expects="/clear is a turn with `conversation_reset`, and the next request has none of the turns before it",
)  # fmt: skip
def cleared(log: ScenarioLog) -> None:
    require_field(log.first("conversation_reset"), "new_conversation_id", "s")
    last = log.main_requests()[-1]
    need(
        "anew" in str(last["messages"]) and "SUMMARY-OF-THINGS" not in str(last["messages"]),
        str(last["messages"])[:500],
    )
    need(len(log.all("result")) == 6, f"{len(log.all('result'))} results")
