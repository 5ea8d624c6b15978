"""The messages that a fake engine sends, with fixed ids and times, so that two runs are equal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from parley.models.event_synthesis import event_objects, message_json
from parley.protocol.base import Json
from parley.testing.fake.scenario import ScenarioFile

TIMESTAMP = "2026-01-01T00:00:00.000Z"
USAGE: Json = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 5,
    "service_tier": "standard",
}
CHUNK_CHARS = 40


class FakeMessages:
    """Makes messages. Ids are numbers that count up."""

    def __init__(self, file: ScenarioFile, cwd: str) -> None:
        self._file = file
        self._cwd = cwd
        self._numbers = count(1)
        self._results = 0

    def new_uuid(self) -> str:
        return f"00000000-0000-4000-9000-{next(self._numbers):012d}"

    def new_id(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers):08d}"

    def init(self) -> Json:
        return {
            "type": "system",
            "subtype": "init",
            "cwd": self._cwd,
            "tools": list(self._file.tools),
            "mcp_servers": [],
            "model": self._file.model,
            "permissionMode": "default",
            "slash_commands": [],
            "apiKeySource": "none",
            "claude_code_version": self._file.version.partition(" ")[0],
            "output_style": "default",
            "agents": [],
            "skills": [],
            "plugins": [],
            **self._stamp(),
        }

    def assistant(self, block: Json, *, partial: bool) -> Iterator[Json]:
        """A message with one block; with `partial`, between the events that stream it."""
        message = message_json([block], id=self.new_id("msg_"), model=self._file.model, usage=USAGE)
        whole = {
            "type": "assistant",
            "message": {**message, "stop_reason": None},
            "parent_tool_use_id": None,
            **self._stamp(),
            "timestamp": TIMESTAMP,
        }
        if not partial:
            yield whole
            return
        for event in event_objects(message, CHUNK_CHARS):
            if event["type"] == "content_block_stop":
                yield whole
            yield {"type": "stream_event", "event": event, "parent_tool_use_id": None, **self._stamp()}

    def tool_result(self, tool_use_id: str, content: Any, *, is_error: bool) -> Json:
        block: Json = {"tool_use_id": tool_use_id, "type": "tool_result", "content": content}
        return {
            "type": "user",
            "message": {"role": "user", "content": [{**block, "is_error": True} if is_error else block]},
            "parent_tool_use_id": None,
            **self._stamp(),
            "timestamp": TIMESTAMP,
        }

    def interrupted(self) -> Json:
        content = [{"type": "text", "text": "[Request interrupted by user]"}]
        return {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": None,
            **self._stamp(),
            "timestamp": TIMESTAMP,
        }

    def result(self, text: str, *, num_turns: int, duration_ms: float, denials: list[Json], **more: Any) -> Json:
        """The end of a turn."""
        self._results += 1
        made: Json = {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "duration_ms": round(duration_ms),
            "duration_api_ms": 0,
            "num_turns": num_turns,
            "result": text,
            "stop_reason": "end_turn",
            "total_cost_usd": 0.0,
            "usage": USAGE,
            "modelUsage": {},
            "permission_denials": denials,
            "terminal_reason": "completed",
            "result_index": self._results - 1,
            **self._stamp(),
        }
        made.update(more)
        if made["subtype"] != "success" and "result" not in more:
            made.pop("result")  # only a success has one
            made.setdefault("errors", [])
        return made

    def control_request(self, request_id: str, request: Json) -> Json:
        return {"type": "control_request", "request_id": request_id, "request": request}

    def _stamp(self) -> Json:
        return {"session_id": self._file.session_id, "uuid": self.new_uuid()}


def success(request_id: Any, response: Json | None = None) -> Json:
    """The answer to a control request."""
    body: Json = {"subtype": "success", "request_id": request_id}
    return {"type": "control_response", "response": body if response is None else {**body, "response": response}}


def failure(request_id: Any, error: str) -> Json:
    return {"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": error}}


INITIALIZED: Json = {
    "commands": [],
    "agents": [],
    "output_style": "default",
    "available_output_styles": ["default"],
    "models": [],
    "account": {},
}
"""The default answer to `initialize`."""
