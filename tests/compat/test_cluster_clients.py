"""The official clients on a gateway of a cluster whose hosts are killed meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.models.script import ScriptedCall, ScriptedTurn
from tests.compat.harness import Stage
from tests.compat.install import Client
from tests.helpers.cluster import DyingLocalCluster

pytest_plugins = ["tests.compat.clients"]
DELAY_MS = 1200
"""How long the model thinks, so that a host dies in the middle of a turn."""


@pytest.mark.parametrize("connection", ["websocket", "sse"])
def test_a_conversation_while_hosts_are_killed(typescript_sdk: Client, connection: str, tmp_path: Path) -> None:
    clusters: list[DyingLocalCluster] = []

    def start(*options: Any, **settings: Any) -> DyingLocalCluster:
        clusters.append(DyingLocalCluster(*options, **settings))
        return clusters[-1]

    stage = Stage(typescript_sdk, tmp_path, connection=connection, server=start)
    write = {"file_path": str(stage.directory / "made.txt"), "content": "one"}
    # A host that dies takes the answer with it that it was about to record, so any of these may be missing.
    turns = [
        ScriptedTurn(tools=[ScriptedCall(name="Write", id="t1", input=write)]),
        ScriptedTurn(tools=[ScriptedCall(name="mcp__host__secret", id="t2", input={})]),
        ScriptedTurn(text="Made.", delay_ms=DELAY_MS),
    ]
    report = stage.run("attached", turns)

    assert report.of("raised") == []
    assert set(report.of("asked")) <= {"Write", "mcp__host__secret"}
    texts = [message["result"] for message in report.messages if message["type"] == "result"]
    assert texts == ["Made."] * (3 if connection == "sse" else 2)
    said = [message for message in report.messages if message["type"] in ("assistant", "result")]
    assert len({message["uuid"] for message in said}) == len(said)
    assert {message["session_id"] for message in said} == {report.of("first")[0]["id"]}
    assert clusters[0].kills > 0
