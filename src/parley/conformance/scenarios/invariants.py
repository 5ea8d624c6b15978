"""What holds in every scenario, whatever it is about."""

from __future__ import annotations

from collections.abc import Callable

from parley.conformance.driver import SECRET
from parley.conformance.registry import BehaviourCheck, Judge, add_check
from parley.conformance.scenario_log import Mismatch, ScenarioLog, content_blocks, kind_of, need, shown

LINE_LIMIT_CHARS = 1 << 20
"""The longest line that the official Python SDK reads by default."""
EVERY = "*"
"""The scenario of an invariant: all of them."""
PLAIN = ("print-text", "prompt-on-stdin", "version", "dialect-")
"""Scenarios whose output is not in stream-json."""


def invariant(id: str, *rows: str, expects: str, basis: str) -> Callable[[Judge], Judge]:
    def add(judge: Judge) -> Judge:
        add_check(BehaviourCheck(id=id, rows=rows, scenario=EVERY, expects=expects, basis=basis, judge=judge))
        return judge

    return add


def is_plain(log: ScenarioLog) -> bool:
    return log.scenario.startswith(PLAIN)


@invariant(
    "every.json-lines", "framing.Line-one-JSON-object", "framing.Non-JSON-on-stdout", "framing.bad-JSON",
    expects="every line on stdout is one JSON object", basis="messages.md §1; users.md U-1.4",
)  # fmt: skip
def json_lines(log: ScenarioLog) -> None:
    if not is_plain(log):
        for entry in log.entries:
            need(entry.sent or entry.message is not None, entry.raw)


@invariant(
    "every.line-length", "framing.Max-line-length", expects="no line is longer than 1 MiB", basis="messages.md §1"
)
def line_length(log: ScenarioLog) -> None:
    longest = max((len(entry.raw) for entry in log.entries if not entry.sent), default=0)
    need(longest < LINE_LIMIT_CHARS, f"a line of {longest} characters")


@invariant(
    "every.session-id", "result.session_id", "assistant.session_id", "init.session_id+uuid",
    expects="all lines of a process have one session id, a uuid; control messages have none",
    basis="traces README, fields",
)  # fmt: skip
def one_session_id(log: ScenarioLog) -> None:
    if is_plain(log):
        return
    for number in range(len(log.runs)):
        lines = [line for line in log.received(number) if not str(line.get("type")).startswith("control_")]
        reset = any(line.get("type") == "conversation_reset" for line in lines)
        ids = [
            str(line.get("session_id")) for line in lines if line.get("type") not in ("keep_alive", "transcript_mirror")
        ]
        need(
            "None" not in ids,
            f"a line without session_id: {shown(next((x for x in lines if 'session_id' not in x), {}))}",
        )
        need(len(set(ids)) <= (2 if reset else 1), f"several session ids: {sorted(set(ids))}")
        need(all(len(each) == 36 for each in ids), f"a session id that is not a uuid: {ids[:1]}")


@invariant(
    "every.uuid", "assistant.uuid", "result.uuid", "user.uuid", "stream_event.uuid",
    expects="every line except control messages has a uuid of its own", basis="traces README, fields",
)  # fmt: skip
def own_uuid(log: ScenarioLog) -> None:
    if is_plain(log):
        return
    wanted = ("system", "assistant", "user", "result", "stream_event")
    for number in range(len(log.runs)):
        lines = [line for line in log.received(number) if line.get("type") in wanted]
        for line in lines:
            need(isinstance(line.get("uuid"), str), f"`{kind_of(line)}` without uuid: {shown(line)}")
        ids = [line["uuid"] for line in lines if not line.get("isReplay")]
        need(len(ids) == len(set(ids)), f"{len(ids) - len(set(ids))} uuids are used twice")


@invariant(
    "every.no-secret", "env.ANTHROPIC_API_KEY", expects="the API key is not on stdout or stderr",
    basis="users.md §13, U-14.2",
)  # fmt: skip
def no_secret(log: ScenarioLog) -> None:
    for entry in log.entries:
        need(entry.sent or SECRET not in entry.raw, f"the key is in a line `{entry.kind}`")
    need(SECRET not in log.stderr, "the key is on stderr")


@invariant("every.no-leftovers", "silence.close", expects="no process survives the engine", basis="users.md U-6.1")
def no_leftovers(log: ScenarioLog) -> None:
    need(not log.leftovers, f"still running: {log.leftovers}")


