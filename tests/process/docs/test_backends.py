"""The programs in examples/backends, as servers and workers that are run, left, and killed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from websockets.asyncio.client import connect

from parley.testing import Script, ScriptedTurn, call
from tests.helpers import paths
from tests.helpers.environment import base_environment
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.ports import free_port

FOLDER = paths.ROOT / "examples" / "backends"
ADA = {"X-User": "ada"}
NEVER_ENDS = Script(
    [
        ScriptedTurn(when="go on", text="Going on."),
        ScriptedTurn(when="begin", text="Wait. " * 50_000, chunk_chars=6, event_delay_ms=20),
        ScriptedTurn(when="begin", text="Wait. " * 50_000, chunk_chars=6, event_delay_ms=20),
    ]
)


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**base_environment(), "HOME": str(folder), "PYTHONPATH": str(FOLDER), "LANG": "C.UTF-8", **more}


def write_script(folder: Path, script: Script) -> str:
    """The name of a model that follows the script."""
    path = folder.parent / f"{folder.name}.json"
    path.write_bytes(script.to_json())
    return f"scripted:{path}"


@asynccontextmanager
async def serving(app: str, folder: Path, **more: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Run an application, and return a client for it."""
    pytest.importorskip(app.partition("_")[2].partition(":")[0] if "django" in app else "fastapi")
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--log-level", "warning"]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment(folder, **more))
    try:
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS) as http,
        ):
            while not await answers(http):
                assert process.returncode is None
            yield http
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def answers(http: httpx2.AsyncClient) -> bool:
    try:
        await http.get("/")
    except httpx2.ConnectError:
        await asyncio.sleep(0.05)
        return False
    return True


async def read_events(http: httpx2.AsyncClient, path: str, **given: Any) -> str:
    """All events of an answer."""
    async with http.stream("POST", path, **given) as response:
        assert response.status_code == 200
        return (await response.aread()).decode()


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not check():  # noqa: ASYNC110  # other processes
            await asyncio.sleep(0.02)


async def make_chat(http: httpx2.AsyncClient, headers: dict[str, str] = ADA) -> str:
    return str((await http.post("/chats", headers=headers)).json()["chat"])


async def test_fastapi_answers_twenty_users_and_knows_who_they_are(tmp_path: Path) -> None:
    async def use(number: int) -> str:
        chat = await make_chat(http, {"X-User": f"user-{number}"})
        prompt = {"text": "call mcp__tools__who_am_i {}\nsay Hello."}
        return await read_events(http, f"/chats/{chat}/messages", json=prompt, headers={"X-User": f"user-{number}"})

    async with serving("chat_fastapi:app", tmp_path) as http:
        for events in await asyncio.gather(*map(use, range(20))):
            assert 'event: text\ndata: "Hello."' in events
            assert "event: done" in events
        assert (
            await http.post(f"/chats/{await make_chat(http)}/interrupt", headers={"X-User": "eve"})
        ).status_code == 404
    stored = "".join(path.read_text() for path in (tmp_path / ".claude").rglob("*.jsonl"))
    assert all(f"user-{number}" in stored for number in range(20))


async def test_fastapi_stops_a_turn_whose_browser_leaves(tmp_path: Path) -> None:
    async with serving("chat_fastapi:app", tmp_path, CHAT_MODEL=write_script(tmp_path, NEVER_ENDS)) as http:
        chat = await make_chat(http)
        async with http.stream("POST", f"/chats/{chat}/messages", json={"text": "begin"}, headers=ADA) as response:
            async for line in response.aiter_lines():
                if "Wait." in line:
                    break
        events = await read_events(http, f"/chats/{chat}/messages", json={"text": "go on"}, headers=ADA)
        assert "Going on." in events


async def test_fastapi_interrupts_and_continues_after_a_restart(tmp_path: Path) -> None:
    async with serving("chat_fastapi:app", tmp_path, CHAT_MODEL=write_script(tmp_path, NEVER_ENDS)) as http:
        chat = await make_chat(http)
        async with http.stream("POST", f"/chats/{chat}/messages", json={"text": "begin"}, headers=ADA) as response:
            async for line in response.aiter_lines():
                if "Wait." in line:
                    assert (await http.post(f"/chats/{chat}/interrupt", headers=ADA)).status_code == 200
                if line.startswith("event: failed"):
                    break
    async with serving("chat_fastapi:app", tmp_path, CHAT_MODEL=write_script(tmp_path, NEVER_ENDS)) as http:
        events = await read_events(http, f"/chats/{chat}/messages", json={"text": "go on"}, headers=ADA)
        assert "Going on." in events
    [transcript] = (tmp_path / ".claude").rglob(f"{chat}.jsonl")
    assert "begin" in transcript.read_text()


async def test_fastapi_speaks_websocket(tmp_path: Path) -> None:
    async with serving("chat_fastapi:app", tmp_path, CHAT_MODEL=write_script(tmp_path, NEVER_ENDS)) as http:
        chat = await make_chat(http)
        url = f"ws://127.0.0.1:{http.base_url.port}/chats/{chat}/ws?user=ada"
        async with connect(url) as socket:
            await socket.send(json.dumps({"text": "begin"}))
            assert json.loads(await socket.recv()) == {"text": "Wait. "}
            await socket.send(json.dumps({"interrupt": True}))
            while "failed" not in (received := json.loads(await socket.recv())):
                assert received == {"text": "Wait. "}
            await socket.send(json.dumps({"text": "begin"}))
            assert json.loads(await socket.recv()) == {"text": "Wait. "}
        async with connect(url) as socket:  # the turn of the one that left has stopped
            await socket.send(json.dumps({"text": "go on"}))
            assert json.loads(await socket.recv()) == {"text": "Going on."}


