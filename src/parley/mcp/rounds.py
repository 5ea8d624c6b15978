"""Requests that take several round trips, in MCP 2026-07-28.

    result = await run_rounds(client, "tools/call", params, seconds=60, reconnect=find_next_client)

A result can be `input_required`: the questions in it are answered like requests of the server, and the request is sent
again with the answers and the server's state. Or it is a task (the extension `io.modelcontextprotocol/tasks`): it is
polled to its end, also over a connection that replaces a lost one, and its questions are answered by `tasks/update`. If
the caller gives up, the task is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from parley.mcp.base import ConnectionLost, ServerError
from parley.mcp.client import McpClient, Progress, RequestTimeout, as_object, read_seconds
from parley.mcp.content import clean
from parley.mcp.tool_server import INTERNAL_ERROR
from parley.protocol.base import Json

MAX_ROUNDS = 10
"""How often a server may ask for input during one request."""
STATE_PAUSE_SECONDS = 0.25
"""Before a request is sent again whose server wants nothing but its state back."""
POLL_SECONDS = 1.0
"""Between polls, unless the server says otherwise."""
MIN_POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 60.0
CANCEL_SECONDS = 10.0


async def run_rounds(
    client: McpClient,
    method: str,
    params: Json,
    *,
    seconds: float | None,
    reconnect: Callable[[], Awaitable[McpClient]],
    progress: Progress | None = None,
) -> Json:
    """The final result of a request. Raises ConnectionLost, ServerError or RequestTimeout.

    `reconnect` waits for the client that follows a lost one, and raises what the caller gets if there is none.
    """
    result = await client.request(method, params, seconds=seconds, progress=progress)
    if not client.is_stateless:
        return result
    for _ in range(MAX_ROUNDS):
        if result.get("resultType") != "input_required":
            break
        again = {**params}
        if requests := as_object(result.get("inputRequests")):
            again["inputResponses"] = await answer_all(client, requests)
        else:
            await asyncio.sleep(STATE_PAUSE_SECONDS)
        if isinstance(result.get("requestState"), str):
            again["requestState"] = result["requestState"]
        result = await client.request(method, again, seconds=seconds, progress=progress)
    if result.get("resultType") == "input_required":
        raise ServerError(INTERNAL_ERROR, f"the server asked for input more than {MAX_ROUNDS} times")
    if result.get("resultType") == "task":
        return await poll_task(client, result, seconds, reconnect, progress)
    return result


async def answer_all(client: McpClient, requests: Json) -> Json:
    """The answers to the server's questions, asked one after the other. Raises ServerError."""
    asked = {key: as_object(request) for key, request in requests.items()}
    return {
        key: await client.answer(str(one.get("method")), as_object(one.get("params"))) for key, one in asked.items()
    }


async def poll_task(
    client: McpClient,
    task: Json,
    seconds: float | None,
    reconnect: Callable[[], Awaitable[McpClient]],
    progress: Progress | None,
) -> Json:
    """The result of a task. Raises ConnectionLost, ServerError, or RequestTimeout if nothing changes for `seconds`."""
    id, clock = {"taskId": task.get("taskId")}, asyncio.get_running_loop().time
    answered: set[str] = set()
    state, changed_at = None, clock()
    try:
        while True:
            interval = read_seconds(task.get("pollIntervalMs"), POLL_SECONDS)
            await asyncio.sleep(min(max(interval, MIN_POLL_SECONDS), MAX_POLL_SECONDS))
            try:
                task = await client.request("tasks/get", id, seconds=seconds)
            except ConnectionLost:
                client = await reconnect()
                continue
            message = clean(str(task.get("statusMessage") or ""))
            match task.get("status"):
                case "completed":
                    return as_object(task.get("result"))
                case "failed":
                    error = as_object(task.get("error"))
                    text = error.get("message") or message or "the task failed without an error message"
                    raise ServerError(error.get("code"), str(text))
                case "cancelled":
                    raise ServerError(INTERNAL_ERROR, f"the server cancelled the task: {message or 'no reason given'}")
                case "input_required":
                    # A poll may repeat questions whose answers the server has not read yet.
                    requests = as_object(task.get("inputRequests"))
                    if new := {key: requests[key] for key in requests.keys() - answered}:
                        answered |= new.keys()
                        responses = await answer_all(client, new)
                        await client.request("tasks/update", {**id, "inputResponses": responses}, seconds=seconds)
                        changed_at = clock()
            before, state = state, (task.get("status"), message, task.get("lastUpdatedAt"))
            if state != before:
                changed_at = clock()
                if progress is not None:
                    progress({"message": message})
            elif seconds is not None and clock() - changed_at > seconds:
                raise RequestTimeout(f"the task showed no change for {seconds:g} s")
    except (asyncio.CancelledError, RequestTimeout):
        client.start_task(client.request("tasks/cancel", id, seconds=CANCEL_SECONDS))
        raise
