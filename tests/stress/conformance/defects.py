"""The defects of the broken engine: more than 100 ways in which an engine can be wrong.

They were chosen from the complaints of users and from the protocol before the checks of `parley conform` were
written. A defect changes the arguments, the lines that go in, the lines that come out, or the exit code.

See also: `broken_engine.py` applies one of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Line = dict[str, Any]


class Proxy:
    """The state that a defect may use."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.memory: dict[str, Any] = {}
        self.pending: dict[str, str] = {}
        """The control requests of the client that have no answer yet: id to subtype."""
        self.asked: dict[str, str] = {}
        """The control requests of the engine: id to subtype."""
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    def has(self, flag: str) -> bool:
        return any(word == flag or word.startswith(f"{flag}=") for word in self.argv)

    def emit(self, line: Line | bytes) -> None:
        data = line if isinstance(line, bytes) else json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self.lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def die(self, code: int) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        os._exit(code)


def passed(line: Line, proxy: Proxy) -> list[Line | bytes]:
    return [line]


@dataclass(frozen=True)
class Defect:
    name: str
    what: str
    out: Callable[[Line, Proxy], list[Line | bytes]] = passed
    into: Callable[[Line, Proxy], list[Line | bytes]] = passed
    argv: Callable[[list[str]], list[str]] = list
    code: Callable[[int, Proxy], int] = lambda code, proxy: code
    env: Callable[[], dict[str, str]] = dict
    at_end: Callable[[Proxy], None] = lambda proxy: None
    raw_in: Callable[[bytes, Proxy], bytes] = lambda data, proxy: data


DEFECTS: dict[str, Defect] = {}


def add(name: str, what: str, **changes: Any) -> None:
    DEFECTS[name] = Defect(name, what, **changes)


# Small tools for the defects.


def kind(line: Line) -> str:
    subtype = line.get("subtype")
    return f"{line.get('type')}/{subtype}" if line.get("type") == "system" else str(line.get("type"))


def blocks(line: Line) -> list[Line]:
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def on(wanted: str, change: Callable[[Line, Proxy], Any]) -> Callable[[Line, Proxy], list[Line | bytes]]:
    """A change of the lines of one kind. It edits the line, or returns the lines to send instead."""

    def apply(line: Line, proxy: Proxy) -> list[Line | bytes]:
        if kind(line) != wanted:
            return [line]
        changed = change(line, proxy)
        return changed if isinstance(changed, list) else [line]

    return apply


def drop(*keys: str) -> Callable[[Line, Proxy], None]:
    def change(line: Line, proxy: Proxy) -> None:
        for key in keys:
            line.pop(key, None)

    return change


def put(**fields: Any) -> Callable[[Line, Proxy], None]:
    return lambda line, proxy: line.update(fields)


def nothing(line: Line, proxy: Proxy) -> list[Line | bytes]:
    return []


def without(*flags: str, values: int = 1) -> Callable[[list[str]], list[str]]:
    """The arguments without these flags."""

    def change(argv: list[str]) -> list[str]:
        kept, skip = [], 0
        for word in argv:
            if skip:
                skip -= 1
            elif word in flags:
                skip = values
            elif not any(word.startswith(f"{flag}=") for flag in flags):
                kept.append(word)
        return kept

    return change


def plus(*words: str) -> Callable[[list[str]], list[str]]:
    return lambda argv: [argv[0], *words, *argv[1:]]


def permission_reply(line: Line, proxy: Proxy) -> Line | None:
    """The client's answer to can_use_tool."""
    response = line.get("response") if line.get("type") == "control_response" else None
    if not isinstance(response, dict) or proxy.asked.get(str(response.get("request_id"))) != "can_use_tool":
        return None
    return response


def reply_change(change: Callable[[Line], None]) -> Callable[[Line, Proxy], list[Line | bytes]]:
    """A change of the client's answers to can_use_tool."""

    def apply(line: Line, proxy: Proxy) -> list[Line | bytes]:
        response = permission_reply(line, proxy)
        if response is not None:
            change(response)
        return [line]

    return apply


