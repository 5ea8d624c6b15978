"""Two turns in one process, stream events, and conversations without the usual beginning."""

from __future__ import annotations

import re

from parley.conformance.conditions import (
    answered,
    ends_with,
    exits_with,
    hook_called,
    last_request,
    line_has,
    lines_are,
    lines_have,
    require_field,
    told,
    tool_says,
)
from parley.conformance.driver import BYPASS, MODEL, SECRET, EngineDriver, bash, say
from parley.conformance.registry import check, fields, scenario
from parley.conformance.scenario_log import ScenarioLog, need

TEXT = "Grüße aus Zürich — ✓ 你好"
THOUGHT = "A greeting is wanted."
CACHE_MARKER = re.compile(r", 'cache_control': \{[^}]*\}")
USAGE = {"input_tokens": 1200, "output_tokens": 34}
TWO_TURNS = "traces 004 and 005"


INIT = {
    "init.session_id+uuid": "session_id:s", "init.cwd": "cwd:s", "init.model": "model:s", "init.tools": "tools:a",
    "init.mcp_servers": "mcp_servers:a", "init.permissionMode": "permissionMode:s",
    "init.claude_code_version": "claude_code_version:s", "init.slash_commands": "slash_commands:a",
    "init.agents": "agents:a", "init.skills": "skills:a", "init.plugins": "plugins:a",
    "init.apiKeySource": "apiKeySource:s", "init.output_style": "output_style:s", "init.betas": "betas:a?",
    "init.capabilities": "capabilities:a", "init.plugin_errors": "plugin_errors:a?",
    "init.terminal_slash_commands": "terminal_slash_commands:a?",
    "init.fast_mode_state+fast_mode_disabled_reason": "fast_mode_state:s?",
}  # fmt: skip
ASSISTANT = {
    "assistant.message": "message:o", "assistant.message.id": "message.id:s",
    "assistant.message.type": "message.type:s", "assistant.message.role": "message.role:s",
    "assistant.message.model": "message.model:s", "assistant.message.content": "message.content:a",
    "assistant.message.stop_reason": "message.stop_reason:s0",
    "assistant.message.stop_sequence": "message.stop_sequence:s0", "assistant.message.usage": "message.usage:o",
    "assistant.session_id": "session_id:s", "assistant.uuid": "uuid:s",
    "assistant.parent_tool_use_id": "parent_tool_use_id:s0", "assistant.thinkingMetadata": "thinkingMetadata:o?",
    "assistant.todos": "todos:a?",
}  # fmt: skip
RESULT = {
    "result.is_error": "is_error:b", "result.duration_ms": "duration_ms:n",
    "result.duration_api_ms": "duration_api_ms:n", "result.session_id": "session_id:s", "result.uuid": "uuid:s",
    "result.permission_denials": "permission_denials:a", "result.origin": "origin:o?",
    "result.deferred_tool_use": "deferred_tool_use:o0?",
}  # fmt: skip


def init_first(log: ScenarioLog) -> None:
    kinds = ["init" if line.get("subtype") == "init" else line["type"] for line in log.received()]
    kept = [kind for kind in kinds if kind in ("init", "assistant", "result")]
    starts = [kept[0:1], kept[kept.index("result") + 1 :][:1] if "result" in kept else []]
    need(starts == [["init"], ["init"]] and kept.count("init") == 2, kept)


def thinking(log: ScenarioLog) -> None:
    blocks = log.blocks("thinking")
    need(len(blocks) == 1 and blocks[0].get("thinking") == THOUGHT, f"{blocks}; {log.summary()}")
    require_field(blocks[0], "signature", "s")


def usage(log: ScenarioLog) -> None:
    log.nth("result", 1)
    for line in log.all("result"):
        found = require_field(line, "usage", "o")
        need({key: found.get(key) for key in USAGE} == USAGE, found)
        for name in ("cache_creation_input_tokens", "cache_read_input_tokens"):
            require_field(found, name, "n")


