"""The official browser client in a page of another origin, in a real Chromium."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import Script, ScriptedCall, ScriptedTurn
from parley.testing.model_server import running
from tests.compat.harness import DRIVERS
from tests.compat.install import Client
from tests.helpers.console import CHROMIUM, needs_chromium
from tests.helpers.gateway import Server

pytest_plugins = ["tests.compat.clients"]

PAGE_SECONDS = 90
KINDS = ["websocket", "sse"]
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-quic"),
]


class PageHandler(SimpleHTTPRequestHandler):
    """Serves a folder, and takes what the page tells."""

    def __init__(self, told: queue.Queue[Any], *args: Any, **more: Any) -> None:
        self._told = told
        super().__init__(*args, **more)

    def do_POST(self) -> None:
        self._told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def serving_page(folder: Path) -> Iterator[tuple[str, queue.Queue[Any]]]:
    """The origin of the page, and what it tells."""
    told: queue.Queue[Any] = queue.Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(PageHandler, told, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def visit(origin: str, told: queue.Queue[Any], profile: Path) -> list[tuple[str, Any]]:
    """What the page tells until its end."""
    assert CHROMIUM is not None
    browser = await asyncio.create_subprocess_exec(
        *(CHROMIUM, *FLAGS, f"--user-data-dir={profile}", f"{origin}/page.html"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    found: list[tuple[str, Any]] = []
    try:
        while not found or found[-1][0] != "end":
            what, value = await asyncio.to_thread(told.get, timeout=PAGE_SECONDS)
            found.append((what, value))
    except queue.Empty:
        pytest.fail(f"the page did not end within {PAGE_SECONDS} s; it told {found}")
    finally:
        os.killpg(browser.pid, signal.SIGKILL)  # the program may be a script that waits for Chromium
        await browser.wait()
    return found


async def run_page(client: Client, folder: Path, turns: list[ScriptedTurn], *, is_allowed: bool) -> list[Any]:
    """The page's report; its origin is not the gateway's."""
    pages = folder / "pages"
    pages.mkdir()
    for name in ("page.html", "page.mjs"):
        shutil.copy(DRIVERS / name, pages)
    shutil.copy(client.place / "node_modules" / client.package / "browser-sdk.js", pages)
    with serving_page(pages) as (origin, told), running(Script(turn=turns, at_end="repeat")) as model:
        environment = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "a-key-for-tests"}
        allowed = f"--allow-origin={origin if is_allowed else 'https://elsewhere.example'}"
        async with Server(folder, allowed, environment=environment) as server:
            task = {"url": server.url, "token": server.token, "kinds": KINDS, "prompt": "Make it"}
            (pages / "task.json").write_text(json.dumps(task))
            return await visit(origin, told, folder / "profile")


@needs_chromium
async def test_a_page_of_an_allowed_origin_runs_a_session(typescript_sdk: Client, tmp_path: Path) -> None:
    bash = {"command": "touch made-$RANDOM", "description": "Make a file"}
    turn = [
        ScriptedTurn(tools=[ScriptedCall(name="Bash", id="t1", input=bash)]),
        ScriptedTurn(tools=[ScriptedCall(name="mcp__host__secret", id="t2", input={})]),
        ScriptedTurn(text="Made.", chunk_chars=2),
    ]
    report = await run_page(typescript_sdk, tmp_path, turn * len(KINDS), is_allowed=True)

    calls = ["Bash", "mcp__host__secret"]
    assert [value for what, value in report if what == "raised"] == []
    assert [value for what, value in report if what == "asked"] == [[kind, name] for kind in KINDS for name in calls]
    assert [value for what, value in report if what == "hook"] == [[kind, name] for kind in KINDS for name in calls]
    for kind in KINDS:
        messages = [value[1] for what, value in report if what == "message" and value[0] == kind]
        assert messages[-1]["result"] == "Made."
        deltas = [message["event"].get("delta", {}).get("text") for message in messages if "event" in message]
        assert "".join(text for text in deltas if text) == "Made."
        assert "forty-two" in str([message for message in messages if message["type"] == "user"])
        assert [kind for what, value in report if what == "models" and value[0] == kind and value[1]] == [kind]
    assert len(list((tmp_path / "root").glob("made-*"))) == len(KINDS)


@needs_chromium
async def test_a_page_of_another_origin_is_refused(typescript_sdk: Client, tmp_path: Path) -> None:
    report = await run_page(typescript_sdk, tmp_path, [ScriptedTurn(text="Never.")], is_allowed=False)

    assert [value[0] for what, value in report if what == "raised"] == KINDS
    assert [value for what, value in report if what == "message"] == []
