"""`parley console` shows the sessions that other programs store: read-only while they run, then taken over."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import expect

from tests.helpers.console import Browser, needs_chromium, send_prompt, wait_for_state
from tests.helpers.forked import ForkedPipes
from tests.helpers.gateway import Server
from tests.helpers.patience import PATIENCE_SECONDS

pytestmark = needs_chromium

STREAM = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--model", "offline")


class Console(Server):
    """`parley console` in a process of its own."""

    ready = "console on "

    def _arguments(self) -> tuple[str, ...]:
        place = ("--listen", f"127.0.0.1:{self.port}", "--root", str(self.root))
        return ("console", "--no-browser", *place, "--model", "offline")

    async def start(self) -> None:
        await super().start()
        self.token_file.write_text(self.stderr[-1].rpartition("#token=")[2])

    @asynccontextmanager
    async def program(self, *options: str) -> AsyncIterator[Program]:
        """Another program that runs a session below the root."""
        environment = {**self._environment, "IS_SANDBOX": "1"}
        process = await ForkedPipes.start((*STREAM, *options), env=environment, cwd=str(self.root))
        try:
            yield Program(process)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()


class Program:
    def __init__(self, process: ForkedPipes) -> None:
        self.process = process

    async def prompt(self, text: str) -> dict[str, Any]:
        """Run a turn; returns its result."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = {"type": "user", "message": {"role": "user", "content": text}}
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (found := json.loads(await self.process.stdout.readline()))["type"] != "result":
                pass
        return dict(found)


async def test_a_session_of_another_program_is_watched_taken_over_and_given_back(tmp_path: Path) -> None:
    async with Console(tmp_path) as server, Browser(server) as browser, server.program() as program:
        session = (await program.prompt("say From elsewhere."))["session_id"]
        page = await browser.open("/")
        row = page.locator(".session-row:not(.skeleton)")
        await expect(row).to_contain_text("From elsewhere.")
        await expect(row).to_contain_text("In another program")

        await row.click()
        await expect(page.locator(".answer")).to_have_text("From elsewhere.")
        await program.prompt("say Live.")
        await expect(page.locator(".answer").last).to_have_text("Live.")
        status, refused = await server.request("POST", f"/sessions/{session}/prompts", {"content": "say No."})
        assert (status, refused["error"]["code"]) == (409, "session_busy")

        await page.get_by_role("button", name="Take over").click()
        await page.get_by_role("dialog").get_by_role("button", name="Take over").click()
        await page.get_by_role("textbox", name="Prompt").fill("say Mine.")
        await page.keyboard.press("Enter")
        await expect(page.locator(".answer").last).to_have_text("Mine.")
        await wait_for_state(server, session, "idle")

        await page.get_by_role("button", name="Session", exact=True).click()
        await page.get_by_role("menuitem", name="Give back").click()
        await expect(page.get_by_text(f"parley --resume {session}")).to_be_visible()
        async with server.program("--resume", session) as again:
            await again.prompt("say Back.")
            await expect(page.locator(".answer").last).to_have_text("Back.")
            await expect(page.get_by_role("button", name="Take over")).to_be_visible()


async def test_what_was_said_while_no_console_ran_is_shown_with_its_time(tmp_path: Path) -> None:
    server = Console(tmp_path)
    async with server.program() as program:
        session = (await program.prompt("say One."))["session_id"]
        async with server, Browser(server) as browser:
            await expect((await browser.open("/")).get_by_text("say One.").last).to_be_visible()
        await program.prompt("say Two.")

    async with server, Browser(server) as browser:
        page = await browser.open(f"/s/{session}")
        await expect(page.locator(".answer")).to_have_text(["One.", "Two."])
        await page.locator(".item[data-kind=result]").last.get_by_role("button").click()
        await page.get_by_role("menuitem", name="Where the time went").click()
        await expect(page.get_by_role("dialog")).to_contain_text("Whole turn")
        await expect(page.locator(".timeline tbody tr")).to_have_count(1)
        await page.get_by_role("dialog").get_by_role("button", name="Close").last.click()

        await page.get_by_role("button", name="Session", exact=True).click()
        async with page.expect_download() as downloading:
            await page.get_by_role("menuitem", name="Export as Markdown").click()
        text = Path(await (await downloading.value).path()).read_text()
        assert "> say One." in text
        assert "Two." in text


async def test_a_deleted_session_of_another_program_does_not_come_back(tmp_path: Path) -> None:
    async with Console(tmp_path) as server, Browser(server) as browser:
        page = await browser.open("/")
        rows = page.locator(".session-row:not(.skeleton)")
        async with server.program() as program:
            session = (await program.prompt("say Old."))["session_id"]
        await expect(rows).to_contain_text("Old.")
        await server.request("DELETE", f"/sessions/{session}")
        await expect(rows).to_have_count(0)

        async with server.program() as program:
            newer = (await program.prompt("say New."))["session_id"]
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("New.")
        await expect(rows).to_contain_text("Idle")
        await send_prompt(server, newer, "say More.")
        await expect(rows).to_contain_text("More.")
