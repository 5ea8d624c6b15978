"""The lines between a session and its engine: both directions, without secrets, and as a recording that plays."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from parley.stores.wire_recording import read_wire_recording
from tests.helpers.gateway import Server, following, open_question, run_turn

KEY = "sk-ant-abcdefghijklmnopqrstuvwxyz0123456789"
SPLIT = """
[[turn]]
text = "The key is {key} and the code is hunter2-hunter2."
chunk_chars = 3
"""


async def read_wire(server: Server, session_id: str, limit: int = 50) -> list[list[Any]]:
    """All records, page by page."""
    found: list[list[Any]] = []
    last = 1
    while len(found) < last:
        page = await server.get(f"/sessions/{session_id}/wire?after={len(found)}&limit={limit}")
        assert len(page["lines"]) <= limit
        found += page["lines"]
        last = page["last"]
    return found


async def test_both_directions_are_there_in_order_also_after_a_restart(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        await run_turn(server, session_id, "think Well.\nsay Hello.")
        wire = await read_wire(server, session_id, limit=4)
        async with following(server, session_id) as viewer:
            await viewer.wait_for(viewer.results)
        await server.kill(signal.SIGTERM)
        await server.start()
        assert await read_wire(server, session_id) == wire
        await run_turn(server, session_id, "say Again.")
        longer = await read_wire(server, session_id)
        await server.request("DELETE", f"/sessions/{session_id}")
        assert not list((tmp_path / "config" / "gateway" / "wire").iterdir())
    assert [number for number, *_ in longer] == list(range(1, len(longer) + 1))
    assert longer[: len(wire)] == wire
    times = [at for _, at, *_ in longer]
    assert times == sorted(times)
    prompts = [line for _, _, direction, _, line in wire if direction == "in"]
    assert [prompt["message"]["content"] for prompt in prompts] == ["think Well.\nsay Hello."]
    out = [line for _, _, direction, _, line in wire if direction == "out"]
    assert sum(line["type"] == "stream_event" for line in out) > 5
    stored = [json.loads(line) for _, line in viewer.lines]
    assert [line for line in stored if line["type"] == "assistant"] == [
        line for line in out if line["type"] == "assistant"
    ]
    sizes = {len(line) + 1 for _, line in viewer.lines if '"type":"assistant"' in line}
    assert sizes <= {size for _, _, _, size, _ in wire}


async def test_secrets_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text(SPLIT.format(key=KEY))
    environment = {"MY_PASSWORD": "hunter2-hunter2"}
    settings = {"env": {"ANTHROPIC_API_KEY": "a-key-in-settings"}}
    mcp = {"mcpServers": {"a": {"type": "http", "url": "http://127.0.0.1:9/", "headers": {"X-Api": "a-header-of-mcp"}}}}
    given = ("--settings", json.dumps(settings), "--mcp-config", json.dumps(mcp))
    options = ("--model", f"scripted:{tmp_path}/script.toml", *given)
    async with Server(tmp_path, *options, environment=environment) as server:
        session_id = await server.create()
        await run_turn(server, session_id, f"Here is {KEY}.")
        servers = {"docs": {"type": "http", "url": "http://127.0.0.1:9/", "headers": {"X-Api": "an-own-secret"}}}
        request = {"subtype": "mcp_set_servers", "servers": servers}
        await server.request("POST", f"/sessions/{session_id}/control", request)
        wire = await read_wire(server, session_id, limit=7)
        _, _, recording = await server.fetch(
            "GET", f"/sessions/{session_id}/wire/recording", None, {"Authorization": f"Bearer {server.token}"}
        )
    deltas = [line["event"].get("delta", {}) for *_, line in wire if line["type"] == "stream_event"]
    assert "".join(delta.get("text", "") for delta in deltas) == "The key is [redacted] and the code is [redacted]."
    for shown in (json.dumps(wire), recording.decode()):
        assert "[redacted]" in shown
        for secret in (KEY, "hunter2", "an-own-secret", "a-key-in-settings", "a-header-of-mcp"):
            assert secret not in shown


async def test_an_exported_recording_plays(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    async with Server(folder) as server:
        (server.root / "notes.txt").write_text("one\n")
        session_id = await server.create(options={"permission_mode": "plan"})
        read = json.dumps({"file_path": f"{server.root}/notes.txt"})
        async with following(server, session_id) as viewer:
            await server.request(
                "POST", f"/sessions/{session_id}/control", {"subtype": "set_permission_mode", "mode": "default"}
            )
            content = f'think Hm.\nsay Look.\ncall Read {read}\ncall Bash {{"command": "touch made"}}\nsay Done.'
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": content})
            question = await open_question(server, session_id)
            path = f"/questions/{session_id}/{question['request_id']}/answer"
            await server.request("POST", path, {"behavior": "allow", "updatedInput": question["request"]["input"]})
            await viewer.wait_for(viewer.results)
        await run_turn(server, session_id, "fail 400 It broke.")
        wire = await read_wire(server, session_id)
        status, headers, data = await server.fetch(
            "GET", f"/sessions/{session_id}/wire/recording", None, {"Authorization": f"Bearer {server.token}"}
        )
    assert (status, headers["content-disposition"]) == (200, f'attachment; filename="{session_id}.jsonl"')
    file = tmp_path / "talk.jsonl"
    file.write_bytes(data)
    parley = [sys.executable, "-P", "-m", "parley"]
    command = [*parley, "replay", str(file), "--client", "--", *parley, "replay", str(file)]
    played = await asyncio.to_thread(
        subprocess.run, command, cwd=server.root, capture_output=True, text=True, check=False
    )
    assert played.stdout.startswith("1 of 1 recordings equal"), (played.stdout, played.stderr)
    recorded = [line for line in read_wire_recording(file).lines if not line.eof]
    assert [json.loads(line.data) for line in recorded] == [line for *_, line in wire]


async def test_a_server_can_keep_no_wire_log(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline", "--no-wire-log") as server:
        session_id = await server.create()
        await run_turn(server, session_id, "say Hello.")
        for path in ("wire", "wire/recording"):
            status, answer = await server.request("GET", f"/sessions/{session_id}/{path}")
            assert (status, answer["error"]["code"]) == (404, "no_wire_log")
        assert not list((tmp_path / "config" / "gateway" / "wire").iterdir())
