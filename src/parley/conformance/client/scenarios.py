"""What the fake engine plays, and what is expected of the client.

The client's command runs one prompt and ends: with 0 if the turn succeeded, with another code if it did not. It may
answer permission requests, or refuse them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.conformance.scenario_log import Mismatch, need
from parley.protocol.base import Json, Struct

Step = list[Any]
ANSWER = "CONFORM-ANSWER-42"
MEGABYTES = "x" * (2 << 20)


class ClientLog(Struct, kw_only=True):
    """What the fake engine received, and what became of the client."""

    argv: list[str] = []
    received: list[Json] = []
    missed: list[str] = []
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    """None if it had to be killed."""
    has_eof: bool = False
    """Whether the client closed the engine's input."""

    def of(self, kind: str) -> list[Json]:
        return [message for message in self.received if message.get("type") == kind]

    def summary(self) -> str:
        kinds = [str(message.get("type")) for message in self.received]
        ended = "killed at the deadline" if self.exit_code is None else f"exit code {self.exit_code}"
        tail = self.stderr.strip().splitlines()[-1:] or [""]
        return f"the client sent {', '.join(kinds) or 'nothing'}; {ended}; {tail[0][:200]}"


class ClientCheck(Struct, frozen=True, kw_only=True):
    """A scenario and what is expected of the client in it."""

    id: str
    rows: tuple[str, ...]
    expects: str
    basis: str
    steps: list[Step]
    judge: Callable[[ClientLog], None]


def system_init() -> Step:
    return ["send", {
        "type": "system", "subtype": "init", "cwd": "/", "session_id": "{session}", "uuid": "{id}", "tools": ["Bash"],
        "mcp_servers": [], "model": "claude-sonnet-4-5", "permissionMode": "default", "slash_commands": [],
        "apiKeySource": "none", "output_style": "default", "agents": [], "skills": [], "plugins": [],
        "claude_code_version": "2.1.327",
    }]  # fmt: skip


def assistant(*blocks: Json) -> Step:
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": list(blocks),
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    line = {"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": "{session}"}
    return ["send", {**line, "uuid": "{id}"}]


def text(words: str) -> Step:
    return assistant({"type": "text", "text": words})


def result(words: str = ANSWER, **fields: Any) -> Step:
    return ["send", {
        "type": "result", "subtype": "success", "is_error": False, "duration_ms": 5, "duration_api_ms": 3,
        "num_turns": 1, "result": words, "session_id": "{session}", "uuid": "{id}", "total_cost_usd": 0.01,
        "usage": {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0},
        "modelUsage": {}, "permission_denials": [], "stop_reason": "end_turn", **fields,
    }]  # fmt: skip


def turn(*between: Step) -> list[Step]:
    """A whole turn, with steps before its answer."""
    return [["prompt"], system_init(), *between, text(ANSWER), result(), ["eof"]]


def request(id: str, **fields: Any) -> Step:
    return ["send", {"type": "control_request", "request_id": id, "request": fields}]


def succeeds(log: ClientLog) -> None:
    need(log.of("user"), log.summary())
    need(log.exit_code == 0, log.summary())


def answers(id: str) -> Callable[[ClientLog], None]:
    """The client answers a control request: with success or an error, under its id."""

    def judge(log: ClientLog) -> None:
        replies = [message.get("response") for message in log.of("control_response")]
        found = [reply for reply in replies if isinstance(reply, dict) and reply.get("request_id") == id]
        need(len(found) == 1, f"{len(found)} answers to {id}; {log.summary()}")
        reply = found[0]
        is_known = reply.get("subtype") == "success" or isinstance(reply.get("error"), str)
        need(is_known, reply)
        succeeds(log)

    return judge


def sends_prompt(log: ClientLog) -> None:
    lines = log.of("user")
    need(len(lines) == 1, log.summary())
    message = lines[0].get("message")
    need(isinstance(message, dict) and message.get("role") == "user" and message.get("content"), lines[0])
    succeeds(log)


