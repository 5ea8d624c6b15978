"""The MCP client with an in-memory server and a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from parley.jsonrpc import RpcError
from parley.mcp.base import ConnectionLost, ServerTransport
from parley.mcp.client import McpClient, RequestTimeout
from parley.protocol.base import Json
from parley.testing.virtual_time import run_in_virtual_time

FACTS = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "far"}}


class Far(ServerTransport):
    """A server on an in-memory transport. `act` handles each message."""

    def __init__(self, act: Callable[[Far, Json], Awaitable[None]]) -> None:
        self.heard: list[Json] = []
        self._act = act
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, on_message: Callable[[Json], None], on_lost: Callable[[ConnectionLost | str], None]) -> None:
        self.say, self.lose = on_message, on_lost

    async def send(self, message: Json) -> None:
        self.heard.append(message)
        if message.get("method") == "initialize":
            self.reply(message, FACTS)
            return
        if message.get("method") == "server/discover":
            self.say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}})
            return
        task = asyncio.ensure_future(self._act(self, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def reply(self, message: Json, result: Any) -> None:
        self.say({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def progress(self, message: Json) -> None:
        token = message["params"]["_meta"]["progressToken"]
        self.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token}})

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def stderr_tail(self) -> str:
        return ""


async def nobody(method: str, params: Json) -> Json:
    raise RpcError(-32601, f"{method} is not offered")


def meeting(
    act: Callable[[Far, Json], Awaitable[None]],
    work: Callable[[McpClient, Far], Awaitable[Any]],
    answer: Callable[[str, Json], Awaitable[Json]] = nobody,
) -> tuple[float, Any]:
    """The virtual duration, and the result."""

    async def met() -> Any:
        far = Far(act)
        client = McpClient(far, on_request=answer)
        await client.connect({})
        try:
            return await work(client, far)
        finally:
            await client.close()

    return run_in_virtual_time(met())


async def call(client: McpClient, far: Far) -> Json:
    return await client.request("tools/call", {"name": "slow"}, seconds=60, progress=lambda news: None)


def test_a_call_of_ten_minutes_is_waited_for_as_long_as_it_shows_progress() -> None:
    async def act(far: Far, message: Json) -> None:
        if message["method"] == "tools/call":
            for _ in range(12):
                await asyncio.sleep(50)
                far.progress(message)
            far.reply(message, {"content": []})

    seconds, answer = meeting(act, call)

    assert answer == {"content": []}
    assert seconds == pytest.approx(600, abs=1)


def test_a_call_without_a_sign_is_given_up_at_its_limit_and_the_server_is_informed() -> None:
    async def act(far: Far, message: Json) -> None:
        if message["method"] == "tools/call":
            await asyncio.sleep(50)
            far.progress(message)

    async def work(client: McpClient, far: Far) -> Json:
        with pytest.raises(RequestTimeout, match="got no response and no progress for 60 s"):
            await call(client, far)
        await asyncio.sleep(0)
        return far.heard[-1]

    seconds, last = meeting(act, work)

    assert seconds == pytest.approx(110, abs=1)
    assert last["method"] == "notifications/cancelled"
    assert last["params"] == {"requestId": 1, "reason": "timed out"}


def test_no_time_runs_while_the_server_waits_for_a_person() -> None:
    async def act(far: Far, message: Json) -> None:
        if message.get("method") == "tools/call":
            far.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}})
        elif message.get("id") == "q":
            await asyncio.sleep(59)
            far.reply({"id": 1}, {"content": [message["result"]]})

    async def person(method: str, params: Json) -> Json:
        await asyncio.sleep(100_000)
        return {"action": "accept"}

    seconds, answer = meeting(act, call, person)

    assert answer == {"content": [{"action": "accept"}]}
    assert seconds == pytest.approx(100_059, abs=1)


def test_a_lost_server_ends_every_wait_with_the_reason() -> None:
    async def act(far: Far, message: Json) -> None:
        if message["method"] == "tools/call":
            far.lose("ended with exit code 3")

    async def work(client: McpClient, far: Far) -> None:
        with pytest.raises(ConnectionLost, match="ended with exit code 3"):
            await call(client, far)
        with pytest.raises(ConnectionLost, match="ended with exit code 3"):
            await call(client, far)

    meeting(act, work)


def test_answers_may_come_in_any_order_and_those_no_one_waits_for_mean_nothing() -> None:
    waiting: list[Json] = []

    async def act(far: Far, message: Json) -> None:
        if "id" in message:
            waiting.append(message)
        if len(waiting) == 32:
            far.say({"jsonrpc": "2.0", "id": 999, "result": {}})
            far.say({"jsonrpc": "2.0", "id": "1", "result": {}})
            for one in reversed(waiting):
                far.reply(one, {"name": one["params"]["name"]})
                far.reply(one, {"name": "a second answer"})

    async def work(client: McpClient, far: Far) -> list[Json]:
        calls = [client.request("tools/call", {"name": str(number)}, seconds=60) for number in range(32)]
        return await asyncio.gather(*calls)

    _, answers = meeting(act, work)

    assert answers == [{"name": str(number)} for number in range(32)]


def test_a_list_is_read_page_by_page_and_an_endless_one_is_not() -> None:
    async def act(far: Far, message: Json) -> None:
        if message["method"] == "tools/list":
            page = int(message.get("params", {}).get("cursor", "0"))
            far.reply(message, {"tools": [{"name": f"t{page}"}, "odd"], "nextCursor": str(page + 1)})

    async def work(client: McpClient, far: Far) -> list[Json]:
        return await client.list_all("tools/list", "tools", 60)

    _, found = meeting(act, work)

    assert found[:2] == [{"name": "t0"}, {"name": "t1"}]
    assert len(found) == 100


def test_a_request_of_the_server_that_we_do_not_know_is_refused_and_a_ping_answered() -> None:
    async def act(far: Far, message: Json) -> None:
        if message.get("method") == "tools/call":
            far.say({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {}})
            far.say({"jsonrpc": "2.0", "id": 8, "method": "ping"})
        elif message.get("id") == 8:
            far.reply({"id": 1}, {})

    async def work(client: McpClient, far: Far) -> list[Json]:
        await call(client, far)
        return far.heard[-2:]

    _, (refused, pong) = meeting(act, work)

    assert refused["error"] == {"code": -32601, "message": "sampling/createMessage is not offered"}
    assert pong == {"jsonrpc": "2.0", "id": 8, "result": {}}


def test_a_question_that_the_server_withdraws_is_withdrawn_from_the_person() -> None:
    withdrawn: list[str] = []

    async def act(far: Far, message: Json) -> None:
        if message.get("method") == "tools/call":
            far.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}})
            await asyncio.sleep(5)
            far.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}})
            await asyncio.sleep(5)
            far.reply(message, {})

    async def person(method: str, params: Json) -> Json:
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.append(method)
        return {}

    meeting(act, call, person)

    assert withdrawn == ["elicitation/create"]


def test_a_question_of_a_cancelled_call_is_cancelled_too_and_the_server_is_informed() -> None:
    asked: list[str] = []

    async def person(method: str, params: Json) -> Json:
        asked.append(params["of"])
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            asked.append(f"not {params['of']}")
            raise
        return {"action": "accept"}

    async def act(far: Far, message: Json) -> None:
        if message.get("method") == "tools/call":
            question = {"method": "elicitation/create", "params": {"of": "the call"}}
            far.say({"jsonrpc": "2.0", "id": f"of {message['id']}", **question})

    async def work(client: McpClient, far: Far) -> None:
        far.say({"jsonrpc": "2.0", "id": "own", "method": "elicitation/create", "params": {"of": "the server"}})
        calls = [asyncio.create_task(call(client, far)) for _ in range(2)]
        await asyncio.sleep(1)
        for one in calls:
            one.cancel()
            await asyncio.wait({one})
        await asyncio.sleep(200)

    _, far = meeting(act, lambda client, far: returning(work(client, far), far), person)
    # The first request may belong to either call, so it stays open for the second one.
    assert asked == ["the server", "the call", "the call", "not the call", "not the call"]
    answers = {message["id"]: message for message in far.heard if "method" not in message}
    assert answers["own"]["result"] == {"action": "accept"}
    assert {number: "error" in answer for number, answer in answers.items()} == {
        "own": False,
        "of 1": True,
        "of 2": True,
    }


async def returning(work: Awaitable[None], far: Far) -> Far:
    await work
    return far


def test_true_is_not_the_number_1() -> None:
    async def act(far: Far, message: Json) -> None:
        if message.get("method") == "tools/call":
            wrong: list[Any] = [True, str(message["id"]), message["id"] + 0.5, None, [1], {}]
            for number in wrong:
                far.say({"jsonrpc": "2.0", "id": number, "result": {"content": "wrong"}})
            far.reply(message, {"content": "right"})

    _, found = meeting(act, call)
    assert found == {"content": "right"}


def test_what_a_server_asks_of_us_alone_gives_its_call_no_more_time() -> None:
    async def act(far: Far, message: Json) -> None:
        if message.get("method") == "tools/call":
            for number in range(100):
                await asyncio.sleep(10)
                far.say({"jsonrpc": "2.0", "id": f"q{number}", "method": ("roots/list", "ping", "x")[number % 3]})

    async def work(client: McpClient, far: Far) -> None:
        with pytest.raises(RequestTimeout):
            await call(client, far)

    seconds, _ = meeting(act, work)
    assert seconds == 60
