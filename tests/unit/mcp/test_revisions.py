"""Which revision of MCP is chosen, and requests of several round trips, with a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from parley.jsonrpc import RpcError
from parley.mcp.base import ConnectionLost, ServerTransport
from parley.mcp.client import (
    MAX_POLL_SECONDS,
    MAX_ROUNDS,
    PROBE_SECONDS,
    STATELESS_VERSION,
    McpClient,
    RequestTimeout,
    run_rounds,
)
from parley.protocol.base import Json
from parley.testing.virtual_time import run_in_virtual_time

OLD = {"protocolVersion": "2025-11-25", "capabilities": {}}
NEW = {"supportedVersions": [STATELESS_VERSION], "capabilities": {"tools": {}}}
UNKNOWN = RpcError(-32601, "unknown method")


class Far(ServerTransport):
    """A server. `answers` has, for a method: how long it takes, and the result or error; None for silence."""

    def __init__(self, answers: dict[str, tuple[float, Any]]) -> None:
        self.answers = answers
        self.heard: list[Json] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, on_message: Callable[[Json], None], on_lost: Callable[[ConnectionLost | str], None]) -> None:
        self.say = on_message

    async def send(self, message: Json) -> None:
        self.heard.append(message)
        task = asyncio.ensure_future(self._answer(message))
        self._tasks.add(task)

    async def _answer(self, message: Json) -> None:
        seconds, answer = self.answers.get(message["method"], (0.0, None))
        await asyncio.sleep(seconds)
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, RpcError):
            error = {"code": answer.code, "message": str(answer)}
            self.say({"jsonrpc": "2.0", "id": message["id"], "error": error})
        elif answer is not None:
            self.say({"jsonrpc": "2.0", "id": message["id"], "result": answer})

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def stderr_tail(self) -> str:
        return ""

    def methods(self) -> list[str]:
        return [message["method"] for message in self.heard]


async def accept(method: str, params: Json) -> Json:
    return {"action": "accept", "content": {"asked": params.get("message")}}


def meet(far: Far, work: Callable[[McpClient], Awaitable[Any]], *, is_old: bool = False) -> tuple[float, Any]:
    """The virtual duration, and what the work returns once the server is connected."""

    async def met() -> Any:
        client = McpClient(far, on_request=accept)
        try:
            await client.connect({}, is_old=is_old)
            return await work(client)
        finally:
            await client.close()

    return run_in_virtual_time(met())


async def version(client: McpClient) -> str:
    return client.version


@pytest.mark.parametrize(
    ("discover", "initialize", "spoken", "seconds"),
    [
        ((0.0, NEW), (0.0, OLD), STATELESS_VERSION, 0.0),
        ((0.0, UNKNOWN), (0.0, OLD), "2025-11-25", 0.0),
        ((0.0, {}), (0.0, OLD), "2025-11-25", 0.0),
        ((0.0, UNKNOWN), (0.0, {**OLD, "supportedVersions": [STATELESS_VERSION]}), "2025-11-25", 0.0),
        ((0.0, {"supportedVersions": ["2025-11-25"]}), (0.0, OLD), "2025-11-25", 0.0),
        ((0.0, None), (0.0, OLD), "2025-11-25", PROBE_SECONDS),
        # Slow to start: both wait in the server's input.
        ((40.0, NEW), (40.0 - PROBE_SECONDS, RpcError(-32022, "no")), STATELESS_VERSION, 40.0),
        ((40.0, NEW), (40.0 - PROBE_SECONDS, OLD), STATELESS_VERSION, 40.0),
        ((40.0, UNKNOWN), (40.0 - PROBE_SECONDS, OLD), "2025-11-25", 40.0),
        ((40.0, None), (40.0 - PROBE_SECONDS, OLD), "2025-11-25", 40.0),
    ],
)
def test_the_first_answer_decides(
    discover: tuple[float, Any], initialize: tuple[float, Any], spoken: str, seconds: float
) -> None:
    far = Far({"server/discover": discover, "initialize": initialize})

    took, found = meet(far, version)

    assert found == spoken
    assert took == pytest.approx(seconds, abs=0.01)


def test_a_server_that_rejects_both_fails_with_what_it_says_about_the_handshake() -> None:
    far = Far({"server/discover": (0.0, None), "initialize": (0.0, RpcError(-32000, "no vacancies"))})

    with pytest.raises(RpcError, match="no vacancies"):
        meet(far, version)


def test_a_server_that_was_old_is_initialized_first_and_may_have_become_new() -> None:
    old = Far({"initialize": (0.0, OLD)})
    assert meet(old, version, is_old=True) == (0.0, "2025-11-25")
    assert old.methods() == ["initialize", "notifications/initialized"]

    new = Far({"initialize": (0.0, UNKNOWN), "server/discover": (0.0, NEW)})
    assert meet(new, version, is_old=True) == (0.0, STATELESS_VERSION)


def test_a_server_that_never_stops_asking_fails_the_call() -> None:
    asks = {"resultType": "input_required", "inputRequests": {"q": {"method": "elicitation/create", "params": {}}}}
    far = Far({"server/discover": (0.0, NEW), "tools/call": (0.0, asks)})

    with pytest.raises(RpcError, match=f"more than {MAX_ROUNDS} times"):
        meet(far, run)
    assert far.methods().count("tools/call") == MAX_ROUNDS + 1


def test_an_answer_goes_to_its_own_request_only() -> None:
    asks = {"resultType": "input_required", "inputRequests": {"q": {"method": "elicitation/create", "params": {}}}}
    states = [{**asks, "requestState": "one"}, asks, {"resultType": "input_required", "requestState": "two"}, {}]
    far = Far({"server/discover": (0.0, NEW), "tools/call": (0.0, states)})

    meet(far, run)

    sent = [message["params"] for message in far.heard if message["method"] == "tools/call"]
    answers = {"q": {"action": "accept", "content": {"asked": None}}}
    rounds = [{key: value for key, value in params.items() if key not in ("name", "_meta")} for params in sent]
    assert rounds == [
        {},
        {"inputResponses": answers, "requestState": "one"},
        {"inputResponses": answers},
        {"requestState": "two"},
    ]


async def give_up() -> McpClient:
    raise ConnectionLost("there is no other connection")


async def run(client: McpClient, seconds: float | None = 60) -> Json:
    return await run_rounds(client, "tools/call", {"name": "x"}, seconds=seconds, reconnect=give_up)


def make_task(**fields: Any) -> Far:
    created = {"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 1000}
    answers = {"tools/call": (0.0, created), "tasks/cancel": (0.0, {})}
    return Far({"server/discover": (0.0, NEW), **answers, "tasks/get": (0.0, {"taskId": "t", **fields})})


def test_a_task_that_shows_no_change_is_given_up_and_cancelled() -> None:
    far = make_task(status="working", lastUpdatedAt="then", pollIntervalMs=1000)

    async def work(client: McpClient) -> None:
        with pytest.raises(RequestTimeout, match="no change for 60 s"):
            await run(client)
        await asyncio.sleep(0)

    meet(far, work)

    assert far.methods()[-1] == "tasks/cancel"
    assert far.heard[-1]["params"]["taskId"] == "t"


def test_a_task_whose_call_is_interrupted_is_cancelled() -> None:
    far = make_task(status="working")

    async def work(client: McpClient) -> None:
        call = asyncio.ensure_future(run(client, None))
        await asyncio.sleep(100)
        call.cancel()
        await asyncio.sleep(1)

    meet(far, work)

    assert far.methods()[-1] == "tasks/cancel"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"status": "failed", "error": {"code": -32603, "message": "out of glue"}}, "out of glue"),
        ({"status": "failed", "statusMessage": "no wood"}, "no wood"),
        ({"status": "cancelled", "statusMessage": "closing time"}, "the server cancelled the task: closing time"),
    ],
)
def test_a_task_that_ends_badly_fails_the_call(fields: Json, text: str) -> None:
    with pytest.raises(RpcError, match=text):
        meet(make_task(**fields), run)


def test_a_list_expires_when_the_server_says_so() -> None:
    far = Far({"server/discover": (0.0, NEW), "tools/list": (0.0, {"tools": [], "ttlMs": 5000})})

    async def work(client: McpClient) -> tuple[bool, bool]:
        await client.list_all("tools/list", "tools", None)
        await asyncio.sleep(4)
        early = client.is_expired("tools/list")
        await asyncio.sleep(2)
        return early, client.is_expired("tools/list")

    assert meet(far, work)[1] == (False, True)


def test_a_time_that_no_server_means_is_limited() -> None:
    never = {"tools": [], "ttlMs": 10**400}
    far = Far({"server/discover": (0.0, NEW), "tools/list": (0.0, never), **make_task().answers})
    far.answers["tasks/get"] = (0.0, [{"status": "working", "pollIntervalMs": 10**400}, {"status": "completed"}])

    async def work(client: McpClient) -> Json:
        await client.list_all("tools/list", "tools", None)
        assert not client.is_expired("tools/list")
        return await run(client)

    seconds, result = meet(far, work)

    assert result == {}
    assert seconds == pytest.approx(1 + MAX_POLL_SECONDS)