def allow(response: Line) -> None:
    response.pop("error", None)
    response["subtype"], response["response"] = "success", {"behavior": "allow"}


def is_request(line: Line, *subtypes: str) -> bool:
    request = line.get("request")
    return line.get("type") == "control_request" and isinstance(request, dict) and request.get("subtype") in subtypes


def answer(line: Line, **response: Any) -> Line:
    body = {"subtype": "success", "request_id": line.get("request_id"), "response": response}
    return {"type": "control_response", "response": body}


def acknowledge(*subtypes: str) -> Callable[[Line, Proxy], list[Line | bytes]]:
    """Answer a request with success, and do nothing."""

    def apply(line: Line, proxy: Proxy) -> list[Line | bytes]:
        if not is_request(line, *subtypes):
            return [line]
        proxy.emit(answer(line))
        return []

    return apply


# Turns that do not end as they should (users.md 1, 7, 9, 14).

add("result-dropped", "the result of a turn never comes", out=on("result", nothing))
add("result-doubled", "a turn has two results", out=on("result", lambda line, proxy: [line, dict(line)]))


def result_first(line: Line, proxy: Proxy) -> list[Line | bytes]:
    """Hold each assistant line back until the next line; a result overtakes it."""
    held = proxy.memory.pop("held", None)
    if line.get("type") == "assistant":
        proxy.memory["held"] = line
        return [held] if held else []
    if line.get("type") == "result":
        return [line, held] if held else [line]
    return [held, line] if held else [line]


add("result-too-early", "the result comes before the last assistant line", out=result_first)
add(
    "two-results-swapped-text",
    "the result has the text of the turn before",
    out=on("result", lambda line, proxy: line.update(result=proxy.memory.setdefault("text", line.get("result")))),
)
add("result-without-text", "a successful result has no `result`", out=on("result", drop("result")))


def exits_after_result(line: Line, proxy: Proxy) -> list[Line | bytes]:
    if line.get("type") == "result":
        proxy.emit(line)
        proxy.die(0)
    return [line]


add("exits-after-result", "the process ends after a result although its input is open", out=exits_after_result)
add("never-exits", "the process stays after the end of its input", at_end=lambda proxy: time.sleep(3600))
add("eof-aborts", "the end of input aborts the running turn", raw_in=lambda data, proxy: data or proxy.die(0) or data)
add("error-exits-zero", "exit code 0 after an error result", code=lambda code, proxy: 0)
add("success-exits-one", "exit code 1 after a good result", code=lambda code, proxy: code or 1)
add("api-error-as-success", "a failed model call is no error", out=on("result", put(is_error=False)))
add("errors-lost", "an error result has no `errors`", out=on("result", drop("errors")))
add(
    "limit-as-success",
    "a turn that hit a limit is reported as success",
    out=on(
        "result",
        lambda line, proxy: str(line.get("subtype")).startswith("error_max") and line.update(subtype="success"),
    ),
)
add(
    "top-level-error",
    "an API failure becomes a line of the type `error`",
    out=on(
        "result",
        lambda line, proxy: (
            [{"type": "error", "error": {"type": "api_error", "message": "x"}}, line] if line.get("is_error") else None
        ),
    ),
)
add("terminal-reason-lost", "a result does not say why the turn ended", out=on("result", drop("terminal_reason")))

# Framing (users.md 1, 8, 15).


def banner(line: Line, proxy: Proxy) -> list[Line | bytes]:
    if proxy.memory.get("greeted"):
        return [line]
    proxy.memory["greeted"] = True
    return [b"Welcome to the engine\n", line]