@invariant(
    "every.control-answers", "envelope.success", "envelope.error", "out.control_response", "in.control_request",
    expects="every control request is answered once, with its own id inside `response`", basis="control.md §1",
)  # fmt: skip
def control_answers(log: ScenarioLog) -> None:
    if is_plain(log):
        return
    requests = [entry.message for entry in log.entries if entry.sent and entry.kind.startswith("control_request")]
    sent = {message.get("request_id") for message in requests if message is not None}
    answered = []
    for line in log.all("control_response"):
        response = line.get("response")
        need(isinstance(response, dict) and "request_id" in response, f"no request_id inside `response`: {shown(line)}")
        assert isinstance(response, dict)
        need(response["request_id"] in sent, f"an answer to a request that was not sent: {shown(line)}")
        need(response.get("subtype") in ("success", "error"), shown(line))
        need(response["subtype"] != "error" or isinstance(response.get("error"), str), shown(line))
        answered.append(response["request_id"])
    need(len(answered) == len(set(answered)), f"a request was answered twice: {answered}")
    need(set(answered) == sent, f"{len(sent - set(answered))} without an answer; {log.summary()}")


@invariant(
    "every.tool-pairs", "out.user", "block.tool_use", "block.tool_result", "tool_fact.parallel-calls",
    "user.parent_tool_use_id",
    expects="a tool result names a call that came before it, and each call has one result",
    basis="messages.md §4; traces README, fact 6",
)  # fmt: skip
def tool_pairs(log: ScenarioLog) -> None:
    if is_plain(log) or log.scenario in UNPAIRED:
        return
    for number in range(len(log.runs)):
        calls: list[str] = []
        results: list[str] = []
        for line in log.received(number):
            for block in content_blocks(line):
                if block["type"] == "tool_use" and line["type"] == "assistant":
                    calls.append(str(block.get("id")))
                elif block["type"] == "tool_result":
                    need(block.get("tool_use_id") in calls, f"a result of no call: {shown(block)}")
                    results.append(str(block["tool_use_id"]))
        need(len(results) == len(set(results)), f"a call has two results: {results}")
        need(log.missed or sorted(results) == sorted(set(calls)), f"calls {calls}, results {results}")


UNPAIRED = ("max-budget", "hook-defer")
"""A deferred call has no result yet. The recorded engine also leaves out that of a call that exceeds the budget."""


@invariant(
    "every.asks-in-order", "ask.can_use_tool", "can_use_tool.tool_use_id",
    expects="can_use_tool comes after the tool_use line that it is about", basis="users.md §3, trap 7",
)  # fmt: skip
def asks_in_order(log: ScenarioLog) -> None:
    seen: set[str] = set()
    for line in log.received():
        seen |= {str(block.get("id")) for block in content_blocks(line) if block["type"] == "tool_use"}
        if kind_of(line) == "control_request/can_use_tool":
            request = line["request"]
            need(request.get("tool_use_id") in seen, f"asked before its tool_use line: {shown(request)}")


@invariant(
    "every.no-error-line", "top.error", "out.error", "ask.sdk_control_interrupt",
    expects="no top-level `error` line and no sdk_control_interrupt: both end clients", basis="messages.md §9, §12",
)  # fmt: skip
def no_error_line(log: ScenarioLog) -> None:
    if not is_plain(log):
        for line in log.received():
            need(line.get("type") not in ("error", "end"), line)
        need(not log.asked("sdk_control_interrupt"), "sdk_control_interrupt was sent")


@invariant(
    "every.result-last", "out.result", expects="after a `result`, no assistant line before the next `system/init`",
    basis="messages.md §11",
)  # fmt: skip
def result_last(log: ScenarioLog) -> None:
    if is_plain(log):
        return
    for number in range(len(log.runs)):
        is_over = False
        for line in log.received(number):
            kind = kind_of(line)
            if kind in ("system/init", "system/status"):
                is_over = False
            elif kind == "result":
                if is_over:
                    raise Mismatch(f"two results in a row; {log.summary(number)}")
                is_over = True
            elif kind == "assistant" and is_over and line.get("parent_tool_use_id") is None:
                raise Mismatch(f"an assistant line after its result; {log.summary(number)}")


@invariant(
    "every.lists", "assistant.message.content", "assistant.message.model",
    expects="the content of every assistant line is a list, and its message names a model", basis="messages.md §12",
)  # fmt: skip
def lists(log: ScenarioLog) -> None:
    if is_plain(log):
        return
    for line in log.all("assistant"):
        message = line.get("message")
        need(isinstance(message, dict) and isinstance(message.get("content"), list), shown(line))
        need(isinstance(message, dict) and isinstance(message.get("model"), str), shown(line))


@invariant(
    "every.result-fields", "result.subtype", "result.is_error", "result.duration_ms", "result.duration_api_ms",
    "result.num_turns", "result.session_id",
    expects="every result has the six fields without which the official Python SDK raises", basis="messages.md §7",
)  # fmt: skip
def result_fields(log: ScenarioLog) -> None:
    if is_plain(log):
        return
    for line in log.all("result"):
        missing = [name for name in ("subtype", "is_error", "duration_ms", "duration_api_ms", "num_turns", "session_id")
                   if name not in line]  # fmt: skip
        need(not missing, f"without {missing}: {shown(line)}")
        need(line["is_error"] or isinstance(line.get("result"), str), f"a good result without text: {shown(line)}")