def flags_are_known(log: ClientLog) -> None:
    words = " ".join(log.argv)
    for flag in ("--output-format", "--input-format"):
        if f"{flag} stream-json" not in words and f"{flag}=stream-json" not in words:
            raise Mismatch(f"no {flag} stream-json in {log.argv}")


def answer_is_valid(log: ClientLog) -> None:
    answers("ask-1")(log)
    reply = next(each["response"] for each in log.of("control_response"))
    if reply.get("subtype") == "success":
        given = reply.get("response")
        need(isinstance(given, dict) and given.get("behavior") in ("allow", "deny"), reply)


def fails(log: ClientLog) -> None:
    need(log.exit_code not in (0, None), log.summary())


def ends(log: ClientLog) -> None:
    need(log.exit_code is not None, log.summary())


TOOL_USE = assistant({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}})
TOOL_RESULT: Step = ["send", {
    "type": "user", "parent_tool_use_id": None, "session_id": "{session}", "uuid": "{id}",
    "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]},
}]  # fmt: skip
ASK_1 = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "toolu_1"}


def unknown(kind: str, **fields: Any) -> Step:
    return ["send", {"type": kind, "session_id": "{session}", "uuid": "{id}", **fields}]


def half_lines() -> list[Step]:
    """An answer whose bytes come in three parts, two of them in the middle of a line."""
    import json

    line = json.dumps(text(ANSWER)[1]).replace("{session}", "11111111-2222-4333-8444-555555555555")
    third = len(line) // 3
    parts = [line[:third], line[third : 2 * third], line[2 * third :] + "\n"]
    return [step for part in parts for step in (["raw", part], ["pause", 0.1])]


