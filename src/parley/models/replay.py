"""`replay:FILE`: a model that replays a recording (recording.py).

A request gets the answer of the first unused recorded request that matches it. That is usually the next one; concurrent
calls may come in another order. Events are replayed byte for byte, at full speed or at the recorded pace. A recorded
failure fails again. If the conversation differs from the recording, the call fails and the error says at which request
and what differs.

The messages are compared: roles, blocks, text, tool calls and results. The model name, system prompt, tools and limits
are not compared, because they contain the date, paths and the machine, or change between versions. Notes of the
engine (`is_note`) are not compared either. These values vary between runs and count as equal:

    cache markers, thinking signatures    dates and times    UUIDs and long hexadecimal ids
    the directories that the recording names (working directory, home, temporary directory)
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from parley.errors import ModelError
from parley.models.base import Model, ModelEvent, ModelRequest, ModelSetup, find_model_file, is_note
from parley.models.recording import RecordedCall, read_recording
from parley.models.redaction import Redactor
from parley.protocol.base import Json

DIVERGED = "recording_diverged"
"""The error kind of a request that is not in the recording."""
UNCOMPARED = ("cache_control", "signature")
VARYING = (
    (r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<id>"),
    (r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b", "<id>"),
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b", "<time>"),
)
SHOWN_CHARS = 40


class Replay:
    """Replays one recording from start to end."""

    @classmethod
    def open(cls, setup: ModelSetup, name: str) -> Model:
        """Raises UsageError."""
        return setup.replay(find_model_file(setup.cwd, name, setup.environment))

    def __init__(
        self,
        path: Path,
        *,
        places: Mapping[str, str] | None = None,
        redaction: Redactor | None = None,
        pace: float = 0,
        in_order: bool = False,
    ) -> None:
        """`pace` 1 is the recorded pace, 0 does not wait. `in_order` skips matching. Raises UsageError."""
        self._recording = read_recording(path)
        self._left = list(self._recording.calls)
        self._places = places or {}
        self._redaction = redaction or Redactor()
        self._pace = pace
        self._in_order = in_order

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        call = self._find_call(request)
        last_ms = call.at_ms
        for at_ms, event in call.events:
            await self._wait(at_ms - last_ms)
            last_ms = at_ms
            yield event
        if call.end is None or call.end.closed:
            raise ModelError(
                f"recording {self._recording.name} ends in the middle of this answer", kind="recording_cut"
            )
        await self._wait(call.ended_ms - last_ms)
        if call.end.error is not None:
            raise call.end.error.to_error()

    async def close(self) -> None:
        pass

    async def _wait(self, recorded_ms: float) -> None:
        if self._pace and recorded_ms > 0:
            await asyncio.sleep(recorded_ms / 1000 * self._pace)

    def _find_call(self, request: ModelRequest) -> RecordedCall:
        """The recorded call for a request. Each is used once. Raises ModelError."""
        name, total = self._recording.name, len(self._recording.calls)
        if not self._left:
            raise ModelError(f"recording {name} has no more answers ({total} recorded)", kind=DIVERGED)
        messages = normalize(self._redaction.redact_value(request.messages), self._places)
        if self._in_order:
            return self._left.pop(0)
        for at, call in enumerate(self._left):
            if self._normalize(call) == messages:
                return self._left.pop(at)
        number = total - len(self._left) + 1
        differs = describe_difference(self._normalize(self._left[0]), messages)
        what = "does not match this conversation" if number == 1 else f"differs from request {number} on"
        raise ModelError(f"recording {name} {what}: {differs}", kind=DIVERGED)

    def _normalize(self, call: RecordedCall) -> Any:
        return normalize(call.request.messages, self._recording.head.places)


def normalize(messages: list[Json], places: Mapping[str, str]) -> Any:
    """The messages in the form that is compared."""
    # Longer paths first: the working directory may be inside the home directory.
    folders = sorted(((path, name) for name, path in places.items() if len(path) > 1), key=lambda row: -len(row[0]))
    return _normalize(
        [{**message, "content": _normalize_content(message.get("content"))} for message in messages], folders
    )


def _normalize_content(content: Any) -> Any:
    """A string is short for one text block."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        return blocks
    return [block for block in blocks if not is_note(block)]


def _normalize(value: Any, folders: list[tuple[str, str]]) -> Any:
    if isinstance(value, str):
        for path, name in folders:
            value = re.sub(rf"{re.escape(path)}(?![\w.-])", f"<{name}>", value)
        for pattern, mark in VARYING:
            value = re.sub(pattern, mark, value)
        return value
    if isinstance(value, list):
        return [_normalize(item, folders) for item in value]
    if isinstance(value, dict):
        return {key: _normalize(item, folders) for key, item in value.items() if key not in UNCOMPARED}
    return value


def describe_difference(recorded: Any, actual: Any, where: str = "messages") -> str | None:
    """A description of the first difference between two normalized values; None if they are equal."""
    if isinstance(recorded, dict) and isinstance(actual, dict):
        keys = list(dict.fromkeys([*recorded, *actual]))
        inner = (describe_difference(recorded.get(key), actual.get(key), f"{where}.{key}") for key in keys)
        return next((found for found in inner if found), None)
    if isinstance(recorded, list) and isinstance(actual, list):
        pairs = enumerate(zip(recorded, actual, strict=False))
        inner = (describe_difference(one, other, f"{where}[{at}]") for at, (one, other) in pairs)
        if (found := next((found for found in inner if found), None)) is not None:
            return found
        if len(recorded) != len(actual):
            return f"{where} has {len(recorded)} items in the recording and {len(actual)} in this conversation"
        return None
    if recorded == actual:
        return None
    begin = _first_difference(recorded, actual) if isinstance(recorded, str) and isinstance(actual, str) else 0
    return f"{where} is {_show(recorded, begin)} in the recording and {_show(actual, begin)} in this conversation"


def _first_difference(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _show(value: Any, begin: int) -> str:
    """A value, or the part of a text around an offset."""
    if value is None:
        return "absent"
    if not isinstance(value, str):
        return repr(value)[:SHOWN_CHARS]
    start = max(0, begin - SHOWN_CHARS // 2)
    part = value[start : start + SHOWN_CHARS]
    return ("…" if start else "") + repr(part) + ("…" if start + SHOWN_CHARS < len(value) else "")