def cost(log: ScenarioLog) -> None:
    log.nth("result", 1)
    first, second = (require_field(line, "total_cost_usd", "n") for line in log.all("result"))
    need(0 < first < second, (first, second))


def model_usage(log: ScenarioLog) -> None:
    found = require_field(log.last("result"), "modelUsage", "o")
    entry = next((value for key, value in found.items() if key.startswith(MODEL)), None)
    need(isinstance(entry, dict), found)
    assert isinstance(entry, dict)
    for name in ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "costUSD"):
        require_field(entry, name, "n")
    need(entry["inputTokens"] >= USAGE["input_tokens"], entry)


def order(log: ScenarioLog) -> None:
    wanted = ["control_response", "system/init", "assistant", "result"]
    kinds = [entry.kind for entry in log.entries if not entry.sent and entry.kind in wanted]
    short = [kind for place, kind in enumerate(kinds) if not place or kinds[place - 1] != kind]
    need(short == [*wanted, *wanted[1:]], short)


def prefix(log: ScenarioLog) -> None:
    first, second = log.main_requests()[:2]
    for field in ("system", "tools", "messages"):
        before, after = (
            [CACHE_MARKER.sub("", str(part)) for part in body.get(field) or ()] for body in (first, second)
        )
        need(after[: len(before)] == before, f"`{field}` has changed")
    need(THOUGHT in str(second["messages"]), "the thinking of the first answer is missing")


def version(log: ScenarioLog) -> None:
    text = str(log.first("system/init").get("claude_code_version"))
    parts = text.split(" ", maxsplit=1)[0].split(".")
    need(len(parts) == 3 and all(part.isdigit() for part in parts) and int(parts[0]) >= 2, text)


def init_values(log: ScenarioLog) -> None:
    line = log.first("system/init")
    tools = line.get("tools")
    need(isinstance(tools, list) and all(isinstance(name, str) for name in tools), tools)
    need({"Read", "Bash"} <= set(tools or ()), tools)
    need(str(line.get("model")).startswith(MODEL), line.get("model"))
    need(line.get("permissionMode") == "default", line.get("permissionMode"))


def model_flag(log: ScenarioLog) -> None:
    models = [body.get("model") for body in log.main_requests()]
    need(models and all(str(name).startswith(MODEL) for name in models), models)