add("banner", "a line that is not JSON comes first", out=banner)
add(
    "log-line",
    "a log line appears on stdout in the middle of a turn",
    out=on("assistant", lambda line, proxy: [b"[WARN] cache miss, retrying\n", line]),
)
add(
    "pretty-printed",
    "messages are spread over several lines",
    out=lambda line, proxy: [json.dumps(line, indent=1).encode() + b"\n"],
)
add(
    "torn-line",
    "the result is cut in the middle",
    out=on("result", lambda line, proxy: [json.dumps(line).encode()[:80] + b"\n"]),
)
add(
    "blank-line-ends",
    "a blank line ends the process",
    raw_in=lambda data, proxy: data if data.strip() or not data else proxy.die(1) or data,
)
add(
    "big-line-lost",
    "an input line over 1 MiB is ignored",
    raw_in=lambda data, proxy: b"\n" if len(data) > 1 << 20 else data,
)
add(
    "unknown-type-ends",
    "an input line of an unknown type ends the process",
    into=lambda line, proxy: (
        [line]
        if line.get("type") in ("user", "control_request", "control_response", "control", None)
        else proxy.die(1) or []
    ),
)
add(
    "non-ascii-lost",
    "characters outside ASCII become question marks",
    out=lambda line, proxy: [json.dumps(line, ensure_ascii=False).encode("ascii", "replace") + b"\n"],
)

# Identity (users.md 5, 9, 11).

STRANGER = "99999999-9999-4999-8999-999999999999"
add("session-id-differs", "the result has another session id", out=on("result", put(session_id=STRANGER)))
add(
    "session-id-echoed",
    "messages have the session id that the client made up",
    out=lambda line, proxy: [{**line, "session_id": "default"} if "session_id" in line else line],
)
add("uuid-lost", "assistant lines have no uuid", out=on("assistant", drop("uuid")))
add(
    "uuid-repeated",
    "all lines have the same uuid",
    out=lambda line, proxy: [{**line, "uuid": STRANGER} if "uuid" in line else line],
)
add(
    "resume-changes-id",
    "a resumed session has a new id",
    out=lambda line, proxy: [
        {**line, "session_id": STRANGER} if "session_id" in line and proxy.has("--resume") else line
    ],
)
add("resume-ignored", "--resume starts a new session", argv=without("--resume", "--continue", "-c"))


def forget(argv: list[str]) -> list[str]:
    """Resume under the same id, without the history."""
    asked = [word.partition("=")[2] for word in argv if word.startswith("--resume=")]
    rest = without("--resume", "--fork-session")(argv)
    return [*rest, "--session-id", asked[0], "--no-session-persistence"] if asked else argv


add("history-lost", "a resumed session keeps its id and forgets the conversation", argv=forget)
add("fork-ignored", "--fork-session writes into the old session", argv=without("--fork-session", values=0))
add("chosen-id-ignored", "--session-id is ignored", argv=without("--session-id"))
add("not-saved", "no transcript is written", argv=plus("--no-session-persistence"))
add(
    "init-once",
    "system/init comes with the first turn only",
    out=on("system/init", lambda line, proxy: [] if proxy.memory.get("init") else proxy.memory.update(init=True)),
)
add("init-without-version", "system/init names no version", out=on("system/init", drop("claude_code_version")))
add(
    "init-tool-objects",
    "system/init describes tools by objects",
    out=on("system/init", lambda line, proxy: line.update(tools=[{"name": name} for name in line.get("tools", [])])),
)
add("prompt-echo-lost", "--replay-user-messages has no effect", argv=without("--replay-user-messages", values=0))

# Control requests (users.md 4, 7, 8).

add(
    "mode-unanswered",
    "set_permission_mode is never answered",
    into=lambda line, proxy: [] if is_request(line, "set_permission_mode") else [line],
)
add(
    "initialize-unanswered",
    "initialize is never answered",
    into=lambda line, proxy: [] if is_request(line, "initialize") else [line],
)


def swap_ids(line: Line, proxy: Proxy) -> None:
    response = line.get("response")
    if isinstance(response, dict):
        response["request_id"] = f"{response.get('request_id')}-other"


