"""A turn that is open and silent gives signs of life; how long a model is waited for can be set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from parley.compose.composer import make_limits
from parley.compose.launch_context import LaunchContext, make_deadlines
from parley.errors import UsageError
from parley.models.base import ModelEvent, ModelRequest
from parley.models.event_synthesis import message_json, synthesize_events
from parley.models.http.call import Deadlines
from parley.protocol.options import CliOptions
from tests.helpers.simulation import SimulatedSession

WORDS = "word " * 20


class Slow:
    """A model that waits before the first event, and then before every other."""

    def __init__(self, first_seconds: float, pause_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._pause_seconds = pause_seconds
        self.open = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = message_json([{"type": "text", "text": WORDS}], id="msg_1", model=request.model, usage=usage)
        await asyncio.sleep(self._first_seconds)
        for event in synthesize_events(message, chunk_chars=10):
            yield event
            await asyncio.sleep(self._pause_seconds)

    async def close(self) -> None:
        pass


async def actor(simulated: SimulatedSession) -> None:
    simulated.say({"type": "user", "message": {"role": "user", "content": "go"}})


@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("model", [Slow(1_000, 0), Slow(0, 100), Slow(5, 29), Slow(50, 31)])
def test_no_silence_is_longer_than_half_a_minute(tmp_path: Path, model: Slow, partial: bool) -> None:
    with SimulatedSession(tmp_path, Random(1), include_partial_messages=partial) as simulated:
        simulated.model = model  # type: ignore[assignment]  # another model
        simulated.play(actor)
    silences = [later - earlier for earlier, later in pairwise(simulated.heard_at)]
    assert simulated.heard_at[-1] > 100
    assert max(silences) <= 30.001
    assert min(gap for gap in silences if gap) >= 1


class Late(SimulatedSession):
    """A host who takes a hundred seconds for every answer."""

    async def _answer(self, request_id: str) -> None:
        await asyncio.sleep(100)
        self.say(
            {"type": "control_response", "response": {"subtype": "success", "request_id": request_id, "response": {}}}
        )


@pytest.mark.parametrize("prompt", ["go", "/clear"])
def test_nor_is_it_while_a_hook_is_waited_for(tmp_path: Path, prompt: str) -> None:
    """Around a turn, that is; while a tool is called the call itself gives signs of life."""
    events = ("UserPromptSubmit", "Stop", "SessionEnd", "SessionStart")

    async def asks(simulated: SimulatedSession) -> None:
        registered = {event: [{"matcher": None, "hookCallbackIds": [event], "timeout": 600}] for event in events}
        simulated.ask("1", "initialize", hooks=registered)
        simulated.say({"type": "user", "message": {"role": "user", "content": prompt}})
        await asyncio.sleep(1_000)

    with Late(tmp_path, Random(1)) as simulated:
        simulated.model = Slow(0, 0)  # type: ignore[assignment]  # another model
        simulated.play(asks)
    ended = next(at for at, line in enumerate(simulated.lines) if line.get("type") == "result")
    silences = [later - earlier for earlier, later in pairwise(simulated.heard_at[: ended + 1])]
    asked = [
        line["request"]["input"]["hook_event_name"] for line in simulated.lines if line["type"] == "control_request"
    ]
    assert asked[:2] == (["UserPromptSubmit", "Stop"] if prompt == "go" else ["UserPromptSubmit", "SessionEnd"])
    assert simulated.heard_at[ended] >= 200
    assert max(silences) <= 30.001


def test_a_model_that_streams_needs_no_heartbeat(tmp_path: Path) -> None:
    with SimulatedSession(tmp_path, Random(1)) as simulated:
        simulated.model = Slow(5, 9)  # type: ignore[assignment]  # another model
        simulated.play(actor)
    assert len([line for line in simulated.lines if line.get("status") == "requesting"]) == 1


def composed(folder: Path, **environment: str) -> LaunchContext:
    surroundings = {"HOME": str(folder), "PATH": "/usr/bin:/bin", **environment}
    return LaunchContext(CliOptions(model="offline"), surroundings, str(folder))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Deadlines()),
        ({"API_TIMEOUT_MS": "1000"}, Deadlines(first_byte_seconds=1, local_first_byte_seconds=1, request_seconds=1)),
        ({"CLAUDE_STREAM_IDLE_TIMEOUT_MS": "2000"}, Deadlines(silence_seconds=2, content_seconds=2)),
        ({"CLAUDE_STREAM_IDLE_TIMEOUT_MS": "900000"}, Deadlines(silence_seconds=900, content_seconds=900)),
        (
            {"API_TIMEOUT_MS": "7200000"},
            Deadlines(first_byte_seconds=7200, local_first_byte_seconds=7200, request_seconds=7200),
        ),
        ({"API_TIMEOUT_MS": "0"}, Deadlines()),
    ],
)
def test_how_long_a_silent_model_is_waited_for_can_be_set(
    tmp_path: Path, environment: dict[str, str], expected: Deadlines
) -> None:
    assert make_deadlines(composed(tmp_path, **environment)) == expected


def test_a_limit_may_stand_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"env": {"API_TIMEOUT_MS": "5000"}}')
    assert make_deadlines(composed(tmp_path)) == Deadlines(
        first_byte_seconds=5, local_first_byte_seconds=5, request_seconds=5
    )


def test_a_limit_that_is_not_a_number_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="API_TIMEOUT_MS"):
        make_deadlines(composed(tmp_path, API_TIMEOUT_MS="soon"))


@pytest.mark.parametrize(("value", "seconds"), [(None, 30), ("500", 0.5), ("0", None)])
def test_how_often_a_silent_turn_gives_signs_of_life_can_be_set(
    tmp_path: Path, value: str | None, seconds: float | None
) -> None:
    environment = {"PARLEY_HEARTBEAT_MS": value} if value else {}
    assert make_limits(composed(tmp_path, **environment)).heartbeat_seconds == seconds
