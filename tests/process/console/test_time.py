"""Going back: rewind files to a message, and compare two sessions."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from parley.models.script import TurnLike, call
from tests.helpers.console import Browser, create_session, needs_chromium, run_turns
from tests.helpers.gateway import Server

pytestmark = needs_chromium


async def test_files_are_rewound_after_the_difference_was_shown(tmp_path: Path) -> None:
    turns: list[TurnLike] = [
        [call("Write", file_path="notes.txt", content="one\ntwo\n")],
        "Written.",
        [call("Edit", file_path="notes.txt", old_string="two", new_string="three")],
        "Changed.",
    ]
    async with Server(tmp_path, "--permission-mode", "acceptEdits") as server, Browser(server) as browser:
        session = await create_session(server, turns)
        await run_turns(server, session, "Write it", "Change it")
        page = await browser.open(f"/s/{session}", height=1600)
        prompt = page.locator(".item[data-kind=prompt]").filter(has_text="Change it")
        await prompt.get_by_role("button", name="Actions of this message").click()
        await page.get_by_role("menuitem", name="Rewind files to here").click()
        dialog = page.get_by_role("dialog", name="Rewind files")
        await expect(dialog.locator("tr.removed")).to_contain_text("three")
        await expect(dialog.locator("tr.added")).to_contain_text("two")
        assert (server.root / "notes.txt").read_text() == "one\nthree\n"
        await dialog.get_by_role("button", name="Rewind 1 file").click()

        await expect(dialog).to_have_count(0)
        assert (server.root / "notes.txt").read_text() == "one\ntwo\n"

        await prompt.get_by_role("button", name="Actions of this message").click()
        await page.get_by_role("menuitem", name="Rewind files to here").click()
        await expect(dialog).to_contain_text("No file has changed since that message.")


async def test_two_sessions_are_compared_from_where_they_part(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        left = await server.create(title="Left")
        right = await server.create(title="Right")
        await run_turns(server, left, "say same", "say left")
        await run_turns(server, right, "say same", "say right")
        page = await browser.open(f"/s/{left}")
        await page.get_by_role("button", name="Session", exact=True).click()
        await page.get_by_role("menuitem", name="Compare with…").click()
        await page.get_by_role("dialog").get_by_role("button", name="Right").click()

        await expect(page.get_by_text("The first 3 entries are the same.")).to_be_visible()
        columns = page.locator(".compare-column")
        await expect(columns.first.locator(".answer")).to_have_text("left")
        await expect(columns.last.locator(".answer")).to_have_text("right")
        await page.get_by_role("button", name="Show what is the same").click()
        await expect(columns.first.locator(".answer")).to_have_text(["same", "left"])


async def test_a_session_is_forked_from_a_message(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, ["One.", "Two.", "Other."], title="Parent")
        await run_turns(server, session, "first", "second")
        page = await browser.open(f"/s/{session}")
        answer = page.locator(".item[data-kind=text]").filter(has_text="One.")
        await answer.get_by_role("button", name="Actions of this message").click()
        await page.get_by_role("menuitem", name="Fork from here").click()

        await expect(page.locator(".conversation-title h1")).to_have_text("Parent (fork)")
        await expect(page.locator(".answer")).to_have_text(["One."])
        _, listed = await server.request("GET", "/sessions")
        assert {info["title"] for info in listed["sessions"]} == {"Parent", "Parent (fork)"}