add("answer-with-wrong-id", "answers carry another request id", out=on("control_response", swap_ids))
add(
    "answer-flat",
    "the request id is not inside `response`",
    out=on(
        "control_response",
        lambda line, proxy: [
            {
                "type": "control_response",
                "request_id": line["response"].get("request_id"),
                "subtype": line["response"].get("subtype"),
                "response": line["response"].get("response", {}),
            }
        ],
    ),
)
add(
    "unknown-request-ends",
    "an unknown control request ends the process",
    out=on(
        "control_response", lambda line, proxy: proxy.die(1) if line["response"].get("subtype") == "error" else None
    ),
)
add(
    "errors-as-success",
    "every control request succeeds",
    out=on(
        "control_response",
        lambda line, proxy: (
            [
                {
                    **line,
                    "response": {
                        "subtype": "success",
                        "request_id": line["response"].get("request_id"),
                        "response": {},
                    },
                }
            ]
            if line["response"].get("subtype") == "error"
            else None
        ),
    ),
)


def answers_at_the_end(line: Line, proxy: Proxy) -> list[Line | bytes]:
    """Hold control answers back while a turn runs."""
    held = proxy.memory.setdefault("held", [])
    if line.get("type") == "system" and line.get("subtype") == "init":
        proxy.memory["busy"] = True
    if line.get("type") == "control_response" and proxy.memory.get("busy"):
        held.append(line)
        return []
    if line.get("type") == "result":
        proxy.memory["busy"], proxy.memory["held"] = False, []
        return [line, *held]
    return [line]


add("answers-after-the-turn", "control requests are answered only between turns", out=answers_at_the_end)
add("interrupt-ignored", "interrupt is acknowledged and does nothing", into=acknowledge("interrupt"))
add(
    "interrupt-ends",
    "an interrupt ends the process",
    into=lambda line, proxy: proxy.die(0) or [] if is_request(line, "interrupt") else [line],
)
add("set-model-ignored", "set_model is acknowledged and does nothing", into=acknowledge("set_model"))
add("set-mode-ignored", "set_permission_mode is acknowledged and does nothing", into=acknowledge("set_permission_mode"))
add(
    "hooks-lost",
    "hooks of initialize are never called",
    into=lambda line, proxy: [
        {**line, "request": {**line["request"], "hooks": None}} if is_request(line, "initialize") else line
    ],
)
add(
    "agents-lost",
    "agents of initialize are unknown",
    into=lambda line, proxy: [
        {**line, "request": {**line["request"], "agents": {}}} if is_request(line, "initialize") else line
    ],
)


def lose_queued(line: Line, proxy: Proxy) -> list[Line | bytes]:
    return [] if line.get("type") == "user" and proxy.memory.get("busy") else [line]


def watch_turn(line: Line, proxy: Proxy) -> list[Line | bytes]:
    if line.get("type") in ("result", "assistant", "user"):
        proxy.memory["busy"] = line["type"] != "result"
    return [line]


add("queued-prompt-lost", "a prompt that arrives during a turn is lost", into=lose_queued, out=watch_turn)

# Permissions and hooks (users.md 2, 12).

add("deny-ignored", "a denied call runs", into=reply_change(allow))
add(
    "runs-without-asking",
    "the host is never asked",
    argv=plus("--dangerously-skip-permissions"),
    env=lambda: {"IS_SANDBOX": "1"},
)
add(
    "fails-open",
    "an error in the host's callback allows the call",
    into=reply_change(lambda response: allow(response) if response.get("subtype") == "error" else None),
)
add(
    "deny-text-lost",
    "the model does not see why a call was denied",
    into=reply_change(
        lambda response: (
            response.get("response", {}).get("behavior") == "deny" and response["response"].update(message="denied")
        )
    ),
)
add(
    "deny-interrupt-ignored",
    "a denial that should end the turn does not",
    into=reply_change(lambda response: response.get("response", {}).pop("interrupt", None)),
)
add(
    "updated-input-ignored",
    "the host's change of the input is ignored",
    into=reply_change(lambda response: response.get("response", {}).pop("updatedInput", None)),
)
add(
    "updated-permissions-ignored",
    "the host's rule for the session is ignored",
    into=reply_change(lambda response: response.get("response", {}).pop("updatedPermissions", None)),
)
add("denials-lost", "permission_denials is always empty", out=on("result", put(permission_denials=[])))
add("deny-rules-ignored", "--disallowedTools is ignored", argv=without("--disallowedTools", "--disallowed-tools"))
add("allow-rules-ignored", "--allowedTools is ignored", argv=without("--allowedTools", "--allowed-tools"))


