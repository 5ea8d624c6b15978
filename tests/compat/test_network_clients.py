"""What only the network clients of the TypeScript SDK do. Their other checks are those of test_typescript.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.models.script import ScriptedCall, ScriptedTurn
from tests.compat.harness import Report, Stage, conversation, said
from tests.compat.install import Client

pytest_plugins = ["tests.compat.clients"]

CHECKPOINTS = {"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "1"}


def texts(report: Report) -> list[Any]:
    return [message["result"] for message in report.messages if message["type"] == "result"]


@pytest.mark.parametrize("connection", ["websocket", "sse", "direct"])
def test_callbacks_rewind_and_a_second_connection(typescript_sdk: Client, connection: str, tmp_path: Path) -> None:
    stage = Stage(typescript_sdk, tmp_path, connection=connection)
    path = stage.directory / "made.txt"
    secret = ScriptedTurn(tools=[ScriptedCall(name="mcp__host__secret", id="t2", input={})])
    once_more = [secret, ScriptedTurn(text="Told.")] if connection == "sse" else []
    turns = [
        ScriptedTurn(tools=[ScriptedCall(name="Write", id="t1", input={"file_path": str(path), "content": "one"})]),
        secret,
        ScriptedTurn(text="Made."),
        *once_more,
        ScriptedTurn(text="Again."),
    ]
    report = stage.run("attached", turns, env=CHECKPOINTS)

    calls = ["Write", "mcp__host__secret", *(["mcp__host__secret"] if once_more else [])]
    assert report.warnings() == []
    assert report.of("asked") == calls
    assert report.of("hook") == [["PreToolUse", name] for name in calls]
    assert "forty-two" in str(report.requests[2]["messages"][-1])
    (rewound,) = report.of("rewound")
    assert rewound["canRewind"] is True
    assert not path.exists()
    assert [(server["name"], server["status"]) for server in report.of("servers")[0]] == [("host", "connected")]
    if connection == "direct":
        assert texts(report) == ["Made."]
        return
    assert texts(report) == ["Made.", *(["Told."] if once_more else []), "Again."]
    assert conversation(report.requests[-1])[0] == ("user", [said("Make it")])
    assert {message["session_id"] for message in report.messages} == {report.of("first")[0]["id"]}
    if connection == "sse":
        assert report.of("dropped") == [{}, {}]
        steps = ("DELIVERY_STATUS_RECEIVED", "DELIVERY_STATUS_PROCESSING", "DELIVERY_STATUS_PROCESSED")
        assert [each for each in report.of("delivery") if each[0] == report.of("prompt")[0]] == [
            [report.of("prompt")[0], step] for step in steps
        ]
        assert report.of("truncated") == []
        assert len(report.of("stream")) >= 2
        assert (report.of("suspended"), report.of("resumed")) == ([True], [True])
        assert report.of("commands")[0]
