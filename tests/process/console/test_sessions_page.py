"""The list of sessions in the browser."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.helpers.console import Browser, needs_chromium, run_turns, send_prompt, wait_for_state
from tests.helpers.gateway import Server

pytestmark = needs_chromium


async def test_states_search_and_filters(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        calm = await server.create(title="Calm one")
        failed = await server.create(title="Broken one")
        waiting = await server.create(title="Waiting one")
        await run_turns(server, calm, "say The capital of Peru is Lima.")
        await run_turns(server, failed, "fail 400 no such model")
        await run_turns(server, waiting, 'call Bash {"command": "touch x"}')
        page = await browser.open("/")
        rows = page.locator(".session-row")
        await expect(rows).to_have_count(3)
        await expect(rows.filter(has_text="Calm one")).to_contain_text("The capital of Peru")
        await expect(rows.filter(has_text="Calm one")).to_contain_text("Idle")
        await expect(rows.filter(has_text="Broken one")).to_contain_text("Failed")
        await expect(rows.filter(has_text="Broken one")).to_contain_text("no such model")
        await expect(rows.filter(has_text="Waiting one")).to_contain_text("Waits for you")
        await expect(rows.filter(has_text="Calm one")).to_contain_text("offline")

        await page.get_by_role("searchbox", name="Search sessions").fill("lima")
        await expect(rows).to_have_count(1)
        await expect(rows.locator("mark")).to_have_text("Lima")
        await page.get_by_role("searchbox", name="Search sessions").fill("nothing like it")
        await expect(page.get_by_text("No session matches")).to_be_visible()
        await page.get_by_role("searchbox", name="Search sessions").fill("")
        await page.get_by_role("button", name="Failed").click()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("Broken one")


async def test_the_list_is_live(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        page = await browser.open("/")
        await expect(page.get_by_text("No sessions yet")).to_be_visible()
        session = await server.create(title="New one")
        row = page.locator(".session-row").filter(has_text="New one")
        await expect(row).to_be_visible()
        await send_prompt(server, session, "wait 1\nsay Finished.")
        await expect(row).to_contain_text("Working")
        await wait_for_state(server, session, "idle")
        await expect(row).to_contain_text("Finished.")
        await expect(row).to_contain_text("Idle")
        await server.request("DELETE", f"/sessions/{session}")
        await expect(row).to_have_count(0)


async def test_a_session_is_created_and_deleted(tmp_path: Path) -> None:
    (tmp_path / "root" / "work").mkdir(parents=True)
    async with Server(tmp_path) as server, Browser(server) as browser:
        page = await browser.open("/")
        await page.get_by_role("button", name="New session").click()
        dialog = page.get_by_role("dialog", name="New session")
        await dialog.get_by_label("First prompt").fill("say Hello.")
        await dialog.get_by_label("Folder").fill("nowhere")
        await dialog.get_by_role("button", name="Create").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("there is no directory 'nowhere'")
        await dialog.get_by_label("Folder").fill("work")
        await dialog.get_by_label("Title").fill("Greeting")
        await dialog.get_by_role("button", name="Create").click()

        await expect(page.get_by_role("heading", name="Greeting")).to_be_visible()
        await expect(page.locator(".answer")).to_have_text("Hello.")
        await page.get_by_role("button", name="Session", exact=True).click()
        await page.get_by_role("menuitem", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No sessions yet")).to_be_visible()


async def test_many_sessions_are_listed_in_parts(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        for number in range(230):
            await server.create(title=f"Session {number}")
        page = await browser.open("/")
        rows = page.locator(".session-row")
        await expect(rows).to_have_count(200)
        await expect(rows.first).to_contain_text("Session 229")
        await page.get_by_role("button", name="Show more (30 left)").click()
        await expect(rows).to_have_count(230)
        await expect(rows.last).to_contain_text("Session 0")