def ask_first(line: Line, proxy: Proxy) -> list[Line | bytes]:
    """A tool_use line comes after its permission request."""
    held = proxy.memory.pop("held", None)
    if any(block.get("type") == "tool_use" for block in blocks(line)):
        proxy.memory["held"] = line
        return [held] if held else []
    if held is None:
        return [line]
    return [line, held] if is_request(line, "can_use_tool") else [held, line]


add("asks-before-tool-use", "a permission request comes before its tool_use line", out=ask_first)


def on_request(subtype: str, change: Callable[[Line], Line]) -> Callable[[Line, Proxy], list[Line | bytes]]:
    """A change of the engine's control requests."""

    def apply(line: Line, proxy: Proxy) -> list[Line | bytes]:
        return [{**line, "request": change(line["request"])} if is_request(line, subtype) else line]

    return apply


def cut(request: Line, key: str) -> Line:
    return {name: value for name, value in request.items() if name != key}


add(
    "request-without-tool-id",
    "can_use_tool has no tool_use_id",
    out=on_request("can_use_tool", lambda request: cut(request, "tool_use_id")),
)
add(
    "string-suggestions",
    "permission_suggestions are strings",
    out=on_request("can_use_tool", lambda request: {**request, "permission_suggestions": ["allow always"]}),
)


def hook_reply(line: Line, proxy: Proxy) -> list[Line | bytes]:
    response = line.get("response")
    if isinstance(response, dict) and proxy.asked.get(str(response.get("request_id"))) == "hook_callback":
        response["response"] = {}
    return [line]


add("hook-answers-ignored", "what a hook answers has no effect", into=hook_reply)
add(
    "hook-input-cut",
    "the input of a hook lacks tool_input",
    out=on_request("hook_callback", lambda request: {**request, "input": cut(request["input"], "tool_input")}),
)
add(
    "hook-form-of-004",
    "hooks are called with hook_name and hook_data",
    out=on_request(
        "hook_callback",
        lambda request: {
            "subtype": "hook_callback",
            "hook_name": request["callback_id"],
            "hook_data": request["input"],
        },
    ),
)

# Content and tools (users.md 8, 9, 15, 21).


def first_text(change: Callable[[str], str]) -> Callable[[Line, Proxy], None]:
    def apply(line: Line, proxy: Proxy) -> None:
        for block in blocks(line):
            if block.get("type") == "text":
                block["text"] = change(block["text"])

    return apply


def each_block(wanted: str, change: Callable[[Line], Any]) -> Callable[[Line, Proxy], None]:
    def apply(line: Line, proxy: Proxy) -> None:
        for block in blocks(line):
            if block.get("type") == wanted:
                change(block)

    return apply


