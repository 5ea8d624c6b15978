"""A host that registers callbacks and answers them, for tests of hooks.

    result = await play(harness, {"PreToolUse": specific(permissionDecision="allow")})

plays one turn; `harness.lines` has what was asked. An answer may be a function of the request's input, an
exception (the host answers with an error), or `SILENCE` (it never answers).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.session import Json, SessionHarness

SILENCE = object()
ALLOW = {"behavior": "allow"}


def specific(**fields: Any) -> Json:
    return {"hookSpecificOutput": fields}


def matcher(*ids: str, **fields: Any) -> Json:
    return {"matcher": None, "hookCallbackIds": list(ids), **fields}


def asked(harness: SessionHarness, event: str | None = None) -> list[Json]:
    """The inputs of the callbacks that were asked."""
    requests = [line["request"] for line in harness.lines if line["type"] == "control_request"]
    inputs = [request["input"] for request in requests if request["subtype"] == "hook_callback"]
    return [input for input in inputs if event in (None, input["hook_event_name"])]


def questions(harness: SessionHarness) -> list[Json]:
    requests = [line["request"] for line in harness.lines if line["type"] == "control_request"]
    return [request for request in requests if request["subtype"] == "can_use_tool"]


def answering(harness: SessionHarness, answers: Json, permission: Any = ALLOW) -> Callable[[Json], None]:
    """Answers a line that asks."""

    def react(line: Json) -> None:
        if line["type"] != "control_request":
            return
        request = line["request"]
        answer = permission if request["subtype"] == "can_use_tool" else answers.get(request["callback_id"], {})
        if callable(answer):
            answer = answer(request["input"])
        if answer is not SILENCE:
            harness.send(reply(line, answer))

    return react


def reply(line: Json, answer: Any) -> Json:
    how = {"subtype": "error", "error": str(answer)} if isinstance(answer, Exception) else {"subtype": "success"}
    told = {} if isinstance(answer, Exception) else {"response": answer}
    return {"type": "control_response", "response": {**how, "request_id": line["request_id"], **told}}


async def register(harness: SessionHarness, hooks: Json | None) -> Json:
    """Register `{event: [matchers]}`; the answer to the handshake."""
    answer = await harness.request("initialize", hooks=hooks)
    told: Json = answer["response"]["response"]
    return told


async def play(harness: SessionHarness, answers: Json, *, prompt: str = "go", permission: Any = ALLOW) -> Json:
    """One turn with a callback for each event in `answers`, which is its id, too."""
    await register(harness, {event: [matcher(event)] for event in answers})
    harness.prompt(prompt)
    return await until_result(harness, answers, permission)


async def until_result(harness: SessionHarness, answers: Json, permission: Any = ALLOW) -> Json:
    react = answering(harness, answers, permission)

    def wanted(line: Json) -> bool:
        react(line)
        return bool(line["type"] == "result")

    return await harness.receive_until(wanted)


def results(harness: SessionHarness) -> list[Any]:
    """The contents of all tool results, in their order."""
    blocks = [block for line in harness.messages("user") for block in line["message"]["content"]]
    return [block["content"] for block in blocks if isinstance(block, dict) and block["type"] == "tool_result"]


def permissions(harness: SessionHarness) -> list[tuple[str, str]]:
    """Decision and source of every permission on record."""
    return [(entry["decision"], entry["source"]) for entry in recorded(harness, "permission")]


def transcript(harness: SessionHarness) -> Path:
    (path,) = Path(harness.environment["HOME"]).glob(".claude/projects/*/*.jsonl")
    return path


def recorded(harness: SessionHarness, kind: str) -> list[Json]:
    lines = [json.loads(line) for line in transcript(harness).read_text().splitlines()]
    return [line["message"] for line in lines if line.get("kind") == kind]


def contexts(harness: SessionHarness) -> list[str]:
    """What hooks said to the model, as the transcript has it."""
    lines = [json.loads(line) for line in transcript(harness).read_text().splitlines()]
    blocks = [block for line in lines if line.get("isMeta") for block in line["message"]["content"]]
    return [block["text"] for block in blocks]
