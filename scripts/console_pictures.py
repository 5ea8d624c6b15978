"""Pictures of the console for the documentation: a browser on `parley console --demo` and on a report of `parley tap`.

    python scripts/console_pictures.py            all pictures, into docs/pictures

Needs Chromium and the extra `dev`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, Page, async_playwright

PARLEY = Path(sys.executable).with_name("parley")
FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
START_SECONDS = 60
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
SETTLE_MS = 1200


async def open_session(page: Page, title: str) -> None:
    await page.locator(".session-link", has_text=title).first.click()
    await page.locator(".item").first.wait_for()


async def show_conversation(page: Page) -> None:
    await open_session(page, "Round prices to cents")


async def show_timeline(page: Page) -> None:
    await open_session(page, "Round prices to cents")
    await page.locator(".item[data-kind=result]").first.get_by_role("button").click()
    await page.get_by_role("menuitem", name="Where the time went").click()


async def show_wire(page: Page) -> None:
    await open_session(page, "Round prices to cents")
    await page.evaluate("location.hash = location.hash + '/wire'")
    await page.locator(".wire-row").first.wait_for()


async def show_rule(page: Page) -> None:
    await page.locator(".inbox-entry code").first.click()
    ask = page.get_by_role("button", name="What would it have allowed?")
    if await ask.count():
        await ask.first.click()
        await page.locator(".rule [role=status]").wait_for()


async def show_as_is(page: Page) -> None:
    """The view as it opens."""


@dataclass(frozen=True)
class Picture:
    name: str
    route: str
    prepare: Callable[[Page], Awaitable[None]] = show_as_is
    scheme: Literal["light", "dark"] = "light"
    width: int = 1280
    height: int = 800


PICTURES = (
    Picture("console-sessions", "/"),
    Picture("console-conversation", "/", show_conversation),
    Picture("console-conversation-dark", "/", show_conversation, "dark"),
    Picture("console-timeline", "/", show_timeline),
    Picture("console-inbox", "/inbox", show_rule),
    Picture("console-costs", "/costs"),
    Picture("console-wire", "/", show_wire, "dark"),
    Picture("console-phone", "/inbox", show_as_is, "light", 390, 800),
)


async def take(browser: Browser, address: str, picture: Picture) -> None:
    page = await browser.new_page(
        viewport={"width": picture.width, "height": picture.height}, color_scheme=picture.scheme
    )
    base, _, token = address.partition("#")
    await page.goto(f"{base}#{picture.route}?{token}")
    await page.locator("h1").first.wait_for()
    await picture.prepare(page)
    await page.wait_for_timeout(SETTLE_MS)
    await page.screenshot(path=FOLDER / f"{picture.name}.png")
    await page.close()


KEY = "sk-ant-" + "example" * 6
REPORTED: tuple[dict[str, object], ...] = (
    {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize"}},
    {"type": "user", "message": {"role": "user", "content": f"say My key is {KEY}"}},
    {"type": "keep_alive", "mood": "good"},
    {"type": "user", "message": {"role": "user", "content": 'call Bash {"command": "touch made"}'}},
)


def kill_engine(tap: int) -> None:
    """Kill the engine of a tap, and not its second process."""
    for pid in Path(f"/proc/{tap}/task/{tap}/children").read_text().split():
        if b"\0tap\0" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)


async def take_report(browser: Browser, home: str) -> None:
    """A report of a conversation with a secret, an unknown field, and a question that no one answers."""
    report = Path(home) / "report.html"
    engine = "parley --print --output-format stream-json --input-format stream-json --verbose --model offline"
    words = [*engine.split(), "--permission-prompt-tool", "stdio"]
    tap = await asyncio.create_subprocess_exec(
        *(str(PARLEY), "tap", "--quiet", "--html", str(report), "--", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=home,
        env={"HOME": home, "PATH": f"{PARLEY.parent}:/usr/bin:/bin"},
    )
    assert tap.stdin is not None
    assert tap.stdout is not None
    async with asyncio.timeout(START_SECONDS):
        for line in REPORTED:
            tap.stdin.write(json.dumps(line).encode() + b"\n")
            wanted = {"control_request": b'"control_response"', "user": b'"result"'}.get(str(line["type"]))
            wanted = b'"can_use_tool"' if line is REPORTED[-1] else wanted
            while wanted and wanted not in await tap.stdout.readline():
                pass
        kill_engine(tap.pid)
        await tap.wait()
    page = await browser.new_page(viewport={"width": 1280, "height": 860})
    await page.goto(report.as_uri())
    row = page.locator(".wire-row", has_text="user").first
    await row.locator("button").first.click()
    await page.wait_for_timeout(SETTLE_MS)
    await page.locator(".virtual").evaluate("list => (list.scrollTop = 0)")
    await page.screenshot(path=FOLDER / "report.png")
    await page.close()


async def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-headless-shell"))), None)
    if chromium is None:
        raise SystemExit("console_pictures: there is no chromium; install the package chromium")
    with tempfile.TemporaryDirectory() as home:
        command = [str(PARLEY), "console", "--demo", "--no-browser"]
        server = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, env={"HOME": home, "PATH": "/usr/bin:/bin"}
        )
        try:
            address = await read_address(server)
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
                for picture in PICTURES:
                    await take(browser, address, picture)
                    print(picture.name)
                await take_report(browser, home)
                await browser.close()
        finally:
            server.terminate()
            await server.wait()


async def read_address(server: asyncio.subprocess.Process) -> str:
    assert server.stderr is not None
    async with asyncio.timeout(START_SECONDS):
        while line := (await server.stderr.readline()).decode():
            if found := re.match(r"console on (\S+)", line):
                return found[1]
    raise SystemExit("console_pictures: the console did not start")


if __name__ == "__main__":
    asyncio.run(main())