add("text-cut", "assistant texts are cut", out=on("assistant", first_text(lambda text: text[:-3])))
add(
    "content-string",
    "assistant content is a string",
    out=on(
        "assistant",
        lambda line, proxy: line["message"].update(content="".join(b.get("text", "") for b in blocks(line))),
    ),
)
add(
    "model-lost",
    "assistant messages name no model",
    out=on("assistant", lambda line, proxy: line["message"].pop("model", None) and None),
)
add(
    "signature-lost",
    "thinking has no signature",
    out=on("assistant", each_block("thinking", lambda block: block.pop("signature", None))),
)
add(
    "tool-result-id-wrong",
    "a tool result belongs to no call",
    out=on("user", each_block("tool_result", lambda block: block.update(tool_use_id="toolu_other"))),
)
add(
    "tool-error-hidden",
    "a failed tool call has no is_error",
    out=on("user", each_block("tool_result", lambda block: block.pop("is_error", None))),
)
add(
    "tool-output-cut",
    "the output of a tool is lost",
    out=on("user", each_block("tool_result", lambda block: block.update(content=""))),
)


def lose_second_result(line: Line, proxy: Proxy) -> list[Line | bytes]:
    if any(block.get("type") == "tool_result" for block in blocks(line)):
        proxy.memory["results"] = proxy.memory.get("results", 0) + 1
        if proxy.memory["results"] == 2:
            return []
    return [line]


add("second-result-lost", "of two parallel calls one has no result", out=lose_second_result)
add("tool-use-result-lost", "tool results have no tool_use_result", out=on("user", drop("tool_use_result")))
add(
    "parent-lost",
    "lines of a subagent do not name the call that started it",
    out=lambda line, proxy: [{**line, "parent_tool_use_id": None} if line.get("parent_tool_use_id") else line],
)
add("partials-unasked", "stream events come although no one asked", argv=plus("--include-partial-messages"))
add("partials-lost", "--include-partial-messages has no effect", argv=without("--include-partial-messages", values=0))


def lose_delta(line: Line, proxy: Proxy) -> list[Line | bytes] | None:
    if line.get("event", {}).get("delta", {}).get("type") == "text_delta":
        proxy.memory["n"] = proxy.memory.get("n", 0) + 1
        return [] if proxy.memory["n"] == 2 else None
    return None


add("delta-lost", "one text delta is lost", out=on("stream_event", lose_delta))
add(
    "whole-message-lost",
    "with stream events the whole messages are missing",
    out=lambda line, proxy: (
        [] if line.get("type") == "assistant" and proxy.has("--include-partial-messages") else [line]
    ),
)

# Numbers and limits (users.md 10, 23).

add("usage-lost", "the result has no usage", out=on("result", drop("usage")))
add(
    "usage-zero",
    "all token counts are zero",
    out=on(
        "result",
        lambda line, proxy: line.update(
            usage={key: 0 if isinstance(value, int) else value for key, value in line.get("usage", {}).items()}
        ),
    ),
)
add("model-usage-lost", "the result has no modelUsage", out=on("result", drop("modelUsage")))
add("durations-lost", "the result has no durations", out=on("result", drop("duration_ms", "duration_api_ms")))
add("turns-zero", "num_turns is always 0", out=on("result", put(num_turns=0)))
add("max-turns-ignored", "--max-turns is ignored", argv=without("--max-turns"))
add("budget-ignored", "--max-budget-usd is ignored", argv=without("--max-budget-usd"))
add("structured-output-lost", "structured_output is missing", out=on("result", drop("structured_output")))
add("model-flag-ignored", "--model is ignored", argv=without("--model"))
add("system-prompt-ignored", "--system-prompt is ignored", argv=without("--system-prompt", "--append-system-prompt"))
add("mcp-config-ignored", "--mcp-config is ignored", argv=without("--mcp-config"))
add("tools-flag-ignored", "--tools is ignored", argv=without("--tools"))

# Secrets, processes, tasks (users.md 6, 9, 13, 22).


def leak(line: Line, proxy: Proxy) -> None:
    line["apiKey"] = os.environ.get("ANTHROPIC_API_KEY", "")


add("key-on-stdout", "system/init shows the API key", out=on("system/init", leak))


def log_key() -> dict[str, str]:
    sys.stderr.write(f"using key {os.environ.get('ANTHROPIC_API_KEY')}\n")
    return {}


add("key-on-stderr", "the API key is logged", env=log_key)


