"""A real `parley serve`, and clients for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import websockets
from websockets.asyncio.client import ClientConnection, connect

from tests.helpers.forked import ForkedPipes, start_parley
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.ports import free_port


class Server:
    """`parley serve` in a process of its own, which can be killed and started again on the same port."""

    ready = "listening on "
    """What the line on stderr has that says that it can be used."""

    def __init__(
        self, folder: Path, *options: str, root: Path | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.root = root or folder / "root"
        self.root.mkdir(exist_ok=True)
        self.token_file = folder / "token"
        self._options = options or ("--model", "offline")
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
            **(environment or {}),
        }
        self.process: ForkedPipes | Process | None = None
        self.stderr: list[str] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        """Start it and wait until it listens."""
        self.process = await start_parley(self._arguments(), env=self._environment)
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await self.process.stderr.readline()).decode():
                self.stderr.append(line)
                if self.ready in line:
                    self._reader = asyncio.create_task(self._read_stderr(self.process.stderr))
                    return
            await self.process.wait()
        raise AssertionError(f"the server did not start: {''.join(self.stderr)}")

    def _arguments(self) -> tuple[str, ...]:
        return (
            *("serve", "--listen", f"127.0.0.1:{self.port}", "--token-file", str(self.token_file)),
            *("--root", str(self.root), *self._options),
        )

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.stderr.append(line.decode(errors="replace"))

    async def kill(self, number: int = signal.SIGKILL) -> int:
        """End it with a signal; returns the exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            os.kill(self.process.pid, number)
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.process.wait()
            await self._reader
        return code

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def connect(self, path: str, token: str | None = None, **more: Any) -> ClientConnection:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return await connect(f"ws://127.0.0.1:{self.port}{path}", additional_headers=headers, max_size=None, **more)

    async def request(self, method: str, path: str, body: object = None, token: str | None = None) -> tuple[int, Any]:
        """The status and the JSON of a response. Raises OSError if the server dies before it has sent all of it."""
        status, _, data = await self.fetch(method, path, body, {"Authorization": f"Bearer {token or self.token}"})
        return status, json.loads(data) if data else None

    async def get(self, path: str, token: str | None = None) -> Any:
        """The JSON of a response that must succeed."""
        status, found = await self.request("GET", path, token=token)
        assert status == 200, found
        return found

    async def fetch(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers and the bytes of a response. No token is sent besides the given headers."""
        return await asyncio.to_thread(self._fetch, method, path, body, headers or {})

    def _fetch(
        self, method: str, path: str, body: object, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        from http.client import HTTPConnection, IncompleteRead

        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        except IncompleteRead as exc:
            raise ConnectionResetError(str(exc)) from None
        finally:
            connection.close()

    async def make_token(self, name: str, *scopes: str, **more: Any) -> str:
        status, made = await self.request("POST", "/tokens", {"name": name, "scopes": scopes, **more})
        assert status == 201, made
        return str(made["token"])

    async def ask(self, session_id: str, text: str) -> dict[str, Any]:
        """Send a prompt; returns its result."""
        async with following(self, session_id) as viewer:
            _, sent = await self.request("POST", f"/sessions/{session_id}/prompts", {"content": text})

            def results() -> list[dict[str, Any]]:
                return [result for result in viewer.results() if sent["uuid"] in result["user_message_uuids"]]

            await viewer.wait_for(results)
            return results()[0]

    async def create(self, **body: Any) -> str:
        status, created = await self.request("POST", "/sessions", body)
        assert status == 201, created
        return str(created["session_id"])


@asynccontextmanager
async def following(server: Server, session_id: str, *, partial: bool = False) -> AsyncIterator[Viewer]:
    """A viewer that reads a session."""
    viewer = Viewer(server, session_id, partial=partial)
    reading = asyncio.create_task(viewer.run())
    try:
        yield viewer
    finally:
        reading.cancel()
        viewer.cut()


async def read_until(socket: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """The lines up to the first of a type."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not found or found[-1]["type"] != kind:
            frame = await socket.recv()
            assert isinstance(frame, str)
            assert frame.endswith("\n")
            found.append(json.loads(frame))
    return found


def user(text: str, **more: Any) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}, **more}) + "\n"


def control(request_id: str, subtype: str, **fields: Any) -> str:
    request = {"subtype": subtype, **fields}
    return json.dumps({"type": "control_request", "request_id": request_id, "request": request}) + "\n"


def reply(request_id: str, answer: Any) -> str:
    response = {"subtype": "success", "request_id": request_id, "response": answer}
    return json.dumps({"type": "control_response", "response": response}) + "\n"


class Viewer:
    """Collects the numbered lines of a session, over as many connections as it takes."""

    def __init__(self, server: Server, session_id: str, *, partial: bool = False) -> None:
        self._server = server
        self._path = f"/sessions/{session_id}/ws?numbered=true" + ("&partial=true" if partial else "")
        self.lines: list[tuple[int, str]] = []
        """The stored lines, in the order in which they came."""
        self._results: list[dict[str, Any]] = []
        self.connection: ClientConnection | None = None
        self.cuts = 0
        self.end = ""
        """How the last connection ended."""
        self.has_left = False
        """It does not connect again: its session was deleted."""
        self._changed = asyncio.Event()

    @property
    def last(self) -> int:
        return self.lines[-1][0] if self.lines else 0

    def results(self) -> list[dict[str, Any]]:
        return self._results

    async def run(self) -> None:
        """Read until it has left; connect again after the last line when the connection ends."""
        while not self.has_left:
            try:
                self.connection = await self._server.connect(f"{self._path}&after={self.last}")
                async for frame in self.connection:
                    assert isinstance(frame, str)
                    number, _, line = frame.rstrip("\n").partition("\t")
                    if number and number != "0":
                        self.lines.append((int(number), line))
                        if line.startswith('{"type":"result"'):
                            self._results.append(json.loads(line))
                    self._changed.set()
                self.end = f"code {self.connection.close_code}: {self.connection.close_reason}"
            except (OSError, websockets.WebSocketException) as exc:
                self.end = repr(exc)
            self.cuts += 1
            await asyncio.sleep(0.01)

    def cut(self) -> bool:
        """Cut the connection without a word; False if there is none now."""
        if self.connection is None or self.connection.transport.is_closing():
            return False
        self.connection.transport.abort()
        return True

    async def wait_for(self, condition: Any, seconds: float | None = PATIENCE_SECONDS) -> None:
        """Wait until a condition on the lines holds."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def run_turn(server: Server, session_id: str, content: str, token: str | None = None) -> str:
    """Send a prompt, wait for its result, and return the id of the prompt."""
    async with following(server, session_id) as viewer:
        status, sent = await server.request("POST", f"/sessions/{session_id}/prompts", {"content": content}, token)
        assert status == 202, sent
        await viewer.wait_for(
            lambda: any(sent["uuid"] in result.get("user_message_uuids", ()) for result in viewer.results())
        )
    return str(sent["uuid"])


async def open_question(server: Server, session_id: str) -> dict[str, Any]:
    """Wait for a question of a session. It is in the inbox before its line is sent."""
    async with following(server, session_id) as viewer:
        while True:
            seen = len(viewer.lines)
            if found := (await server.get(f"/questions?session={session_id}"))["questions"]:
                return dict(found[0])
            await viewer.wait_for(lambda seen=seen: len(viewer.lines) > seen)
