"""Recorded output of Claude Code through the client: no message is unknown and no field is lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import (
    AssistantMessage,
    Client,
    HookJSONOutput,
    HookMatcher,
    Message,
    Options,
    PermissionResultAllow,
    ResultMessage,
    SystemMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TextBlock,
    ToolUseBlock,
    Transport,
    Unknown,
    Unreadable,
    UserMessage,
    create_sdk_mcp_server,
)
from tests.helpers import paths
from tests.helpers.sdk import run

Json = dict[str, Any]
TAPES = sorted((paths.DATA / "streams").glob("*.ndjson"))


class Tape(Transport):
    """Answers the handshake, then plays lines and records the client's responses."""

    def __init__(self, lines: list[Json]) -> None:
        self.lines = lines
        self.answers: dict[str, Json] = {}
        self._greeted = anyio.Event()
        self._answered = anyio.Event()
        self._asked = {line["request_id"] for line in lines if line.get("type") == "control_request"}
        self._greeting: Json = {}

    async def connect(self) -> None:
        """Nothing to connect to."""

    async def write(self, data: str) -> None:
        line = json.loads(data)
        if line["type"] == "control_request":
            answer = {"subtype": "success", "request_id": line["request_id"], "response": {"commands": []}}
            self._greeting = {"type": "control_response", "response": answer}
            self._greeted.set()
        elif line["type"] == "control_response":
            self.answers[line["response"]["request_id"]] = line["response"]
            if self.answers.keys() == self._asked:
                self._answered.set()

    async def read_messages(self) -> AsyncIterator[Json]:
        await self._greeted.wait()
        yield self._greeting
        for line in self.lines:
            yield line
        if self._asked:
            await self._answered.wait()

    async def close(self) -> None:
        """Nothing to close."""

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None:
        """Ignored."""


async def heard(recording: Tape) -> list[Message]:
    async def may(*asked: Any) -> PermissionResultAllow:
        return PermissionResultAllow()

    async def hook(*told: Any) -> HookJSONOutput:
        return {}

    options = Options(
        can_use_tool=may,
        hooks={"PreToolUse": [HookMatcher(hooks=[hook] * 40)]},
        mcp_servers={"calc": create_sdk_mcp_server("calc")},
    )
    async with Client(options, transport=recording) as client:
        return [message async for message in client.receive_messages()]


def lines_of(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.stem)
def test_a_recording_of_claude_code_is_parsed_completely(path: Path) -> None:
    lines = lines_of(path)
    recording = Tape(lines)

    messages = run("asyncio", heard, recording)

    said = [line for line in lines if line["type"] not in ("control_request", "control_cancel_request")]
    assert [message.raw for message in messages] == said
    assert [message for message in messages if isinstance(message, Unknown | Unreadable)] == []
    withdrawn = {line["request_id"] for line in lines if line["type"] == "control_cancel_request"}
    asked = {line["request_id"] for line in lines if line.get("type") == "control_request"}
    assert asked - withdrawn <= set(recording.answers) <= asked


def test_the_fields_of_a_recording_are_where_programs_look_for_them() -> None:
    [path] = [path for path in TAPES if path.stem == "python-sdk-client"]
    messages = run("asyncio", heard, Tape(lines_of(path)))

    assert [type(message) for message in messages if not isinstance(message, SystemMessage)] == [
        *(AssistantMessage, UserMessage) * 2,
        *(AssistantMessage, ResultMessage, UserMessage, AssistantMessage, ResultMessage),
    ]
    answers = [message for message in messages if isinstance(message, AssistantMessage)]
    assert isinstance(answers[0].content[0], ToolUseBlock)
    assert (answers[0].content[0].name, answers[0].model) == ("Bash", "claude-opus-5-5")
    assert answers[2].content == [TextBlock("first done")]
    results = [message for message in messages if isinstance(message, ResultMessage)]
    assert [(one.result, one.num_turns, one.is_error) for one in results] == [
        ("first done", 3, False),
        ("second done", 1, False),
    ]


def test_tasks_of_a_recording_have_their_classes() -> None:
    [path] = [path for path in TAPES if path.stem == "bash-background"]
    messages = run("asyncio", heard, Tape(lines_of(path)))

    started = [message for message in messages if isinstance(message, TaskStartedMessage)]
    ended = [message for message in messages if isinstance(message, TaskNotificationMessage)]
    assert [one.task_id for one in started] == [one.task_id for one in ended] != []
    assert ended[0].status == "completed"
