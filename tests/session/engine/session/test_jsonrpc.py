"""What the engine does for a host that speaks JSON-RPC: real sessions, real tools."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.helpers.session import Json, SessionHarness

BACKGROUND = """
[[turn]]
tools = [{ name = "Bash", input = { command = "while [ ! -e go ]; do sleep 0.02; done", run_in_background = true } }]
[[turn]]
text = "Begun."
[[turn]]
text = "It is over."
delay_ms = 60000
[[turn]]
tools = [{ name = "Bash", input = { command = "touch ran" } }]
[[turn]]
text = "Ran."
"""


def call(method: str, id: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def answer(harness: SessionHarness, id: str) -> Json:
    return await harness.receive_until(lambda line: line["id"] == id)


async def is_beside(harness: SessionHarness) -> None:
    """Until the turn of the background task runs."""
    async with asyncio.timeout(60):
        while harness.session.runner.current is None or not harness.session.runner.current.is_cancellable:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_run_that_waits_for_a_background_task_is_taken_back_and_then_the_task_is_cancelled(
    tmp_path: Path,
) -> None:
    async with SessionHarness(tmp_path, BACKGROUND, dialect="jsonrpc", permission_mode="bypassPermissions") as harness:
        harness.send(call("run", "r1", prompt="Work"))
        await harness.receive("result")
        (tmp_path / "go").touch()
        await is_beside(harness)
        harness.send(call("run", "r2", prompt="More"), call("cancel", "c1"))
        assert (await answer(harness, "r2"))["error"]["code"] == -32003
        assert (await answer(harness, "c1"))["result"]["request_id"] == "r1"
        harness.send(call("cancel", "c2"))
        assert (await answer(harness, "c2"))["result"]["running"] is False

    assert not (tmp_path / "ran").exists()
    ends = [(line["id"], line["result"]["subtype"]) for line in harness.messages("result")]
    assert ends == [("r1", "success"), ("r1", "cancelled")]
