"""What arrives while a session is unloaded or deleted is neither lost nor written elsewhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.helpers.gateway import PATIENCE_SECONDS, Server


async def wait_until_unloaded(server: Server, session_id: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await server.request("GET", f"/sessions/{session_id}"))[1]["last_line"] is not None:
            await asyncio.sleep(0.05)


def read_lines(server: Server, session_id: str) -> list[dict[str, object]]:
    path = server.folder / "config" / "gateway" / "lines" / f"{session_id}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


async def wait_for_results(server: Server, session_id: str, count: int) -> list[dict[str, object]]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            results = [line for line in read_lines(server, session_id) if line["type"] == "result"]
            if len(results) >= count:
                return results
            await asyncio.sleep(0.05)


async def test_a_body_that_arrives_after_its_session_was_unloaded(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline", "--idle-seconds", "0") as server:
        session_id = await server.create()
        payload = {"type": "user", "message": {"role": "user", "content": "say Late."}}
        body = json.dumps({"events": [{"payload": payload}]}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST /v1/code/sessions/{session_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        head += f"Authorization: Bearer {server.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body[:1])
        await writer.drain()
        await wait_until_unloaded(server, session_id)
        others = [await server.create() for _ in range(3)]  # one of them gets the descriptor of its log
        writer.write(body[1:])
        assert b" 202 " in await reader.readline()
        writer.close()
        results = await wait_for_results(server, session_id, 1)
        assert results[0]["result"] == "Late."
        assert [read_lines(server, other) for other in others] == [[], [], []]