def leave_process(proxy: Proxy) -> None:
    null = subprocess.DEVNULL
    subprocess.Popen(["sleep", "60"], stdin=null, stdout=null, stderr=null, start_new_session=True)


add("process-left-behind", "a process survives the engine", at_end=leave_process)
add("task-end-lost", "the end of a background task is not reported", out=on("system/task_notification", nothing))
add(
    "idle-lost",
    "session_state_changed never says idle",
    out=on("system/session_state_changed", lambda line, proxy: [] if line.get("state") == "idle" else None),
)
add("compaction-silent", "compaction leaves no boundary", out=on("system/compact_boundary", nothing))
add("version-text", "--version does not begin with a number", out=passed)


# What users complain about.


def is_resumed(proxy: Proxy) -> bool:
    return proxy.has("--resume")


def spurious_result(line: Line, proxy: Proxy) -> list[Line | bytes] | None:
    if not is_resumed(proxy):
        return None
    early = {"type": "result", "subtype": "success", "is_error": False, "result": "", "num_turns": 0, "duration_ms": 0}
    return [{**early, "duration_api_ms": 0, "session_id": line["session_id"], "uuid": line["uuid"][::-1]}, line]


def changed_system(argv: list[str]) -> list[str]:
    is_resume = any(word.startswith("--resume") for word in argv)
    more = ["--system-prompt-snapshot", "off", "--append-system-prompt", f"It is {time.time_ns()}."]
    return [*argv, *more] if is_resume else argv


def cap_as_schema(line: Line, proxy: Proxy) -> None:
    if proxy.has("--json-schema") and line.get("subtype") == "error_max_turns":
        line["subtype"] = "error_max_structured_output_retries"


def end_at_result(line: Line, proxy: Proxy) -> list[Line | bytes] | None:
    if not proxy.has("-p"):
        return None
    proxy.emit(line)
    proxy.die(0)
    return []


def as_conversation(argv: list[str]) -> list[str]:
    return [*(word for word in argv if word != "go"), "--input-format", "stream-json"] if "-p" in argv else argv


def prompt_of_conversation(data: bytes, proxy: Proxy) -> bytes:
    if not data and proxy.has("-p"):
        assert proxy.process is not None
        assert proxy.process.stdin is not None
        message = {"role": "user", "content": "go"}
        proxy.process.stdin.write(json.dumps({"type": "user", "message": message}).encode() + b"\n")
    return data


def wait_for_input(argv: list[str]) -> list[str]:
    if "--print" in argv and "stream-json" not in argv:
        sys.stdin.buffer.read()
    return argv


def lose_result_of_agent(line: Line, proxy: Proxy) -> list[Line | bytes] | None:
    return [] if any(block.get("tool_use_id") == "toolu_agent" for block in blocks(line)) else None


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
"""A picture, so that the engine sends it."""


def add_broken_image(line: Line, proxy: Proxy) -> list[Line | bytes]:
    if line.get("type") == "user" and isinstance(line["message"]["content"], str):
        source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
        text = {"type": "text", "text": line["message"]["content"]}
        line["message"]["content"] = [{"type": "image", "source": source}, text]
    return [line]


def add_to_usage(line: Line, proxy: Proxy) -> None:
    line["usage"]["input_tokens"] += 1


def double_model_usage(line: Line, proxy: Proxy) -> None:
    for entry in line["modelUsage"].values():
        entry["outputTokens"] *= 2


def add_reminder(line: Line, proxy: Proxy) -> None:
    if line.get("isReplay") is True:
        line["message"]["content"] = f"{line['message']['content']}<system-reminder>Hm.</system-reminder>"


