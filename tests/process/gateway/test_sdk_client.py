"""The SDK on a session of a gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import parley
from tests.helpers.gateway import Server
from tests.helpers.patience import PATIENCE_SECONDS

TOUCH = 'call Bash {"command": "touch made", "description": "Make a file"}'


class Cutter:
    """A proxy whose connections can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0
        self.is_mute = False
        """Whether nothing of the server passes."""

    async def __aenter__(self) -> Cutter:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, back]
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer, is_answer=True))
        for end in (writer, back):
            end.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        try:
            while data := await reader.read(65536):
                if is_answer and self.is_mute:
                    continue
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


def options(server: Server, **more: Any) -> parley.Options[Any]:
    return parley.Options(engine=server.url, token=server.token, **more)


async def test_a_conversation_with_callbacks(tmp_path: Path) -> None:
    asked, hooked = [], []

    async def allow(name: str, input: dict[str, Any], context: Any) -> parley.PermissionResultAllow:
        asked.append((name, input["command"]))
        return parley.PermissionResultAllow()

    async def watch(input: Any, tool_use_id: Any, context: Any) -> Any:
        hooked.append(input["tool_name"])
        return {}

    hooks: Any = {"PreToolUse": [parley.HookMatcher(hooks=[watch])]}
    async with Server(tmp_path) as server:
        async with parley.Client(options(server, can_use_tool=allow, hooks=hooks)) as client:
            turn = await client.ask(TOUCH)
            await turn.text()
            turn = await client.ask("say Again.")
            assert await turn.text() == "Again."
            await client.set_permission_mode("plan")
        assert (asked, hooked) == ([("Bash", "touch made")], ["Bash"])
        assert (server.root / "made").exists()


async def test_options_reach_the_session(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "sonnet") as server:
        (server.root / "sub").mkdir()
        given = options(server, model="offline", cwd="sub", permission_mode="plan", max_turns=3)
        async with parley.Client(given) as client:
            turn = await client.ask("say Hi.")
            assert await turn.text() == "Hi."
        _, listed = await server.request("GET", "/sessions")
        assert [session["cwd"] for session in listed["sessions"]] == [str(server.root / "sub")]
        async with parley.Client(options(server, model=parley.Script(["From a script."]))) as client:
            assert (await client.run("Hi")).text == "From a script."


async def test_a_cut_connection_is_made_again(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Cutter(server.port) as cutter:
        given = parley.Options(engine=cutter.url, token=server.token)
        async with parley.Client(given) as client:
            for number in range(5):
                turn = await client.ask(f"wait 0.3\nsay Answer {number}.")
                await asyncio.sleep(0.05 * number)
                cutter.cut()
                assert await turn.text() == f"Answer {number}."
        assert cutter.connections > 5


async def test_another_client_continues_the_session(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        async with parley.Client(options(server)) as first:
            turn = await first.ask("say One.")
            assert await turn.text() == "One."
            assert turn.result is not None
            session_id = turn.result.session_id
        async with parley.Client.attach(session_id, options(server)) as second:
            turn = await second.ask("say Two.")
            assert await turn.text() == "Two."
            assert turn.result is not None
            assert turn.result.session_id == session_id


async def test_a_fork_continues_from_a_message(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        async with parley.Client(options(server)) as first:
            turn = await first.ask("say One.")
            (answer,) = [message async for message in turn if isinstance(message, parley.AssistantMessage)]
            assert turn.result is not None
            parent = turn.result.session_id
            await (await first.ask("say Two.")).text()
        for at, kept in ((answer.uuid, False), (None, True)):
            given = options(server, resume=parent, fork_session=True, resume_session_at=at)
            async with parley.Client(given) as client:
                turn = await client.ask("say Three.")
                assert await turn.text() == "Three."
                assert turn.result is not None
                assert turn.result.session_id != parent
                _, found = await server.request(
                    *("POST", f"/sessions/{turn.result.session_id}/control", {"subtype": "export_conversation"})
                )
                assert "say One." in found["response"]["text"]
                assert ("say Two." in found["response"]["text"]) == kept


async def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        wrong = parley.Options(engine=server.url, token="wrong-token-of-somebody")
        with pytest.raises(parley.CLIConnectionError, match="the token is unknown"):
            await parley.Client(wrong).connect()
        with pytest.raises(parley.CLIConnectionError, match="there is no session 'nope'"):
            await parley.Client.attach("nope", options(server)).connect()
        with pytest.raises(parley.CLIConnectionError, match="outside the roots"):
            await parley.Client(options(server, cwd="/")).connect()
        with pytest.raises(ValueError, match="env has no effect"):
            await parley.Client(options(server, env={"A": "b"})).connect()
        with pytest.raises(ValueError, match="fork_session needs resume"):
            await parley.Client(options(server, fork_session=True)).connect()
        with pytest.raises(ValueError, match="resume_session_at needs fork_session"):
            await parley.Client(options(server, resume="x", resume_session_at="y")).connect()
        with pytest.raises(parley.CLIConnectionError, match="there is no session 'nope'"):
            await parley.Client(options(server, resume="nope", fork_session=True)).connect()
        with pytest.raises(ValueError, match="token needs the URL of a gateway"):
            await parley.Client(parley.Options(token="x")).connect()
    with pytest.raises(parley.CLIConnectionError, match="cannot reach the gateway"):
        await parley.Client(options(server)).connect()


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_first_connection_that_is_cut_before_its_first_line_loses_nothing(tmp_path: Path, is_new: bool) -> None:
    async with Server(tmp_path) as server, Cutter(server.port) as cutter:
        session = None if is_new else await server.create()
        options = parley.Options(engine=cutter.url, token=server.token, resume=session)
        async with parley.Client(options) as client:
            cutter.is_mute = True
            turn = await client.ask("say All of it.")
            async with asyncio.timeout(PATIENCE_SECONDS):
                while sum(each["turns"] for each in (await server.get("/sessions"))["sessions"]) == 0:
                    pass
            cutter.is_mute = False
            cutter.cut()
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await turn.text() == "All of it."
