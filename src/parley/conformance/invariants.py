"""What holds in every scenario, whatever it is about."""

from __future__ import annotations

from collections.abc import Callable

from parley.conformance.driver import SECRET
from parley.conformance.scenario_log import Mismatch, ScenarioLog, content_blocks, kind_of, need, shown

LINE_LIMIT_CHARS = 1 << 20
"""The longest line that the official Python SDK reads by default."""
REQUIRED = ("subtype", "is_error", "duration_ms", "duration_api_ms", "num_turns", "session_id")
PLAIN = ("print-text", "prompt-on-stdin", "version", "open-stdin", "failed-run", "dialect-")
"""Scenarios whose output is not in stream-json."""


def in_stream_json(judge: Callable[[ScenarioLog], None]) -> Callable[[ScenarioLog], None]:
    """Judge only scenarios whose output is in stream-json."""
    return lambda log: None if log.scenario.startswith(PLAIN) else judge(log)


@in_stream_json
def json_lines(log: ScenarioLog) -> None:
    for entry in log.entries:
        need(entry.sent or entry.message is not None, entry.raw)


def line_length(log: ScenarioLog) -> None:
    longest = max((len(entry.raw) for entry in log.entries if not entry.sent), default=0)
    need(longest < LINE_LIMIT_CHARS, f"a line of {longest} characters")


@in_stream_json
def one_session_id(log: ScenarioLog) -> None:
    for received in log.received_by_run():
        lines = [line for line in received if not str(line.get("type")).startswith("control_")]
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


@in_stream_json
def own_uuid(log: ScenarioLog) -> None:
    wanted = ("system", "assistant", "user", "result", "stream_event")
    for received in log.received_by_run():
        lines = [line for line in received if line.get("type") in wanted]
        for line in lines:
            need(isinstance(line.get("uuid"), str), f"`{kind_of(line)}` without uuid: {shown(line)}")
        ids = [line["uuid"] for line in lines if not line.get("isReplay")]
        need(len(ids) == len(set(ids)), f"{len(ids) - len(set(ids))} uuids are used twice")


def no_secret(log: ScenarioLog) -> None:
    for entry in log.entries:
        need(entry.sent or SECRET not in entry.raw, f"the key is in a line `{entry.kind}`")
    need(SECRET not in log.stderr, "the key is on stderr")


def no_leftovers(log: ScenarioLog) -> None:
    need(not log.leftovers, f"still running: {log.leftovers}")


@in_stream_json
def control_answers(log: ScenarioLog) -> None:
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


@in_stream_json
def tool_pairs(log: ScenarioLog) -> None:
    if log.scenario in UNPAIRED:
        return
    for received in log.received_by_run():
        calls: list[str] = []
        results: list[str] = []
        for line in received:
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


def asks_in_order(log: ScenarioLog) -> None:
    seen: set[str] = set()
    for line in log.received():
        seen |= {str(block.get("id")) for block in content_blocks(line) if block["type"] == "tool_use"}
        if kind_of(line) == "control_request/can_use_tool":
            request = line["request"]
            need(request.get("tool_use_id") in seen, f"asked before its tool_use line: {shown(request)}")


@in_stream_json
def no_error_line(log: ScenarioLog) -> None:
    for line in log.received():
        need(line.get("type") not in ("error", "end"), line)
    need(not log.asked("sdk_control_interrupt"), "sdk_control_interrupt was sent")


@in_stream_json
def result_last(log: ScenarioLog) -> None:
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


@in_stream_json
def lists(log: ScenarioLog) -> None:
    for line in log.all("assistant"):
        message = line.get("message")
        need(isinstance(message, dict) and isinstance(message.get("content"), list), shown(line))
        need(isinstance(message, dict) and isinstance(message.get("model"), str), shown(line))


@in_stream_json
def result_fields(log: ScenarioLog) -> None:
    for line in log.all("result"):
        missing = [name for name in REQUIRED if name not in line]
        need(not missing, f"without {missing}: {shown(line)}")
        need(line["is_error"] or isinstance(line.get("result"), str), f"a good result without text: {shown(line)}")
