"""The official clients on a gateway of a cluster whose hosts are killed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.models.fake.script import ScriptedCall, ScriptedTurn
from tests.compat.harness import Stage
from tests.compat.install import Client
from tests.helpers.gateway_process import DyingCluster

DELAY_MS = 1500
"""How long the model thinks, so that a host dies in the middle of a turn."""
pytest_plugins = ["tests.compat.clients"]


@pytest.mark.parametrize("connection", ["websocket", "sse", "direct"])
def test_a_conversation_while_hosts_are_killed(typescript_sdk: Client, connection: str, tmp_path: Path) -> None:
    stage = Stage(typescript_sdk, tmp_path, connection=connection, server=DyingCluster)
    path = stage.directory / "made.txt"
    secret = ScriptedTurn(tools=[ScriptedCall(name="mcp__host__secret", id="t2", input={})], delay_ms=DELAY_MS)
    once_more = [secret, ScriptedTurn(text="Told.", delay_ms=DELAY_MS)] if connection == "sse" else []
    write = ScriptedCall(name="Write", id="t1", input={"file_path": str(path), "content": "one"})
    turns = [
        ScriptedTurn(tools=[write], delay_ms=DELAY_MS),
        secret,
        ScriptedTurn(text="Made.", delay_ms=DELAY_MS),
        *once_more,
        ScriptedTurn(text="Again."),
    ]
    report = stage.run("attached", turns)

    told = ["Told."] if once_more else []
    texts = [message["result"] for message in report.messages if message["type"] == "result"]
    assert report.of("raised") == []
    assert texts == (["Made."] if connection == "direct" else ["Made.", *told, "Again."])
    uuids = [message["uuid"] for message in report.messages if message["type"] in ("assistant", "result")]
    assert len(uuids) == len(set(uuids))
    assert {message["session_id"] for message in report.messages} == {report.of("first")[0]["id"]}
