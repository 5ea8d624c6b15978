"""The console in a real Chromium, with a real `parley serve` behind it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import BrowserContext, ConsoleMessage, Page, Playwright, Request, async_playwright, expect

from parley.models.script import Script, TurnLike
from parley.workspace.process.tree import descendants_of, program_of, send
from tests.helpers.gateway import Server
from tests.helpers.patience import PATIENCE_SECONDS

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same Chromium without the windows of a desktop, each of which takes half a second of CPU time."""
CHROMIUM = next(filter(None, map(shutil.which, PROGRAMS)), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
PATIENCE_MS = 1000 * PATIENCE_SECONDS
CLOSE_SECONDS = 20.0
EXPECTED = re.compile(r"Failed to load resource|WebSocket connection to .* failed")
"""What Chromium reports when a server is away or refuses something, as it does in some tests."""

expect.set_options(timeout=PATIENCE_MS)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None,
    reason="there is no Chromium on this machine; install the package chromium-headless-shell or chromium",
)


def read_script(name: str) -> str:
    """A function that tests evaluate in a page, from tests/process/console/scripts."""
    return (Path(__file__).parents[1] / "process" / "console" / "scripts" / f"{name}.js").read_text()


class BrowserProcess:
    """One Chromium for all tests that run on its event loop. Each page has a profile of its own."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._playwright: Playwright | None = None
        self._chromium: Chromium | None = None

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test on the loop of the browser. If the test hangs, the next one gets another browser."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(test)
        except TimeoutError:
            self._chromium = self._playwright = None
            kill_browsers()
            raise

    async def find(self) -> Chromium | None:
        """The browser, started if needed; None on another loop."""
        if asyncio.get_running_loop() is not self._loop:
            return None
        if self._chromium is None or not self._chromium.is_connected():
            self._playwright, self._chromium = await launch()
        return self._chromium

    async def _end(self) -> None:
        if self._chromium is not None and self._playwright is not None:
            await self._chromium.close()
            await self._playwright.stop()

    def close(self) -> None:
        """End the browser in bounded time, whatever state it and the loop are in.

        `asyncio.Runner.close` would wait for every task and thread that a failed test has left.
        """
        if self._loop is None:
            return
        with suppress(Exception):
            self._loop.run_until_complete(asyncio.wait_for(self._end(), CLOSE_SECONDS))
        kill_browsers()
        self._loop.close()


shared = BrowserProcess()


def kill_browsers() -> None:
    """Kill each Chromium that this process has started, and the programs of Playwright, which would wait for it."""
    for pid in list(descendants_of(os.getpid())) if os.path.exists("/proc/self/stat") else []:
        if re.search("/playwright/|/(chromium|chrome)", program_of(pid)):
            send(pid, signal.SIGKILL)


async def launch() -> tuple[Playwright, Chromium]:
    assert CHROMIUM is not None
    playwright = await async_playwright().start()
    return playwright, await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS)


class Browser:
    """Opens pages of the console. At the end, no page may have run into an error or asked another server.

    Without a server, it opens files, which may ask no server at all.
    """

    def __init__(self, server: Server | None = None) -> None:
        self._server = server
        self.problems: list[str] = []
        """Errors of scripts, refusals of the content security policy, dialogs, and requests to other servers."""
        self._playwright: Playwright | None = None
        """Set if the browser is ours alone."""
        self._contexts: list[BrowserContext] = []

    async def __aenter__(self) -> Self:
        found = await shared.find()
        if found is None:
            self._playwright, found = await launch()
        self._browser = found
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for context in self._contexts:
            await context.close()
        if self._playwright is not None:
            await self._browser.close()
            await self._playwright.stop()
        if error is None:
            assert self.problems == []

    async def open(
        self, route: str = "/", *, token: str | None = None, width: int = 1280, height: int = 800, **options: Any
    ) -> Page:
        """A page at a route, signed in. With an empty token, the page asks for one."""
        assert self._server is not None
        page = await self._new_page(width, height, **options)
        given = self._server.token if token is None else token
        await page.goto(f"{self._server.url}/console/#{route}" + (f"?token={given}" if given else ""))
        return page

    async def open_file(self, path: Path, *, width: int = 1280, height: int = 800, **options: Any) -> Page:
        page = await self._new_page(width, height, **options)
        await page.goto(path.as_uri())
        return page

    async def _new_page(self, width: int, height: int, **options: Any) -> Page:
        context = await self._browser.new_context(viewport={"width": width, "height": height}, **options)
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        return await self._watch(context)

    async def _watch(self, context: BrowserContext) -> Page:
        page = await context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._on_console)
        page.on("request", self._on_request)
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.on("popup", lambda popup: self.problems.append(f"popup: {popup.url}"))
        return page

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not EXPECTED.search(message.text):
            self.problems.append(f"console: {message.text}")

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        is_own = parts.scheme == "file" if self._server is None else parts.netloc == urlsplit(self._server.url).netloc
        if parts.scheme not in ("data", "blob") and not is_own:
            self.problems.append(f"request: {request.url}")


async def create_session(server: Server, turns: list[TurnLike], **body: Any) -> str:
    """A session whose model answers with these turns, one after the other."""
    script = server.folder / f"script-{len(list(server.folder.glob('script-*')))}.json"
    script.write_bytes(Script(turns).to_json())
    options = {"model": f"scripted:{script}", **body.pop("options", {})}
    return await server.create(options=options, **body)


async def send_prompt(server: Server, session_id: str, content: Any, **body: Any) -> str:
    status, sent = await server.request("POST", f"/sessions/{session_id}/prompts", {"content": content, **body})
    assert status == 202, sent
    return str(sent["uuid"])


async def wait_for_state(server: Server, session_id: str, *states: str) -> dict[str, Any]:
    """Wait until a session is in one of some states; the event stream says when it changes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = ("GET /sessions/events HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {server.token}", "", "")
    writer.write("\r\n".join(head).encode())
    try:
        await reader.readuntil(b"\r\n\r\n")
        while (info := await server.get(f"/sessions/{session_id}"))["state"] not in states:
            while not (line := await reader.readline()).startswith(b"data:"):
                assert line, "the server has ended the stream of events"
    finally:
        writer.close()
    return dict(info)


async def run_turns(server: Server, session_id: str, *prompts: Any) -> None:
    """Send prompts one after the other, each after the result of the one before."""
    for prompt in prompts:
        await send_prompt(server, session_id, prompt)
        await wait_for_state(server, session_id, "idle", "failed", "requires_action")


def answers_of(page: Page) -> Any:
    return page.locator(".answer")
