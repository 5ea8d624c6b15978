"""A stream that breaks off: what was told stays, and the next request is whole."""

from __future__ import annotations

import json
from pathlib import Path

from parley.models.event_synthesis import event_objects, message_json
from tests.helpers.http_server import loopback, stream
from tests.helpers.session import Json, SessionHarness

USAGE = {"input_tokens": 1, "output_tokens": 1}


def sse(*events: Json) -> list[bytes]:
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def message(*blocks: Json) -> list[Json]:
    return list(event_objects(message_json(list(blocks), id="msg_1", model="m", usage=USAGE), 40))


async def test_a_call_after_which_the_stream_broke_gets_a_result_and_the_next_turn_works(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "touch never"}}
    cut = [event for event in message(call) if not event["type"].startswith("message_") or "message" in event]
    whole = message({"type": "text", "text": "Fine."})

    async with loopback(stream(*sse(*cut)), stream(*sse(*whole))) as server:
        harness = SessionHarness(tmp_path, "", model="claude-opus-5-5", permission_mode="bypassPermissions")
        harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "CLAUDE_CODE_MAX_RETRIES": "0"}
        async with harness:
            harness.prompt("go")
            failed = await harness.receive("result")
            harness.prompt("again")
            result = await harness.receive("result")
        sent = json.loads(server.heard[1].body)["messages"]
    assert (failed["is_error"], failed["terminal_reason"]) == (True, "api_error")
    assert result["result"] == "Fine."
    assert [block["type"] for block in sent[1]["content"]] == ["tool_use"]
    assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "text"]
    assert not (tmp_path / "never").exists()