add("reminders-sent-back", "what is added for the model comes back with a prompt", out=on("user", add_reminder))
add("early-success", "a resumed session sends a result before its answer", out=on("system/init", spurious_result))
add("system-changes", "the system prompt differs after a resume", argv=changed_system)
add("cap-as-schema", "a cap on turns is reported as a failure of the schema", out=on("result", cap_as_schema))
add("background-killed", "the end of a run kills its background commands", out=on("result", end_at_result))
add(
    "idle-tools",
    "a run with one prompt has the tools of a conversation",
    argv=as_conversation,
    raw_in=prompt_of_conversation,
)
add("waits-for-stdin", "a run without a prompt waits for the end of stdin", argv=wait_for_input)
add("settings-ignored", "--settings is ignored", argv=without("--settings"))
add("result-emptied", "the text of the result is lost", out=on("result", put(result="")))
add("agent-again", "a subagent is started twice", out=on("system/task_started", lambda line, proxy: [line, dict(line)]))
add("agent-result-lost", "the result of a subagent is lost", out=on("user", lose_result_of_agent))
add("image-unchecked", "an image is sent as it is", into=add_broken_image)
add("agents-flag-ignored", "--agents is ignored", argv=without("--agents"))
add("sources-ignored", "--setting-sources is ignored", argv=without("--setting-sources"))
add("usage-wrong", "a count of tokens is wrong", out=on("result", add_to_usage))
add("model-usage-wrong", "a count of modelUsage is wrong", out=on("result", double_model_usage))
add("duration-wrong", "a duration is wrong", out=on("result", put(duration_ms=10**9)))
add("kept-anyway", "--no-session-persistence is ignored", argv=without("--no-session-persistence", values=0))


def clear_first(line: Line, proxy: Proxy) -> list[Line | bytes]:
    """Forget the conversation before the second prompt."""
    if line.get("type") != "user":
        return [line]
    proxy.memory["prompts"] = proxy.memory.get("prompts", 0) + 1
    clear = {**line, "message": {"role": "user", "content": "/clear"}}
    return [clear, line] if proxy.memory["prompts"] == 2 else [line]


def command_as_prompt(argv: list[str]) -> list[str]:
    return [f"Please: {word}" if word.startswith("/no-such") else word for word in argv]


def lose_early_prompt(line: Line, proxy: Proxy) -> list[Line | bytes]:
    proxy.memory["begun"] = proxy.memory.get("begun") or is_request(line, "initialize")
    return [] if line.get("type") == "user" and not proxy.memory["begun"] else [line]


def status_of_servers(status: str) -> Callable[[Line, Proxy], None]:
    def change(line: Line, proxy: Proxy) -> None:
        for server in (line["response"].get("response") or {}).get("mcpServers") or []:
            server["status"] = status

    return change


def load_lazily(argv: list[str]) -> list[str]:
    return [word.replace('"alwaysLoad": true', '"alwaysLoad": false') for word in argv]


def refuse_deferred(line: Line, proxy: Proxy) -> None:
    for block in blocks(line):
        if block.get("tool_use_id") == "toolu_add":
            block.update(content="No such tool available", is_error=True)


add("history-edited", "the second request of a session does not begin with the first", into=clear_first)
add("command-as-prompt", "an unknown slash command is sent to the model", argv=command_as_prompt)
add("text-on-stdin-lost", "text on stdin is lost", raw_in=lambda data, proxy: data if data.startswith(b"{") else b"")
add("early-prompt-lost", "a prompt before `initialize` is lost", into=lose_early_prompt)
add("server-failed", "every MCP server is `failed`", out=on("control_response", status_of_servers("failed")))
add(
    "server-pending", "every MCP server is `pending` for ever", out=on("control_response", status_of_servers("pending"))
)
add("late-server-failed", "an MCP server that is ready late is `failed`", env=lambda: {"MCP_TIMEOUT": "50"})
add("always-load-ignored", "`alwaysLoad` of an MCP server is ignored", argv=load_lazily)
add("deferred-refused", "a tool cannot be called in the turn that finds it", out=on("user", refuse_deferred))
add("hour-ignored", "the cache never lasts an hour", env=lambda: {"ENABLE_PROMPT_CACHING_1H": "0"})