@scenario(
    "two-turns",
    *fields("system/init", TWO_TURNS, INIT),
    *fields("assistant", TWO_TURNS, ASSISTANT),
    *fields("result", TWO_TURNS, RESULT),
    *fields("control_response", "trace 004",
        {
            "initialized.commands": "response.response.commands:a",
            "initialized.output_style+available_output_styles": "response.response.output_style:s",
            "initialized.hook_on_failure_supported": "response.response.hook_on_failure_supported:b",
        },
    ),
    check("turn.one-result out.result result.type in.user flag.input-format", TWO_TURNS,
          "exactly one `result` for each of two prompts", lines_are("result", 2)),
    check("turn.init-first out.system/init", "traces README, fact 1",
          "`system/init` at the start of each turn, before its other lines", init_first),
    check("turn.text out.assistant block.text assistant.type flag.output-format framing.Line-one-JSON-object",
          TWO_TURNS,
          f"the assistant lines have the texts of the model: {TEXT!r}, then 'Second answer.'",
          lambda log: need(log.texts() == [TEXT, "Second answer."], log.texts())),
    check("block.thinking", "trace 007; messages.md §5.1", "a thinking block has `thinking` and `signature`", thinking),
    check("result.result", TWO_TURNS, "`result` is the final text of its own turn",
          lines_have("result", "result", [TEXT, "Second answer."])),
    check("result.subtype", TWO_TURNS, "`success`, with `is_error` false, for both turns",
          lines_have("result", "subtype", ["success", "success"]), lines_have("result", "is_error", [False, False])),
    check("result.usage", "messages.md §7; traces README, fact 7",
          f"the tokens of the turn's own model call: {USAGE['input_tokens']} in, {USAGE['output_tokens']} out", usage),
    check("result.total_cost_usd", "traces README, fact 7",
          "a positive cost for a known model, which grows from turn to turn", cost),
    check("result.modelUsage", "messages.md §7",
          f"an entry for {MODEL} with inputTokens, outputTokens, costUSD and contextWindow", model_usage),
    check("result.num_turns", TWO_TURNS,
          "1 for a turn with one model call", line_has("result", 1), lines_have("result", "num_turns", [1, 1])),
    check("result.stop_reason", TWO_TURNS, "`end_turn`", ends_with(stop_reason="end_turn")),
    check("result.terminal_reason", TWO_TURNS, "`completed`", ends_with(terminal_reason="completed")),
    check("turn.order out.control_response request.initialize flag.verbose", "traces README, fact 1",
          "nothing before the answer to initialize; then system/init, assistant, result", order),
    check("turn.content-forms user.type user.message.role user.message.content", "messages.md §4",
          "a prompt reaches the model, as a string and as a list of blocks",
          told("The first prompt", "The second prompt")),
    check("turn.memory in.user", TWO_TURNS, "the second request repeats the first turn",
          last_request("The first prompt", TEXT)),
    check("turn.prefix in.user", "claude-code issues 88444 and 77306",
          "the second request begins with the first, except for cache markers, and has the thinking of its answer",
          prefix),
    check("init.version init.claude_code_version", "cli.md §5",
          "`claude_code_version` begins with three numbers, at least 2.0.0", version),
    check("init.values init.cwd init.model init.tools init.permissionMode tool_fact.system/init.tools", TWO_TURNS,
          f"tools are names, among them Read and Bash; the model is {MODEL}; the mode is `default`", init_values),
    check("init.key-source init.apiKeySource env.ANTHROPIC_API_KEY", "trace 004",
          "`apiKeySource` is ANTHROPIC_API_KEY, and the key itself is nowhere",
          line_has("system/init", apiKeySource="ANTHROPIC_API_KEY"),
          lambda log: need(SECRET not in str(log.first("system/init")), "the key is in system/init")),
    check("flag.model", "trace 107", f"the requests name {MODEL}", model_flag),
    check("exit.turn-s-done-stdin-EOF exit.non-zero-exit-after-a-good-result silence.close", "cli.md §4",
          "the process stays after a result, and ends with 0 at the end of its input",
          line_has("result", 1), exits_with(0)),
    check("stream_event.unasked flag.include-partial-messages", "messages.md §6",
          "no stream events without --include-partial-messages", line_has("result"), lines_are("stream_event", 0)),
    check("user.session_id", "traces README, fields",
          "the session id that the client sent with a prompt ('default') is not used",
          lambda log: need(log.first("result").get("session_id") != "default", "session_id is 'default'")),
)  # fmt: skip
async def two_turns(engine: EngineDriver) -> None:
    """A prompt as a string, then one as a list of blocks."""
    engine.model.play(say(TEXT, thinking=THOUGHT, usage=USAGE), say("Second answer.", usage=USAGE))
    await engine.begin("The first prompt")
    await engine.result()
    engine.user([{"type": "text", "text": "The second prompt"}])
    await engine.result()
    await engine.finish()


# Stream events.


def event_order(log: ScenarioLog) -> None:
    kinds = [str(line["event"].get("type")) for line in log.all("stream_event") if isinstance(line.get("event"), dict)]
    kinds = [kind for kind in kinds if kind != "ping"]
    need(kinds[:1] == ["message_start"] and kinds[-2:] == ["message_delta", "message_stop"], kinds or log.summary())
    inner = [kind.removeprefix("content_block_") for kind in kinds[1:-2]]
    open_blocks = 0
    for kind in inner:
        open_blocks += {"start": 1, "stop": -1}.get(kind, 0)
        need(open_blocks in (0, 1), kinds)
    need(open_blocks == 0 and inner.count("start") == 2, kinds)