CHECKS = (
    ClientCheck(
        id="client.prompt", rows=("in.user", "user.message.role", "user.message.content"), steps=turn(),
        expects="one user line with role user and content; exit code 0", basis="messages.md §4",
        judge=sends_prompt,
    ),
    ClientCheck(
        id="client.flags", rows=("flag.output-format", "flag.input-format"), steps=turn(),
        expects="the engine is started with --output-format and --input-format stream-json", basis="cli.md §1",
        judge=flags_are_known,
    ),
    ClientCheck(
        id="client.half-lines", rows=("framing.Line-one-JSON-object",), steps=turn(*half_lines()),
        expects="a line that arrives in three parts is one line", basis="messages.md §1", judge=succeeds,
    ),
    ClientCheck(
        id="client.unknown-type", rows=("framing.type",),
        steps=turn(unknown("mystery", x=1), unknown("rate_limit_event", rate_limit_info={"status": "allowed"})),
        expects="a line of an unknown type does not end the turn", basis="users.md U-8.1; PY#599", judge=succeeds,
    ),
    ClientCheck(
        id="client.unknown-subtype", rows=("framing.system.subtype",), steps=turn(unknown("system", subtype="mystery")),
        expects="an unknown system line does not end the turn", basis="messages.md §1", judge=succeeds,
    ),
    ClientCheck(
        id="client.unknown-fields", rows=("framing.Unknown-fields",),
        steps=[["prompt"], system_init(), text(ANSWER), result(brand_new={"a": [1]}, another=None), ["eof"]],
        expects="unknown fields are tolerated", basis="messages.md §1", judge=succeeds,
    ),
    ClientCheck(
        id="client.unknown-block", rows=("assistant.message.content",),
        steps=turn(assistant({"type": "hologram", "data": 1}, {"type": "text", "text": "x"})),
        expects="an unknown content block does not end the turn", basis="messages.md §5.1", judge=succeeds,
    ),
    ClientCheck(
        id="client.blank-lines", rows=("framing.Blank-lines",), steps=turn(["raw", "\n\r\n   \n"]),
        expects="blank lines are ignored", basis="messages.md §1", judge=succeeds,
    ),
    ClientCheck(
        id="client.not-json", rows=("framing.Non-JSON-on-stdout",), steps=turn(["raw", "a warning of some library\n"]),
        expects="a line that is not JSON is skipped", basis="users.md U-1.4", judge=succeeds,
    ),
    ClientCheck(
        id="client.long-line", rows=("framing.Max-line-length",), steps=turn(text(MEGABYTES)),
        expects="a line of 2 MB ends the client in an orderly way, if it is too long for it", basis="users.md U-15.2",
        judge=ends,
    ),
    ClientCheck(
        id="client.keep-alive", rows=("envelope.heartbeat",), steps=turn(["send", {"type": "keep_alive"}]),
        expects="a heartbeat is ignored", basis="control.md §1", judge=succeeds,
    ),
    ClientCheck(
        id="client.wrong-id", rows=("envelope.success",),
        steps=turn(["send", {"type": "control_response", "response": {"subtype": "success",
        "request_id": "never-sent"}}]),
        expects="an answer to a request that was never sent is ignored", basis="control.md §1", judge=succeeds,
    ),
    ClientCheck(
        id="client.permission", rows=("ask.can_use_tool", "in.control_response"),
        steps=turn(TOOL_USE, request("ask-1", **ASK_1), ["reply", "ask-1"], TOOL_RESULT),
        expects="can_use_tool is answered under its id: allow, deny, or an error", basis="control.md §9.1",
        judge=answer_is_valid,
    ),
    ClientCheck(
        id="client.hook", rows=("ask.hook_callback",),
        steps=turn(
            request("hook-1", subtype="hook_callback", callback_id="hook_0", input={"hook_event_name": "Stop"}),
            ["reply", "hook-1"],
        ),
        expects="hook_callback is answered, with an error if there is no such hook", basis="control.md §8.2",
        judge=answers("hook-1"),
    ),
    ClientCheck(
        id="client.mcp", rows=("ask.mcp_message",),
        steps=turn(
            request("mcp-1", subtype="mcp_message", server_name="nosuch",
                    message={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
            ["reply", "mcp-1"],
        ),
        expects="mcp_message for an unknown server is answered", basis="control.md §10", judge=answers("mcp-1"),
    ),
    ClientCheck(
        id="client.unknown-request", rows=("envelope.error",),
        steps=turn(request("odd-1", subtype="mystery_request"), ["reply", "odd-1"]),
        expects="an unknown control request is answered with an error", basis="control.md §1", judge=answers("odd-1"),
    ),
    ClientCheck(
        id="client.cancelled-request", rows=("envelope.cancel",),
        steps=turn(
            TOOL_USE, request("ask-9", **ASK_1), ["send", {"type": "control_cancel_request", "request_id": "ask-9"}],
            TOOL_RESULT,
        ),
        expects="a request that is withdrawn does not end the turn", basis="control.md §11", judge=succeeds,
    ),
    ClientCheck(
        id="client.error-result", rows=("exit.is_error-true", "result.errors"),
        steps=[["prompt"], system_init(),
               result("", subtype="error_during_execution", is_error=True, errors=["it broke"]), ["exit", 1]],
        expects="an error result is an error of the client: exit code not 0", basis="cli.md §4", judge=fails,
    ),
    ClientCheck(
        id="client.early-exit", rows=("silence.engine-exits-while-requests-are-open",), steps=[["exit", 3]],
        expects="an engine that ends at once is reported: exit code not 0, no hang", basis="control.md §3", judge=fails,
    ),
    ClientCheck(
        id="client.exit-in-turn", rows=("out.result",), steps=[["prompt"], system_init(), text("half"), ["exit", 1]],
        expects="an engine that dies in a turn is reported: exit code not 0, no hang", basis="cli.md §4", judge=fails,
    ),
    ClientCheck(
        id="client.torn-end", rows=("framing.Truncated-last-line-at-EOF",),
        steps=[["prompt"], system_init(), ["raw", '{"type":"assist'], ["exit", 1]],
        expects="output that ends in the middle of a line: the client ends, with an error", basis="messages.md §1",
        judge=fails,
    ),
    ClientCheck(
        id="client.closes-input", rows=("silence.close",), steps=turn(),
        expects="after the result the client closes the engine's input, or the engine", basis="control.md §3",
        judge=ends,
    ),
)  # fmt: skip
