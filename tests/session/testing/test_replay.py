"""Recorded conversations: both sides can be replayed, and a difference is named with its line."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley import Client, Options, PermissionResultAllow, PermissionResultDeny
from parley.fake.engine import FakeEngine
from parley.fake.link import FakeOptions
from parley.fake.replay import ReplayDifference, ReplayRun, SidePlayer
from parley.stores.wire_recording import WireRecording
from parley.testing import expect, read_scenario, read_wire_recording, replay_wire, run_in_virtual_time, scenario_wire
from parley.transports.base import create_pair

SCENARIO = """
[[turn]]
steps = [
    { say = "I look." },
    { wait_ms = 2000 },
    { call = "Bash", input = { command = "ls" }, ask = true, result = "a.txt" },
    { say = "Done." },
]
[[turn]]
steps = [{ say = "Again." }]
"""


async def allow(name: str, given: Any, context: Any) -> Any:
    return PermissionResultAllow()


async def deny(name: str, given: Any, context: Any) -> Any:
    return PermissionResultDeny(message="no")


def test_a_recording_has_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "a-password-of-mine")
    scenario = SCENARIO.replace("a.txt", "It is a-password-of-mine.")
    converse(scenario_wire(read_scenario(scenario), record=tmp_path / "talk.jsonl"))

    text = (tmp_path / "talk.jsonl").read_text()
    assert "It is [redacted]." in text
    assert "a-password-of-mine" not in text


async def talk(wire: Any, prompts: tuple[str, ...], decide: Callable[..., Any]) -> list[Any]:
    messages: list[Any] = []
    async with Client(Options(can_use_tool=decide), transport=wire) as client:
        for prompt in prompts:
            await client.query(prompt)
            messages += [message async for message in client.receive_response()]
    return messages


def converse(wire: Any, *prompts: str, decide: Callable[..., Any] = allow) -> tuple[float, list[Any]]:
    """How long it took, and all messages."""
    return run_in_virtual_time(talk(wire, prompts or ("one", "two"), decide))


@pytest.fixture
def recording(tmp_path: Path) -> WireRecording:
    path = tmp_path / "talk.jsonl"
    converse(scenario_wire(read_scenario(SCENARIO), record=path))
    return read_wire_recording(path)


def replay_to_engine(recording: WireRecording, scenario: str) -> None:
    """Play the client of a recording to a fake engine. Raises ReplayDifference."""

    async def run() -> None:
        ours, theirs = create_pair()

        async def serve() -> None:
            await FakeEngine(read_scenario(scenario), theirs, FakeOptions(cwd=os.getcwd())).run()
            theirs.close()

        engine = asyncio.create_task(serve())
        try:
            player = SidePlayer(recording, "client")
            await ReplayRun(player, ours, lambda text: None, pace=0, wait_seconds=10).play()
        finally:
            engine.cancel()

    run_in_virtual_time(run())


def test_a_recording_shows_the_conversation(recording: WireRecording) -> None:
    expect(recording).said("I look.").tool("Bash").asked().allowed().returned("a.txt").turn_ended(text="Done.")


def test_the_engine_of_a_recording_is_replayed_at_its_pace_to_a_client_with_other_ids(recording: WireRecording) -> None:
    first = converse(replay_wire(recording, pace=1))

    assert round(first[0], 3) == 2
    expect(first[1]).tool("Bash").allowed().turn_ended(text="Done.").turn_ended(text="Again.")
    assert converse(replay_wire(recording)) == (0, first[1])


def test_the_client_of_a_recording_is_replayed_to_an_engine(recording: WireRecording) -> None:
    replay_to_engine(recording, SCENARIO)


AGAIN = '{ say = "Again." }'


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ('"Done."', '"Ready."', r'talk.jsonl:11: assistant differs at .*text: recorded "Done.", found "Ready."'),
        ('"a.txt"', '"b.txt"', r"talk.jsonl:10: user differs at \$.message.content\[0\].content"),
        ("ask = true, ", "", r"talk.jsonl:8: expected control_request can_use_tool from the engine, found user"),
        ('result = "a.txt"', 'result = "a.txt", result_id = "t"', "the recorded id was another one before"),
        (AGAIN, "{ exit = 3 }", r"talk.jsonl:15: expected assistant from the engine, found the end of the stream"),
        (AGAIN, "{ hang = true }", r"talk.jsonl:15: expected assistant from the engine, found nothing for 10 seconds"),
        (
            AGAIN,
            f'{AGAIN}, {{ say = "More." }}',
            "talk.jsonl:16: expected result success from the engine, found assistant",
        ),
    ],
)
def test_an_engine_that_differs_is_reported_with_the_line(
    recording: WireRecording, old: str, new: str, difference: str
) -> None:
    assert old in SCENARIO

    with pytest.raises(ReplayDifference, match=difference):
        replay_to_engine(recording, SCENARIO.replace(old, new))


@pytest.mark.parametrize(
    ("prompts", "decide", "difference"),
    [
        (("one", "three"), allow, r'user differs at $.message.content: recorded "two", found "three"'),
        (("one",), deny, "control_response differs at $.response.response.behavior"),
    ],
)
def test_a_client_that_differs_gets_the_difference_as_its_result(
    recording: WireRecording, prompts: tuple[str, ...], decide: Callable[..., Any], difference: str
) -> None:
    _, messages = converse(replay_wire(recording), *prompts, decide=decide)

    expect(messages[-1:]).turn_ended("error_during_execution", text=difference, is_error=True)


def test_a_redacted_text_equals_any_other(recording: WireRecording) -> None:
    path = Path(recording.name)
    path.write_text(path.read_text().replace('"content\\":\\"two', '"content\\":\\"[redacted]'))
    assert "[redacted]" in path.read_text()

    expect(converse(replay_wire(path), "one", "my secret")[1]).turn_ended().turn_ended(text="Again.")