def deltas_join(log: ScenarioLog) -> None:
    deltas = [line["event"].get("delta") or {} for line in log.all("stream_event") if isinstance(line["event"], dict)]
    joined = "".join(str(delta.get("text", "")) for delta in deltas if delta.get("type") == "text_delta")
    need(joined, f"no text deltas; {log.summary()}")
    need(log.texts() == [joined], {"deltas": joined, "assistant": log.texts()})
    thought = "".join(str(delta.get("thinking", "")) for delta in deltas if delta.get("type") == "thinking_delta")
    need(thought == THOUGHT, thought)


@scenario(
    "stream-events",
    *fields("stream_event", "trace 007",
        {
            "stream_event.event": "event:o", "stream_event.session_id": "session_id:s", "stream_event.uuid": "uuid:s",
            "stream_event.parent_tool_use_id": "parent_tool_use_id:s0",
        },
    ),
    check("stream_event.type out.stream_event flag.include-partial-messages", "trace 007",
          "message_start, then blocks with start, deltas and stop, then message_delta and message_stop", event_order),
    check("stream_event.deltas out.stream_event", "users.md U-9.5",
          "the deltas of a block, joined, are the block of the assistant line", deltas_join),
)  # fmt: skip
async def stream_events(engine: EngineDriver) -> None:
    """Thinking, a text in several deltas and a tool call, with --include-partial-messages."""
    engine.model.play(
        say("A first text that is long enough for several deltas of the stream.", thinking=THOUGHT, chunk_chars=12),
        say("Second."),
    )
    await engine.turn("go", "--include-partial-messages")


# Other beginnings.


@scenario(
    "no-initialize",
    check("turn.without-initialize in.user", "trace 006",
          "a prompt without a handshake is answered", ends_with(result="Hello.")),
)  # fmt: skip
async def no_initialize(engine: EngineDriver) -> None:
    """The first line is a prompt."""
    engine.model.play(say("Hello."))
    await engine.start()
    engine.user("hi")
    await engine.result()
    await engine.finish()


@scenario(
    "pipelined",
    *fields("control_response", "trace 054",
        {"initialized.hooks_applied": "response.response.hooks_applied:b"},
    ),
    check("turn.pipelined in.control_request initialize.hooks initialize.protocolVersion+features", "control.md §2",
          "a prompt written before the answer to initialize already has its hooks",
          answered("initialize"), hook_called("PreToolUse"), ends_with(result="Hello.")),
)  # fmt: skip
async def pipelined(engine: EngineDriver) -> None:
    """initialize and a prompt are written together; the input ends at once."""
    engine.model.play(bash("echo hi"), say("Hello."))
    hooks = {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["hook_0"]}]}
    engine.on("hook_callback", {})
    await engine.start(*BYPASS)
    engine.request("initialize", hooks=hooks, protocolVersion="1.0", features=[])
    engine.user("hi")
    await engine.result()
    await engine.finish()


@scenario(
    "early-end-of-input",
    check("turn.end-of-input exit.turn-s-done-stdin-EOF", "trace 098; control.md §2",
          "the turn runs to its end after the end of input, then the process ends with 0",
          ends_with(result="Finished anyway."), tool_says("toolu_early", "slept"), exits_with(0)),
)  # fmt: skip
async def early_end(engine: EngineDriver) -> None:
    """The input ends right after the prompt, as the Python SDK does it."""
    engine.model.play(bash("sleep 0.3; echo slept", "toolu_early"), say("Finished anyway."))
    await engine.begin("go", *BYPASS)
    engine.close_input()
    await engine.result()
    await engine.finish()
