"""Editors on the WebSocket `/acp` of a real `parley serve`."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
import websockets
from websockets.asyncio.client import ClientConnection

from tests.helpers.gateway import Server, Viewer
from tests.helpers.patience import PATIENCE_SECONDS

MADE = 'call Bash {"command": "touch made"}\nsay Done.'


class Editor:
    """A client of ACP. It answers permission requests with `answer`; without one, they stay open."""

    def __init__(self, socket: ClientConnection, answer: str | None = "allow_once") -> None:
        self._socket = socket
        self._answer = answer
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.withdrawn: list[Any] = []
        self._responses: dict[str, Any] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for frame in self._socket:
            message = json.loads(frame)
            match message.get("method"):
                case "session/update":
                    self.updates.append(message["params"]["update"])
                case "session/request_permission":
                    self.asked.append(message)
                    if self._answer is not None:
                        await self.answer(message, self._answer)
                case "$/cancel_request":
                    self.withdrawn.append(message["params"]["requestId"])
                case _:
                    self._responses[message["id"]] = message
            self._changed.set()

    async def answer(self, asked: Any, option: str) -> None:
        outcome = {"outcome": {"outcome": "selected", "optionId": option}}
        await self._socket.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": outcome}))

    async def send(self, method: str, **params: Any) -> str:
        self._count += 1
        message = {"jsonrpc": "2.0", "id": f"{method} {self._count}", "method": method, "params": params}
        await self._socket.send(json.dumps(message))
        return str(message["id"])

    async def receive(self, id: str) -> Any:
        await self.wait_for(lambda: id in self._responses)
        return self._responses.pop(id)

    async def call(self, method: str, **params: Any) -> Any:
        return await self.receive(await self.send(method, **params))

    async def wait_for(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                assert not self._reading.done(), self._reading
                self._changed.clear()
                await self._changed.wait()

    def texts(self, kind: str) -> str:
        return "".join(update["content"]["text"] for update in self.updates if update["sessionUpdate"] == kind)

    async def __aenter__(self) -> Self:
        assert "result" in await self.call("initialize", protocolVersion=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await self._socket.close()

    async def new(self, cwd: Path) -> str:
        made = await self.call("session/new", cwd=str(cwd), mcpServers=[])
        session_id: str = made["result"]["sessionId"]
        return session_id

    async def load(self, session_id: str, cwd: Path) -> Any:
        return await self.call("session/load", sessionId=session_id, cwd=str(cwd), mcpServers=[])

    async def start(self, session_id: str, text: str) -> str:
        """Send a prompt; returns the id of the request."""
        return await self.send("session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": text}])

    async def prompt(self, session_id: str, text: str) -> Any:
        return await self.receive(await self.start(session_id, text))


async def connect(server: Server, token: str | None = None, answer: str | None = "allow_once") -> Editor:
    return Editor(await server.connect("/acp", token), answer)


async def make_token(server: Server, name: str, *scopes: str, tenant: str = "") -> str:
    status, made = await server.request("POST", "/tokens", {"name": name, "scopes": scopes, "tenant": tenant})
    assert status == 201
    return str(made["token"])


async def wait_for_question(server: Server, session_id: str) -> str:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            _, found = await server.request("GET", f"/questions?session={session_id}")
            if found["questions"]:
                return str(found["questions"][0]["request_id"])


@pytest.mark.parametrize("isolation", ["task", "process"])
async def test_a_session_is_one_of_the_gateway(tmp_path: Path, isolation: str) -> None:
    async with Server(tmp_path, "--model", "offline", "--isolation", isolation) as server:
        async with await connect(server) as editor:
            session_id = await editor.new(server.root)
            answered = await editor.prompt(session_id, MADE)
            _, listed = await server.request("GET", "/sessions")
            found = await editor.call("session/list", cwd=str(server.root))
        viewer = Viewer(server, session_id)
        reading = asyncio.create_task(viewer.run())
        await viewer.wait_for(viewer.results)
        reading.cancel()

        assert answered["result"]["stopReason"] == "end_turn"
        assert editor.texts("agent_message_chunk") == "Done."
        assert editor.texts("user_message_chunk") == ""
        assert (server.root / "made").exists()
        assert [session["id"] for session in listed["sessions"]] == [session_id]
        assert [session["sessionId"] for session in found["result"]["sessions"]] == [session_id]
        assert any('"touch made"' in line for _, line in viewer.lines)
        assert await server.kill(signal.SIGTERM) == 0


async def test_a_turn_goes_on_without_the_editor_that_started_it(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        async with await connect(server, answer=None) as editor:
            session_id = await editor.new(server.root)
            await editor.start(session_id, MADE)
            await editor.wait_for(lambda: editor.asked)
        question = await wait_for_question(server, session_id)
        path = f"/questions/{session_id}/{question}/answer"
        status, _ = await server.request("POST", path, {"behavior": "allow"})
        async with await connect(server) as later:
            loaded = await later.load(session_id, server.root)
            await later.wait_for(lambda: "Done." in later.texts("agent_message_chunk"))

    assert status == 200
    assert loaded["result"]["modes"]["currentModeId"] == "default"
    assert later.texts("user_message_chunk") == MADE
    assert later.asked == []
    assert (server.root / "made").exists()


async def test_a_turn_that_runs_is_shown_to_the_end_after_it_was_loaded(tmp_path: Path) -> None:
    command = "until [ -e go ]; do sleep 0.05; done; echo went"
    async with Server(tmp_path, "--model", "offline", "--allowedTools", "Bash") as server:
        async with await connect(server) as editor:
            session_id = await editor.new(server.root)
            text = f'call Bash {{"command": "{command}"}}\nsay Done.'
            await editor.start(session_id, text)
            await editor.wait_for(lambda: any(each["sessionUpdate"] == "tool_call" for each in editor.updates))
        async with await connect(server) as later:
            await later.load(session_id, server.root)
            (server.root / "go").touch()
            await later.wait_for(lambda: later.texts("agent_message_chunk"))

    about = ("available_commands_update", "session_info_update")
    kinds = [each["sessionUpdate"] for each in later.updates if each["sessionUpdate"] not in about]
    assert kinds[:3] == ["user_message_chunk", "tool_call", "tool_call_update"]
    assert [each["status"] for each in later.updates if "status" in each] == ["pending", "completed"]


async def test_a_question_that_is_open_is_asked_again_after_a_kill(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        async with await connect(server, answer=None) as editor:
            session_id = await editor.new(server.root)
            await editor.start(session_id, MADE)
            await editor.wait_for(lambda: editor.asked)
            await server.kill()
        await server.start()
        async with await connect(server) as later:
            await later.load(session_id, server.root)
            await later.wait_for(lambda: later.texts("agent_message_chunk"))
            again = await later.prompt(session_id, "say Again.")
        _, left = await server.request("GET", "/questions")

    assert again["result"]["stopReason"] == "end_turn"
    assert len(later.asked) == 1
    assert later.texts("agent_message_chunk") == "Done.Again."
    assert (server.root / "made").exists()
    assert left == {"questions": []}


async def test_the_editor_is_told_that_somebody_else_has_decided(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, await connect(server, answer=None) as editor:
        session_id = await editor.new(server.root)
        prompt = await editor.start(session_id, MADE)
        await editor.wait_for(lambda: editor.asked)
        question = await wait_for_question(server, session_id)
        path = f"/questions/{session_id}/{question}/answer"
        await server.request("POST", path, {"behavior": "deny", "message": "No."})
        answered = await editor.receive(prompt)

        assert answered["result"]["stopReason"] == "end_turn"
        assert editor.withdrawn == [editor.asked[0]["id"]]
        assert not (server.root / "made").exists()


async def test_prompts_of_others_are_shown(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, await connect(server) as editor:
        session_id = await editor.new(server.root)
        await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "say Hello."})
        await editor.wait_for(lambda: editor.texts("agent_message_chunk"))

    assert editor.texts("user_message_chunk") == "say Hello."
    assert editor.texts("agent_message_chunk") == "Hello."


async def test_an_evicted_session_is_loaded_again(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline", "--idle-seconds", "1") as server:
        async with await connect(server) as editor:
            session_id = await editor.new(server.root)
            await editor.prompt(session_id, "say One.")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await server.request("GET", f"/sessions/{session_id}"))[1]["is_loaded"]:
                pass
        async with await connect(server) as later:
            before = await later.call("session/status", sessionId=session_id)
            here = {"sessionId": session_id, "cwd": str(server.root), "mcpServers": []}
            await later.call("session/resume", **here)
            after = await later.call("session/status", sessionId=session_id)
            answered = await later.prompt(session_id, "say Two.")

    assert (before["result"], after["result"]) == ({"status": "saved"}, {"status": "open"})
    assert answered["result"]["stopReason"] == "end_turn"
    assert later.texts("agent_message_chunk") == "Two."


async def test_closing_a_session_ends_its_turn_and_keeps_it(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, await connect(server, answer=None) as editor:
        session_id = await editor.new(server.root)
        prompt = await editor.start(session_id, MADE)
        await editor.wait_for(lambda: editor.asked)
        closed = await editor.call("session/close", sessionId=session_id)
        cancelled = await editor.receive(prompt)
        renamed = await editor.call("session/set_title", sessionId=session_id, title="  A  title ")
        listed = await editor.call("session/list")
        deleted = await editor.call("session/delete", sessionId=session_id)
        empty = await editor.call("session/list")
        _, left = await server.request("GET", "/questions")

    assert closed["result"] == {}
    assert cancelled["result"]["stopReason"] == "cancelled"
    assert renamed["result"] == {"title": "A title"}
    assert [session["title"] for session in listed["result"]["sessions"]] == ["A title"]
    assert deleted["result"] == {}
    assert empty["result"] == {"sessions": []}
    assert left == {"questions": []}


async def test_a_server_that_stops_leaves_open_questions_for_its_successor(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        async with await connect(server, answer=None) as editor:
            session_id = await editor.new(server.root)
            await editor.start(session_id, MADE)
            await editor.wait_for(lambda: editor.asked)
            assert await server.kill(signal.SIGTERM) == 0
        await server.start()
        async with await connect(server) as later:
            await later.load(session_id, server.root)
            await later.wait_for(lambda: later.texts("agent_message_chunk"))

    assert len(later.asked) == 1
    assert (server.root / "made").exists()


@pytest.mark.parametrize(
    "frame", ["not JSON", "[]", "{}", '{"jsonrpc":"2.0","id":1,"method":"session/new","params":7}']
)
async def test_a_frame_that_is_wrong_gets_an_error_and_the_connection_continues(tmp_path: Path, frame: str) -> None:
    async with Server(tmp_path) as server, await server.connect("/acp") as socket:
        await socket.send(frame)
        refused = json.loads(await socket.recv())
        async with Editor(socket) as editor:
            made = await editor.new(server.root)

    assert refused["error"]["code"] in (-32700, -32600, -32602)
    assert made


# Who may do what.

OUTCOMES = {
    "view": ("forbidden", "forbidden", None, "forbidden"),
    "create": (None, "forbidden", None, "forbidden"),
    "prompt": ("forbidden", None, None, "forbidden"),
    "approve": ("forbidden", "forbidden", None, None),
}
"""By scope: the codes of a new session, a prompt, a loaded session, and a mode that asks less."""


@pytest.mark.parametrize("scope", OUTCOMES)
async def test_scopes(tmp_path: Path, scope: str) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        token = await make_token(server, "someone", scope)
        async with await connect(server, token) as editor:
            made = await editor.call("session/new", cwd=str(server.root), mcpServers=[])
            loaded = await editor.load(session_id, server.root)
            prompted = await editor.prompt(session_id, "say Hello.")
            changed = await editor.call("session/set_mode", sessionId=session_id, modeId="acceptEdits")

    codes = []
    for response in (made, prompted, loaded, changed):
        error = response.get("error")
        codes.append(None if error is None else "forbidden" if "scope" in error["message"] else error)
    assert tuple(codes) == OUTCOMES[scope]


async def test_who_may_not_approve_is_not_asked(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        async with await connect(server, await make_token(server, "someone", "prompt")) as editor:
            await editor.load(session_id, server.root)
            prompt = await editor.start(session_id, MADE)
            question = await wait_for_question(server, session_id)
            await server.request("POST", f"/questions/{session_id}/{question}/answer", {"behavior": "allow"})
            answered = await editor.receive(prompt)

    assert answered["result"]["stopReason"] == "end_turn"
    assert editor.asked == []
    assert (server.root / "made").exists()


async def test_sessions_of_other_tenants_do_not_exist(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        token = await make_token(server, "someone", "create", "prompt", tenant="acme")
        session_id = await server.create()
        async with await connect(server, token) as editor:
            loaded = await editor.load(session_id, server.root)
            deleted = await editor.call("session/delete", sessionId=session_id)
            status = await editor.call("session/status", sessionId=session_id)
            listed = await editor.call("session/list")

    assert {response["error"]["code"] for response in (loaded, deleted, status)} == {-32002}
    assert listed["result"] == {"sessions": []}


@pytest.mark.parametrize("field", ["cwd", "additionalDirectories"])
async def test_a_directory_outside_the_roots_is_refused(tmp_path: Path, field: str) -> None:
    async with Server(tmp_path) as server, await connect(server) as editor:
        given = {"cwd": str(server.root), field: str(tmp_path) if field == "cwd" else [str(tmp_path)]}
        refused = await editor.call("session/new", mcpServers=[], **given)

    assert refused["error"] == {
        "code": -32602,
        "message": f"the directory {str(tmp_path)!r} is outside the roots that the token allows",
        "data": {"code": "outside_roots"},
    }


async def test_mcp_servers_need_the_scope_of_approvers(tmp_path: Path) -> None:
    server_of_editor = {"name": "x", "command": "/bin/true", "args": [], "env": []}
    async with Server(tmp_path) as server:
        async with await connect(server, await make_token(server, "someone", "create", "prompt")) as editor:
            refused = await editor.call("session/new", cwd=str(server.root), mcpServers=[server_of_editor])
        async with await connect(server) as editor:
            made = await editor.call("session/new", cwd=str(server.root), mcpServers=[server_of_editor])

    assert refused["error"]["message"] == "mcpServers needs the scope 'approve'"
    assert "result" in made


async def test_a_wrong_token_is_refused(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        with pytest.raises(websockets.InvalidStatus):
            await server.connect("/acp", "wrong-token-wrong-token")