async def test_django_streams_and_stops_a_turn_whose_browser_leaves(tmp_path: Path) -> None:
    async with serving("chat_django:app", tmp_path, CHAT_MODEL=write_script(tmp_path, NEVER_ENDS)) as http:
        async with http.stream("POST", "/chat", data={"chat": "mine", "text": "begin"}) as response:
            async for line in response.aiter_lines():
                if "Wait." in line:
                    break
        assert "Going on." in await read_events(http, "/chat", data={"chat": "mine", "text": "go on"})
        assert (await http.post("/chat")).status_code == 400


async def test_a_job_survives_its_worker(tmp_path: Path) -> None:
    def queue(*words: str, **more: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(FOLDER / "job_queue.py"), *words]
        given = {**environment(tmp_path, **more), "JOB_LEASE_SECONDS": "0", "JOB_WORKERS": "1"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=given)

    prompt = 'call Write {"file_path": "begun", "content": "x"}\nwait 600\nsay Never.'
    assert "waiting" in queue("add", prompt).communicate(timeout=PATIENCE_SECONDS)[0]
    worker = queue("work")
    await until((tmp_path / "begun").exists)
    os.kill(worker.pid, signal.SIGKILL)
    worker.communicate()

    printed = queue("work", JOB_MODEL=write_script(tmp_path, Script(["Finished."]))).communicate(
        timeout=PATIENCE_SECONDS
    )[0]
    assert printed.startswith("done\t")
    assert printed.rstrip().endswith("Finished.")
    stored = [path.read_text() for path in (tmp_path / ".claude").rglob("*.jsonl")]
    assert any("begun" in text and "You were interrupted" in text for text in stored)


@pytest.mark.parametrize(("severity", "code"), [("error", 1), ("warning", 0), (None, 0)])
def test_a_review_has_annotations_and_an_exit_code(tmp_path: Path, severity: str | None, code: int) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, env=environment(tmp_path), check=True)

    git("init", "-q", "-b", "main")
    (tmp_path / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    git("add", ".")
    git("commit", "-qm", "one")
    (tmp_path / "sums.py").write_text("def add(a, b):\n    return a - b\n")
    found = [{"path": "sums.py", "line": 2, "severity": severity, "text": "It\nsubtracts."}] if severity else []
    model = write_script(tmp_path, Script([call("StructuredOutput", findings=found), "Done."]))
    done = subprocess.run(
        [sys.executable, str(FOLDER / "review_bot.py"), "HEAD"],
        capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path, REVIEW_MODEL=model), check=False,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    lines = [f"::{severity} file=sums.py,line=2::It%0Asubtracts."] if severity else []
    assert (done.stdout.splitlines()[:-1], done.stderr, done.returncode) == (lines, "", code)

    done = subprocess.run(
        [sys.executable, str(FOLDER / "review_bot.py"), "HEAD"],
        capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path), check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert (done.stdout.startswith("::warning::the review did not work: No API key"), done.returncode) == (True, 0)


class Chat:
    """The chat service, as far as the bot uses it."""

    def __init__(self) -> None:
        self.posts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def __aenter__(self) -> Chat:
        import uvicorn

        async def post(request: Request) -> JSONResponse:
            self.posts.put_nowait(await request.json())
            return JSONResponse({"ok": True})

        app = Starlette(routes=[Route("/chat.postMessage", post, methods=["POST"])])
        self.port = free_port()
        self._server = uvicorn.Server(uvicorn.Config(app, port=self.port, log_level="warning"))
        self._serving = asyncio.create_task(self._server.serve())
        await until(lambda: self._server.started)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self._serving


async def test_a_bot_answers_in_threads_and_asks_with_buttons(tmp_path: Path) -> None:
    def sign(body: bytes, secret: bytes = b"secret") -> dict[str, str]:
        now = str(int(time.time()))
        digest = hmac.new(secret, b"v0:%s:%s" % (now.encode(), body), hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": f"v0={digest}"}

    async def say(text: str, event_id: str) -> None:
        event = {"channel": "C1", "ts": "1.1", "text": text}
        body = json.dumps({"type": "event_callback", "event_id": event_id, "event": event}).encode()
        assert (await http.post("/events", content=body, headers=sign(body))).json() == {}

    async with Chat() as chat:
        own = {"SLACK_API": f"http://127.0.0.1:{chat.port}", "SLACK_SECRET": "secret", "SLACK_TOKEN": "token"}
        async with serving("chat_bot:app", tmp_path, **own) as http:
            assert (await http.post("/events", content=b"{}", headers=sign(b"{}", b"other"))).status_code == 403
            await say("say Hello.", "E1")
            await say("say Hello.", "E1")  # Slack sends it again
            assert await chat.posts.get() == {"channel": "C1", "thread_ts": "1.1", "text": "Hello."}
            await say('call Bash {"command": "touch made"}\nsay Made.', "E2")
            asked = await chat.posts.get()
            buttons = asked["blocks"][0]["elements"]
            assert not (tmp_path / "made").exists()
            pressed = {"actions": [{"action_id": "Allow", "value": buttons[0]["value"]}]}
            body = urlencode({"payload": json.dumps(pressed)}).encode()
            assert (await http.post("/buttons", content=body, headers=sign(body))).status_code == 200
            assert (await chat.posts.get())["text"] == "Made."
            assert (tmp_path / "made").exists()
            assert chat.posts.empty()
