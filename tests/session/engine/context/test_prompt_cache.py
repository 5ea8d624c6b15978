"""What was sent once is sent again byte for byte, so that backends find their caches; and it is not much.

Bodies of requests are taken off the wire. Cache marks are moved on with the conversation and are left out.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.models.catalog import CHARS_PER_TOKEN
from parley.models.event_synthesis import event_objects, message_json
from tests.helpers.http_server import Answer, loopback, stream
from tests.helpers.session import Json, SessionHarness

MARK = b',"cache_control":{"type":"ephemeral"}'
DAY_SECONDS = 86_400
USAGE = {"input_tokens": 1, "output_tokens": 1}
THOUGHT = {"type": "thinking", "thinking": "Grüße …", "signature": "c2ln"}


def answer(number: int, *blocks: Json) -> Answer:
    message = message_json(list(blocks), id=f"msg_{number}", model="m", usage=USAGE)
    return stream(*[f"data: {json.dumps(event)}\n\n".encode() for event in event_objects(message, 7)])


def called(number: int, command: str) -> Json:
    return {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": command}}


ANSWERS = (
    answer(1, THOUGHT, {"type": "text", "text": "I look."}, called(1, "echo \u2028 && true"), called(2, "false")),
    answer(2, {"type": "text", "text": "Seen."}),
    answer(3, called(3, "echo again")),
    answer(4, {"type": "text", "text": "\n"}, {"type": "text", "text": "Done."}),
    answer(5, {"type": "text", "text": "Another day."}),
    answer(6, {"type": "text", "text": "The same day."}),
)


class Walk:
    """One session over several processes and days; every body that was sent."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.session_id = ""

    async def part(self, *prompts: str, days: int = 0) -> None:
        resumed = {"resume": self.session_id} if self.session_id else {}
        harness = SessionHarness(
            self.folder, "", model="claude-opus-5-5", permission_mode="bypassPermissions", **resumed
        )
        harness.environment["ANTHROPIC_BASE_URL"] = self.url
        earlier = harness.stamp.seconds
        new_uuid = harness.stamp.new_uuid
        harness.stamp = msgspec.structs.replace(
            harness.stamp,
            seconds=lambda: earlier() + days * DAY_SECONDS,
            new_uuid=lambda: f"{new_uuid()[:-4]}{days:04d}",
        )
        async with harness:
            for prompt in prompts:
                harness.prompt(prompt)
                result = await harness.receive("result")
                assert not result["is_error"], result
        self.session_id = harness.session.id


async def walked(folder: Path) -> list[Json]:
    async with loopback(*ANSWERS) as server:
        session = Walk(folder, server.url)
        await session.part("One.", "Two.")
        (folder / "CLAUDE.md").write_text("A rule that came later.")
        await session.part("Three.", "Four.", days=2)
        return [json.loads(request.body) for request in server.heard]


def text_of(part: Any) -> bytes:
    return msgspec.json.encode(part).replace(MARK, b"")


async def test_every_request_begins_with_the_one_before_it_across_turns_processes_and_days(tmp_path: Path) -> None:
    bodies = await walked(tmp_path)

    assert len(bodies) == len(ANSWERS)
    for before, after in pairwise(bodies):
        assert [text_of(before[part]) for part in ("model", "system", "tools")] == [
            text_of(after[part]) for part in ("model", "system", "tools")
        ]
        # Without the bracket that ends the list, and that of the last message, which may still grow.
        assert text_of(after["messages"]).startswith(text_of(before["messages"])[: -len("]}]")])


async def test_a_new_day_is_announced_once_and_after_the_earlier_messages(tmp_path: Path) -> None:
    bodies = await walked(tmp_path)

    told = [[block["text"] for block in body["messages"][-1]["content"] if block["type"] == "text"] for body in bodies]
    assert told[4] == ["[Today's date: 2027-01-17]", "Three."]
    assert told[5] == ["Four."]
    assert "Today's date: 2027-01-15" in bodies[5]["system"][-1]["text"]


@pytest.mark.parametrize(
    ("options", "most_tokens"),
    [
        ({}, 2500),
        ({"input_format": "stream-json"}, 2500),
        ({"tools": (), "system_prompt": "You are a test."}, 200),
    ],
)
async def test_what_every_request_carries_is_bounded(tmp_path: Path, options: Json, most_tokens: int) -> None:
    async with loopback(answer(1, {"type": "text", "text": "Hi."})) as server:
        harness = SessionHarness(tmp_path, "", model="claude-opus-5-5", permission_prompt_tool="stdio", **options)
        harness.environment["ANTHROPIC_BASE_URL"] = server.url
        async with harness:
            harness.prompt("Hi")
            await harness.receive("result")
        body: Json = json.loads(server.heard[0].body)

    chars = {part: len(text_of(body.get(part, []))) for part in ("system", "tools", "messages")}
    tokens = sum(chars.values()) // CHARS_PER_TOKEN
    sys.stdout.write(f"fixed overhead: about {tokens} tokens of at most {most_tokens} ({chars} characters)\n")
    assert tokens <= most_tokens
