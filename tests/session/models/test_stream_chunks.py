"""The events of a stream are the same lines however the bytes of the server's response arrive."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.models.base import ModelEvent
from parley.models.event_synthesis import message_json, synthesize_events
from parley.testing.messages_api import ApiRequest
from parley.testing.model_server import FORMATS
from tests.helpers.http_server import Answer, Line, loopback
from tests.helpers.models import asking, user
from tests.helpers.session import SessionHarness

BACKENDS = {
    "sonnet": "/v1/messages",
    "openai:any": "/v1/chat/completions",
    "openai-responses:any": "/v1/responses",
}
BLOCKS = [
    {"type": "thinking", "thinking": "Let me think about that.", "signature": "s"},
    {"type": "text", "text": "Grüße, \u2028and a line:\n" * 6},
    {"type": "text", "text": "And another block, which is longer than the first ones."},
]
ALONE, TOGETHER = 1, 1 << 20
"""How many bytes are written at most before the server waits."""


async def response(path: str) -> bytes:
    """The event stream of an answer with thinking and two texts."""

    async def events() -> AsyncIterator[ModelEvent]:
        for event in synthesize_events(message_json(BLOCKS, id="msg_1", model="m", usage={}), chunk_chars=5):
            yield event

    request = ApiRequest(asking(user("Hi")), True)
    return b"".join([data async for data in FORMATS[path].encode_events(events(), request)])


def in_pieces(body: bytes, most_bytes: int, seed: int) -> Answer:
    """The body in chunks of random sizes. The client has time to read each before the next."""

    async def answer(line: Line) -> bool:
        sizes, at = random.Random(seed), 0
        await line.begin(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        while at < len(body):
            size = sizes.randint(1, most_bytes)
            await line.piece(body[at : at + size])
            await asyncio.sleep(0)
            at += size
        await line.piece(b"")
        return True

    return answer


async def lines(folder: Path, model: str, most_bytes: int, seed: int) -> list[bytes]:
    """What the engine writes for one turn."""
    folder.mkdir()
    harness = SessionHarness(folder, "", model=model, include_partial_messages=True, no_session_persistence=True)
    async with loopback(in_pieces(await response(BACKENDS[model]), most_bytes, seed)) as server:
        harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
        async with harness:
            harness.prompt("Hi", uuid="10000000-0000-4000-8000-000000000001")
            await harness.receive("result")
    events = [line for line in harness.raw.split(b"\n") if b'"stream_event"' in line or b'"assistant"' in line]
    assert sum(b"content_block_delta" in line for line in events) > 30
    return events


@pytest.mark.parametrize("model", BACKENDS)
async def test_events_are_the_same_lines_however_they_arrive(model: str, tmp_path: Path) -> None:
    expected = await lines(tmp_path / "first", model, ALONE, seed=0)

    for seed, most_bytes in enumerate((TOGETHER, 20, 200, 2000)):
        # The paths have the same length, because the size of the request is part of the first event.
        assert await lines(tmp_path / f"{seed:05}", model, most_bytes, seed) == expected
