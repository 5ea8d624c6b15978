"""The console in a real Chromium, with a real `parley serve` behind it."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import BrowserContext, ConsoleMessage, Page, Playwright, Request, async_playwright

from parley.models.fake.script import Script, TurnLike
from tests.helpers.gateway import Server

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same Chromium without the windows of a desktop, each of which takes half a second of CPU time."""
CHROMIUM = next(filter(None, map(shutil.which, PROGRAMS)), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
PATIENCE_MS = 30_000
EXPECTED = re.compile(r"Failed to load resource|WebSocket connection to .* failed")
"""What Chromium reports when a server is away or refuses something, as it does in some tests."""

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
        self._runner = asyncio.Runner()
        self._playwright: Playwright | None = None
        self._chromium: Chromium | None = None

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test on the loop of the browser."""
        self._runner.run(test)

    async def find(self) -> Chromium | None:
        """The browser, started if needed; None on another loop."""
        if asyncio.get_running_loop() is not self._runner.get_loop():
            return None
        if self._chromium is None or not self._chromium.is_connected():
            self._playwright, self._chromium = await launch()
        return self._chromium

    def close(self) -> None:
        if self._chromium is not None and self._playwright is not None:
            self._runner.run(self._chromium.close())
            self._runner.run(self._playwright.stop())
        self._runner.close()


shared = BrowserProcess()


async def launch() -> tuple[Playwright, Chromium]:
    assert CHROMIUM is not None
    playwright = await async_playwright().start()
    return playwright, await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


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
    from http.client import HTTPConnection

    def read() -> dict[str, Any]:
        import json

        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/sessions/events", headers={"Authorization": f"Bearer {server.token}"})
        events = connection.getresponse()
        try:
            while True:
                probe = HTTPConnection("127.0.0.1", server.port, timeout=60)
                probe.request("GET", f"/sessions/{session_id}", headers={"Authorization": f"Bearer {server.token}"})
                info: dict[str, Any] = json.loads(probe.getresponse().read())
                probe.close()
                if info["state"] in states:
                    return info
                while not events.readline().startswith(b"data:"):
                    pass
        finally:
            connection.close()

    return await asyncio.to_thread(read)


async def run_turns(server: Server, session_id: str, *prompts: Any) -> None:
    """Send prompts one after the other, each after the result of the one before."""
    for prompt in prompts:
        await send_prompt(server, session_id, prompt)
        await wait_for_state(server, session_id, "idle", "failed", "requires_action")


def answers_of(page: Page) -> Any:
    return page.locator(".answer")
