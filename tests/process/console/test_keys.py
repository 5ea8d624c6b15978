"""Keys of the console, titles of its pages, and states that are true."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.helpers.console import Browser, needs_chromium, run_turns
from tests.helpers.gateway import Server

pytestmark = needs_chromium


async def test_keys_open_pages_and_send_forms_and_every_page_has_its_title(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        page = await browser.open("/")
        await expect(page).to_have_title("Sessions · Parley")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_contain_text("start a new session")
        await page.keyboard.press("n")  # a dialog has its own keys
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("i")
        await expect(page).to_have_title("Inbox · Parley")
        await page.keyboard.press("c")
        await expect(page).to_have_title("Costs · Parley")
        await page.keyboard.press("n")
        dialog = page.get_by_role("dialog", name="New session")
        await dialog.get_by_label("Title").fill("n and ?")
        await dialog.get_by_label("First prompt").fill("say Hello.")
        await page.keyboard.press("Control+Enter")
        await expect(page.locator(".answer")).to_have_text("Hello.")
        await expect(page).to_have_title("n and ? · Parley")
        await page.keyboard.press("s")
        await page.keyboard.press("n")
        await expect(dialog).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await expect(page).to_have_title("Sessions · Parley")


async def test_a_call_after_a_question_is_queued_and_not_running(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await server.create(title="Two calls")
        await run_turns(server, session, 'call Bash {"command": "touch a"}\ncall Bash {"command": "touch b"}')
        page = await browser.open(f"/s/{session}")
        states = page.locator(".tool .tool-state")
        await expect(states).to_have_text(["waits for you", "queued"])


async def test_the_navigation_of_a_phone_has_words(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        page = await browser.open("/")
        await page.set_viewport_size({"width": 360, "height": 800})
        for name in ("Sessions", "Inbox", "Costs"):
            text = page.locator(".nav-main").get_by_text(name, exact=True)
            await expect(text).to_be_in_viewport()
            box = await text.bounding_box()
            assert box is not None
            assert box["width"] > 20
