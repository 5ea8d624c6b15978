"""What arrives while a session is unloaded or deleted is neither lost nor written elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Self

import pytest

from parley.gateway.hub import SERVER, HubSettings, SessionHub
from parley.gateway.live_session import LiveSession, digest_of
from parley.gateway.refusal import Refusal
from parley.gateway.session_log.records import PromptTakenRecord
from parley.gateway.session_options import SessionRequest
from tests.helpers.gateway import Server
from tests.helpers.patience import PATIENCE_SECONDS


async def wait_until_unloaded(server: Server, session_id: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            _, info = await server.request("GET", f"/sessions/{session_id}")
            if info["last_line"] is None:
                return
            await asyncio.sleep(0.05)


async def read_lines(server: Server, session_id: str) -> list[dict[str, object]]:
    _, page = await server.request("GET", f"/sessions/{session_id}/lines")
    return [line for _, _, line in page["lines"]]


async def wait_for_results(server: Server, session_id: str, count: int) -> list[dict[str, object]]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            results = [line for line in await read_lines(server, session_id) if line["type"] == "result"]
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
        assert [await read_lines(server, other) for other in others] == [[], [], []]


def record_prompt(hub: SessionHub, session_id: str, uuid: str, line: bytes) -> None:
    log, digest = hub.get(SERVER, session_id).log, digest_of(json.loads(line)["message"])
    log.add_line(line, PromptTakenRecord(uuid=uuid, line=log.last + 1, digest=digest))


class Sessions:
    """A hub in this process, as a server has it."""

    def __init__(self, folder: Path, isolation: str = "task") -> None:
        environment = {**os.environ, "HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "config")}
        settings = HubSettings(
            state=folder / "state",
            root=str(folder),
            argv=("--model", "offline"),
            environment=environment,
            isolation=isolation,
            idle_seconds=0,
        )
        self.hub = SessionHub(settings)
        self.problems: list[str] = []

    async def __aenter__(self) -> Self:
        self.hub.catch_up(self.problems.append)
        self.hub.load_interrupted(self.problems.append)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hub.drain(0)
        self.hub.close()

    def lines(self, live: LiveSession) -> list[dict[str, Any]]:
        return [json.loads(line) for _, line in live.log.read(0, 1 << 30)]

    async def wait_for_results(self, live: LiveSession, count: int) -> list[dict[str, Any]]:
        client = live.attach(SERVER, None, lambda line: True)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    results = [line for line in self.lines(live) if line["type"] == "result"]
                    if len(results) >= count and not live.is_busy:
                        return results
                    await client.subscriber.take()
        finally:
            live.detach(client)


def prompt(text: str, uuid: str = "") -> bytes:
    line = {"type": "user", "message": {"role": "user", "content": text}, **({"uuid": uuid} if uuid else {})}
    return json.dumps(line).encode()


@pytest.mark.parametrize("isolation", ["task", "process"])
async def test_a_prompt_and_a_request_that_arrive_while_the_engine_is_unloaded(tmp_path: Path, isolation: str) -> None:
    async with Sessions(tmp_path, isolation) as sessions:
        live = sessions.hub.create(SERVER, SessionRequest())
        live.prompt(SERVER, prompt("say One."))
        await sessions.wait_for_results(live, 1)
        unloading = asyncio.create_task(sessions.hub.evict_idle())
        await asyncio.sleep(0)
        live.prompt(SERVER, prompt("say Two."))
        reply = live.request(SERVER, {"subtype": "get_session_cost"})
        await unloading
        assert [result["result"] for result in await sessions.wait_for_results(live, 2)] == ["One.", "Two."]
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert json.loads(await reply)["response"]["subtype"] == "success"
        assert sessions.hub.get(SERVER, live.id) is live


async def test_a_session_that_is_being_deleted_is_not_loaded_again(tmp_path: Path) -> None:
    async with Sessions(tmp_path, "process") as sessions:
        live = sessions.hub.create(SERVER, SessionRequest())
        live.prompt(SERVER, prompt("say One."))
        await sessions.wait_for_results(live, 1)
        deleting = asyncio.create_task(sessions.hub.delete(SERVER, live.id))
        await asyncio.sleep(0)
        for use in (lambda: sessions.hub.get(SERVER, live.id), lambda: live.prompt(SERVER, prompt("say Two."))):
            with pytest.raises(Refusal, match="there is no session"):
                use()
        await deleting
        assert live.engine is None


async def test_a_prompt_that_was_recorded_by_a_killed_server_is_shown_and_run_once(tmp_path: Path) -> None:
    async with Sessions(tmp_path) as sessions:
        live = sessions.hub.create(SERVER, SessionRequest())
        line = prompt("say Recorded.", "11111111-1111-4111-8111-111111111111")
        # The state after kill -9 between recording the prompt and everything after that.
        record_prompt(sessions.hub, live.id, "11111111-1111-4111-8111-111111111111", line)
    async with Sessions(tmp_path) as sessions:
        live = sessions.hub.get(SERVER, live.id)
        live.prompt(SERVER, line)  # the client sends it again
        results = await sessions.wait_for_results(live, 1)
        assert [result["result"] for result in results] == ["Recorded."]
        assert [one["message"]["content"] for one in sessions.lines(live) if one["type"] == "user"] == ["say Recorded."]


async def test_a_session_that_cannot_be_loaded_does_not_keep_the_server_from_starting(tmp_path: Path) -> None:
    async with Sessions(tmp_path) as sessions:
        broken, other = (sessions.hub.create(SERVER, SessionRequest()) for _ in range(2))
        for live in (broken, other):
            record_prompt(sessions.hub, live.id, "1", prompt("say Hi.", "1"))
    log = tmp_path / "state" / "logs" / f"{broken.id}.log"
    log.unlink()
    log.mkdir()
    async with Sessions(tmp_path) as sessions:
        assert sessions.problems
        assert all(broken.id in problem for problem in sessions.problems)
        await sessions.wait_for_results(sessions.hub.get(SERVER, other.id), 1)


async def test_results_of_client_tools_do_not_leave_a_session_busy(tmp_path: Path) -> None:
    async with Sessions(tmp_path) as sessions:
        live = sessions.hub.create(SERVER, SessionRequest())
        blocks = [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]
        live.prompt(SERVER, json.dumps({"type": "user", "message": {"role": "user", "content": blocks}}).encode())
        await sessions.wait_for_results(live, 1)
        assert not live.is_busy
