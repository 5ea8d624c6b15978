"""The other dialects of the protocol: spec 001 (B), miriad stdio (C) and JSON-RPC run (D).

Few engines speak them. One that refuses the flags is not judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from parley.conformance.conditions import exits_with, first_line, line_has, require_field
from parley.conformance.driver import EngineDriver, Missed, bash, say, use
from parley.conformance.registry import Play, Row, check, scenario
from parley.conformance.scenario_log import ScenarioLog, need
from parley.protocol.base import Json

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
SPEC = ("--dialect", "spec001")
STDIO = ("--stdio", "--db", "agent.db")


def dialect_scenario(name: str, *rows: Row) -> Callable[[Play], Play]:
    """A scenario that is skipped if the engine ends without a word, because it does not have the dialect."""

    def add(play: Play) -> Play:
        async def play_or_skip(engine: EngineDriver) -> None:
            try:
                await play(engine)
            except Missed:
                if engine.log.received() or not engine.has_ended:
                    raise
            if not engine.log.received():
                engine.log.skipped = "the engine does not have this dialect: it ended without a line"

        scenario(name, *rows)(play_or_skip)
        return play

    return add


def user(text: str, **fields: object) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}, **fields}


# Dialect B.


def b_init(log: ScenarioLog) -> None:
    line = log.first("system/init")
    need(TIME.fullmatch(str(line.get("timestamp"))), line.get("timestamp"))
    tool = (line.get("tools") or [{}])[0]
    need(isinstance(tool, dict) and {"name", "description", "input_schema"} <= set(tool), tool)


def b_times(log: ScenarioLog) -> None:
    for kind in ("assistant", "user", "stream_event", "result"):
        need(TIME.fullmatch(str(log.first(kind).get("timestamp"))), log.first(kind))


def b_permission(log: ScenarioLog) -> None:
    line = log.first("system/permission_request")
    need(line.get("tool") == "Bash" and isinstance(line.get("params"), dict), line)
    need("x.txt" not in log.files, "the command ran")


def b_tokens(log: ScenarioLog) -> None:
    for name in ("input_tokens", "output_tokens"):
        require_field(log.last("result"), name, "n")


@dialect_scenario(
    "dialect-b",
    check("dialect.session-start init.timestamp", "seed 001; dialects.md §1",
          "system/init has `timestamp` and tools as objects with name, description and input_schema", b_init),
    check("dialect.b-time assistant.timestamp user.timestamp stream_event.timestamp result.timestamp", "seed 001",
          "every line has a `timestamp`", b_times),
    check("system.permission_request_B out.system/permission_request_B", "seed 001",
          "a call that no one may allow is announced with `tool` and `params`, and does not run", b_permission),
    check("system.hook_execution_B out.system/hook_execution_B", "dialects.md §7, S8",
          "a hook that ran is a line with hook_event, hook_name and outcome",
          first_line("system/hook_execution", "hook_event:s", "hook_name:s", "outcome:s")),
    check("result.input_tokens+output_tokens", "seed 001",
          "the result has input_tokens and output_tokens at the top level", b_tokens),
)  # fmt: skip
async def dialect_b(engine: EngineDriver) -> None:
    """One prompt with a command that no one may allow, and one hook."""
    engine.model.play(bash("touch x.txt", "toolu_b"), say("done"))
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}]}}
    await engine.start(
        *SPEC, "--settings", json.dumps(settings), "--print", "--output-format", "stream-json", "--verbose", "--", "go",
        stream=False, stdin=False,
    )  # fmt: skip
    await engine.wait_end()
    engine.keep("x.txt")


def b_error(log: ScenarioLog) -> None:
    line = log.last("result")
    need(line.get("subtype") == "error", line)
    need(require_field(line, "error.type", "s") == "api_error", line)
    require_field(line, "error.message", "s")
    need(log.exit_code not in (0, None), f"exit code {log.exit_code}")


@dialect_scenario(
    "dialect-b-error",
    check("result.error out.system/error_B system.error", "seed 001; dialects.md §2",
          "subtype `error` with error{type: api_error, message}; exit code not 0", b_error),
)  # fmt: skip
async def dialect_b_error(engine: EngineDriver) -> None:
    engine.model.fail(403, "permission_error", "You may not use this model")
    await engine.one_shot(*SPEC, "--print", "--output-format", "stream-json", "--verbose", "--", "go")


# Dialect C.


def c_tool_result(log: ScenarioLog) -> None:
    block = require_field(log.first("system/tool_result"), "tool_result", "o")
    need(block.get("tool_use_id") == "toolu_c" and "alpha" in str(block.get("content")), block)
    need([call.get("name") for call in log.blocks("tool_use")][:1] == ["read"], log.blocks("tool_use"))


def c_injected(log: ScenarioLog) -> None:
    line = log.first("system/injected")
    need(line.get("message_count") == 1 and line.get("content_length") == len("INJECTED-TEXT"), line)
    need(log.told_model("INJECTED-TEXT") and len(log.all("result")) == 1, log.summary())


@dialect_scenario(
    "dialect-c",
    check("flag.stdio flag.db in.control_C out.system/status_C system.status_C", "seed 002",
          "control/status is answered by system/status with running, session_id and queued_messages",
          first_line("system/status", "running:b", "session_id:s", "queued_messages:n")),
    check("system.tool_result_C out.system/tool_result_C dialect.tool-result", "seed 002",
          "a result is system/tool_result{tool_result{tool_use_id, content}}, of a tool with a lower-case name",
          c_tool_result),
    check("system.queued_C out.system/queued_C dialect.prompt-while-busy", "seed 002",
          "a prompt during a turn is acknowledged: system/queued with session_id and position 1",
          line_has("system/queued", position=1, session_id="mine")),
    check("system.injected_C out.system/injected_C", "seed 002",
          "it joins the running turn: system/injected with message_count and content_length, and one result",
          c_injected),
    check("dialect.bad-input-line system.error", "seed 002",
          "a line that is not JSON is answered by system/error with a message",
          first_line("system/error", "message:s"), exits_with(0)),
)  # fmt: skip
async def dialect_c(engine: EngineDriver) -> None:
    """A command, with a prompt and a status request while it runs."""
    engine.put({"a.txt": "alpha\n"})
    engine.model.play(
        use("Read", {"file_path": str(engine.cwd / "a.txt")}, "toolu_c"), bash("sleep 1", "toolu_s"),
        say("done"),
    )  # fmt: skip
    await engine.start(*STDIO, stream=False)
    engine.send({"type": "control", "action": "status"})
    await engine.line("system/status")
    engine.send(user("go", session_id="mine"))
    await engine.line("system/tool_result")
    engine.send(user("INJECTED-TEXT", session_id="mine"))
    await engine.line("system/queued")
    await engine.result()
    engine.send("this is not JSON")
    await engine.line("system/error")
    await engine.finish()


# Dialect D.


def d_run(log: ScenarioLog) -> None:
    lines = [line for line in log.received() if line.get("id") == 1]
    need(lines and all(line.get("jsonrpc") == "2.0" for line in lines), log.received()[:3])
    need((lines[-1].get("result") or {}).get("type") == "result", lines[-1])
    need("done" in str(lines[-1]) or "done" in str(lines[-2]), lines[-2:])


def d_errors(log: ScenarioLog) -> None:
    codes = {line.get("id"): (line.get("error") or {}).get("code") for line in log.received() if "error" in line}
    need(codes == {2: -32001, 3: -32601}, codes)


@dialect_scenario(
    "dialect-d",
    check("out.JSON-RPC-response-D-_D in.JSON-RPC-request-D-_D dialect.turn-end", "seed 000",
          "every event is a response with the id of the run; the last one has the result", d_run),
    check("dialect.d-errors in.JSON-RPC-request-D-_D", "seed 000; dialects.md §4",
          "a second run is refused with -32001, an unknown method with -32601", d_errors),
)  # fmt: skip
async def dialect_d(engine: EngineDriver) -> None:
    """A run, a second one in between, and an unknown method."""
    engine.model.play(bash("sleep 0.6", "toolu_d"), say("done"))
    await engine.start(*STDIO, stream=False)
    engine.send({"jsonrpc": "2.0", "id": 1, "method": "run", "params": {"prompt": "go"}})
    await engine.until(lambda line: "tool_use" in str(line), "a tool call")
    engine.send({"jsonrpc": "2.0", "id": 2, "method": "run", "params": {"prompt": "again"}})
    engine.send({"jsonrpc": "2.0", "id": 3, "method": "nosuch"})
    await engine.until(lambda line: (line.get("result") or {}).get("type") == "result", "the result of the run")
    await engine.finish()
