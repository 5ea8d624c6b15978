"""Questions inside of a conversation: permissions, plans, choices, and several browsers that look at the same one."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import expect

from parley.models.script import TurnLike, call
from tests.helpers.console import Browser, create_session, needs_chromium, send_prompt
from tests.helpers.gateway import Server

pytestmark = needs_chromium


async def test_a_command_is_allowed_with_the_keyboard(tmp_path: Path) -> None:
    turns: list[TurnLike] = [[call("Bash", command="touch made", description="Make a file")], "Made."]
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, turns)
        page = await browser.open(f"/s/{session}")
        await send_prompt(server, session, "Make it")
        bar = page.get_by_role("region", name="Approvals")
        await expect(bar.locator(".content-frame")).to_contain_text("touch made")
        await expect(page.locator(".conversation-head .pill")).to_have_text("Waits for you")
        await expect(page.get_by_role("link", name="Inbox")).to_contain_text("1")
        await expect(page).to_have_title(re.compile(r"^\(1\) .* · Parley$"))
        await expect(page.locator('.tool[data-tool="Bash"]')).to_have_attribute("data-state", "waiting")

        await bar.get_by_role("button", name="Allow A").focus()
        await page.keyboard.press("a")
        await expect(page.locator(".answer")).to_have_text("Made.")
        await expect(bar).to_have_count(0)
        await expect(page.locator('.tool[data-tool="Bash"]')).to_contain_text("allowed by admin")
        assert (server.root / "made").exists()


async def test_a_denial_says_why_and_always_adds_a_rule(tmp_path: Path) -> None:
    turns: list[TurnLike] = [
        [call("Bash", command="touch one")],
        [call("Bash", command="touch two")],
        [call("Bash", command="touch two")],
        "Finished.",
    ]
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, turns)
        page = await browser.open(f"/s/{session}")
        await send_prompt(server, session, "Make them")
        bar = page.get_by_role("region", name="Approvals")
        await bar.get_by_role("button", name="Deny D").click()
        await bar.get_by_role("textbox").fill("Use another name")
        await bar.get_by_role("button", name="Deny", exact=True).click()
        denied = page.locator('.tool[data-tool="Bash"]').first
        await expect(denied).to_contain_text("denied by admin")
        await expect(denied).to_contain_text("Use another name")

        await bar.get_by_role("button", name="Always allow Bash(touch two").click()
        await expect(page.locator(".answer")).to_have_text("Finished.")
        assert not (server.root / "one").exists()
        assert (server.root / "two").exists()


async def test_a_plan_is_sent_back_with_comments_and_then_approved(tmp_path: Path) -> None:
    turns: list[TurnLike] = [
        [call("ExitPlanMode", plan="# Plan\n\n1. **Delete** everything")],
        [call("ExitPlanMode", plan="# Plan\n\n1. Keep everything")],
        [call("Write", file_path="kept.txt", content="kept")],
        "Kept.",
    ]
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, turns, options={"permission_mode": "plan"})
        page = await browser.open(f"/s/{session}")
        await send_prompt(server, session, "Plan it")
        bar = page.get_by_role("region", name="Approvals")
        await expect(bar.locator("strong")).to_have_text("Delete")
        await bar.get_by_role("textbox", name="Comments").fill("Delete nothing")
        await expect(bar.get_by_role("button", name="Approve, accept edits")).to_be_disabled()
        await bar.get_by_role("button", name="Send comments").click()
        await expect(bar.locator(".content-frame")).to_contain_text("Keep everything")
        await bar.get_by_role("button", name="Approve, accept edits").click()

        await expect(page.locator(".answer")).to_have_text("Kept.")
        assert (server.root / "kept.txt").read_text() == "kept"
        await expect(page.locator(".tool-error").first).to_contain_text("Delete nothing")


async def test_a_question_with_choices_is_answered(tmp_path: Path) -> None:
    questions = [
        {
            "question": "Which database?",
            "header": "DB",
            "multiSelect": False,
            "options": [{"label": "Postgres", "description": "big"}, {"label": "SQLite", "description": "small"}],
        },
        {
            "question": "Which tests?",
            "header": "Tests",
            "multiSelect": True,
            "options": [{"label": "unit", "description": ""}, {"label": "browser", "description": ""}],
        },
    ]
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, [[call("AskUserQuestion", questions=questions)], "Understood."])
        page = await browser.open(f"/s/{session}")
        await send_prompt(server, session, "Ask me")
        bar = page.get_by_role("region", name="Approvals")
        await expect(bar.get_by_role("button", name="Answer")).to_be_disabled()
        await bar.get_by_role("radio", name="SQLite").check()
        await bar.get_by_role("checkbox", name="unit").check()
        await bar.get_by_role("textbox", name="Other answer").last.fill("by hand")
        await bar.get_by_role("button", name="Answer").click()

        await expect(page.locator(".answer")).to_have_text("Understood.")
        await expect(page.locator(".answers dd")).to_have_text(["SQLite", "unit, by hand"])


async def test_three_browsers_show_who_decided(tmp_path: Path) -> None:
    turns: list[TurnLike] = [[call("Bash", command="touch made")], "Made."]
    async with Server(tmp_path) as server, Browser(server) as browser:
        _, created = await server.request(
            "POST", "/tokens", {"name": "ann", "tenant": "", "scopes": ["approve", "prompt", "view"]}
        )
        _, viewer = await server.request("POST", "/tokens", {"name": "bob", "tenant": "", "scopes": ["view"]})
        session = await create_session(server, turns)
        first = await browser.open(f"/s/{session}")
        second = await browser.open(f"/s/{session}", token=created["token"])
        third = await browser.open(f"/s/{session}", token=viewer["token"])
        await send_prompt(server, session, "Make it")
        for page in (first, second, third):
            await expect(page.get_by_role("region", name="Approvals")).to_be_visible()
        await expect(third.get_by_role("button", name="Allow A")).to_be_disabled()
        await expect(third.get_by_role("textbox", name="Prompt")).to_be_disabled()

        await second.get_by_role("button", name="Allow A").click()
        for page in (first, second, third):
            await expect(page.get_by_role("region", name="Approvals")).to_have_count(0)
            await expect(page.locator('.tool[data-tool="Bash"]')).to_contain_text("allowed by ann")
