"""A custom transport: lines out, objects in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from parley import CLIConnectionError, Client, Options, ResultMessage, Transport, query
from tests.helpers.sdk import LOOPS, ClientHarness, kinds, run


class Played(Transport):
    """A fake engine: it answers the handshake and every prompt."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.is_closed = False

    async def connect(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[Any](99)

    async def write(self, data: str) -> None:
        line = json.loads(data)
        self.written.append(line)
        if line["type"] == "control_request":
            answer = {"subtype": "success", "request_id": line["request_id"], "response": {"commands": []}}
            await self._send.send({"type": "control_response", "response": answer})
        elif line["type"] == "user":
            await self._send.send(result(line["message"]["content"]))

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async with self._receive:
            async for message in self._receive:
                yield message

    async def close(self) -> None:
        self.is_closed = True
        self._send.close()

    def is_ready(self) -> bool:
        return not self.is_closed

    async def end_input(self) -> None:
        self._send.close()


def result(text: str) -> dict[str, Any]:
    counts = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
    return {"type": "result", "subtype": "success", "is_error": False, "session_id": "s", "result": text, **counts}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_query_uses_a_custom_transport(loop: str) -> None:
    transport = Played()

    async def play() -> list[Any]:
        return [message async for message in query(prompt="Hi", options=Options(), transport=transport)]

    messages = run(loop, play)

    assert kinds(messages) == ["ResultMessage:success"]
    assert messages[0].result == "Hi"
    assert [line["type"] for line in transport.written] == ["control_request", "user"]
    assert transport.is_closed


def test_verbatim_prompts_are_marked_on_every_line() -> None:
    transport = Played()

    async def play() -> None:
        async with Client(Options(verbatim_prompts=True), transport) as client:
            await client.query("one")
            async for message in client.receive_response():
                assert isinstance(message, ResultMessage)
            await client.query(prompts())

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "two"}}

    run("asyncio", play)

    assert [line.get("client_composed") for line in transport.written if line["type"] == "user"] == [True, True]


def test_a_prompt_without_a_session_gets_one_and_one_that_has_it_keeps_it() -> None:
    transport = Played()

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "two"}}
        yield {"type": "user", "message": {"role": "user", "content": "three"}, "session_id": "mine"}

    async def play() -> None:
        async with Client(Options(), transport) as client:
            await client.query("one", session_id="first")
            await client.query(prompts())

    run("asyncio", play)

    assert [line["session_id"] for line in transport.written if line["type"] == "user"] == ["first", "default", "mine"]


def test_a_transport_that_is_not_ready_is_a_connection_error() -> None:
    transport = Played()

    async def play() -> None:
        async with Client(Options(), transport) as client:
            transport.is_closed = True
            await client.query("too late")

    with pytest.raises(CLIConnectionError, match="not ready"):
        run("asyncio", play)


def test_the_sessions_own_engine_is_one_stage_among_others(harness: ClientHarness) -> None:
    """The same program ends in the same way over a transport and with an engine in this process."""

    async def play(options: Options, transport: Any) -> list[Any]:
        return [message async for message in query(prompt="Hello.", options=options, transport=transport)]

    over = run("asyncio", play, Options(), Played())
    within = run("asyncio", play, harness.options("local"), None)

    assert kinds(over)[-1:] == kinds(within)[-1:]
    assert over[-1].result == within[-1].result == "Hello."
