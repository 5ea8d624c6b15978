"""The inbox in the browser: questions of all sessions, keys to answer them, and what a rule would have allowed."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from parley.models.script import call
from tests.helpers.console import Browser, create_session, needs_chromium, run_turns, wait_for_state
from tests.helpers.gateway import Server

pytestmark = needs_chromium

PUSH = call("Bash", command="git push --tags", description="Push the tags")
PLAN = call("ExitPlanMode", plan="# Plan\n\n1. Do it\n2. Test it")


async def test_questions_of_all_sessions_are_answered_with_the_keyboard(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        first = await create_session(server, [call("Bash", command="touch one"), "made one"], title="First")
        second = await create_session(server, [call("Bash", command="touch two"), "made two"], title="Second")
        for session in (first, second):
            await run_turns(server, session, "go")
        page = await browser.open("/inbox")
        entries = page.locator(".inbox-entry")
        await expect(entries).to_have_count(2)
        await expect(page.locator(".inbox-detail pre")).to_have_text("touch one")
        await expect(page).to_have_title("(2) Inbox · Parley")

        await page.keyboard.press("j")
        await expect(page.locator(".inbox-detail pre")).to_have_text("touch two")
        await page.keyboard.press("a")
        await wait_for_state(server, second, "idle")
        assert (server.root / "two").exists()
        await expect(entries).to_have_count(1)
        await expect(page.locator(".inbox-detail pre")).to_have_text("touch one")
        await page.keyboard.press("d")
        await page.keyboard.type("Use another name")
        await page.get_by_role("button", name="Deny").click()
        await wait_for_state(server, first, "idle")
        assert not (server.root / "one").exists()
        await expect(page.get_by_text("Nothing waits for you")).to_be_visible()
        decided = page.locator(".decided li")
        await expect(decided).to_have_count(2)
        await expect(decided.first).to_contain_text("denied by admin")
        await expect(page).to_have_title("Inbox · Parley")


async def test_a_rule_is_tried_on_earlier_calls_before_it_is_added(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        earlier = await create_session(server, [call("Bash", command="git push --force"), "ok"], title="Earlier")
        await run_turns(server, earlier, "go")
        asking = await create_session(server, [PUSH, "ok"], title="Asking")
        await run_turns(server, asking, "go")
        page = await browser.open("/inbox")
        await page.locator(".inbox-entry", has_text="Asking").click()
        await expect(page.locator(".rule code").first).to_have_text("Bash(git push *)")
        await page.get_by_role("button", name="What would it have allowed?").click()

        calls = page.locator(".rule-calls li")
        await expect(calls).to_have_count(2)
        await expect(calls.filter(has_text="git push --force")).to_have_count(1)


async def test_a_plan_is_sent_back_with_comments_and_then_approved(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        options = {"permission_mode": "plan"}
        session = await create_session(server, [PLAN, PLAN, "done"], title="Migration", options=options)
        await run_turns(server, session, "go")
        page = await browser.open("/inbox")
        await expect(page.locator(".plan-frame li")).to_have_text(["Do it", "Test it"])
        await page.get_by_label("Comments").fill("Test first")
        await page.get_by_role("button", name="Send comments").click()
        await expect(page.locator(".decided li")).to_contain_text("denied by admin")
        await page.get_by_role("button", name="Approve, ask before edits").click()
        await wait_for_state(server, session, "idle")
        await expect(page.get_by_text("Nothing waits for you")).to_be_visible()


async def test_three_pages_agree_on_who_decided(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        _, created = await server.request("POST", "/tokens", {"name": "phone", "scopes": ["view", "approve"]})
        session = await create_session(server, [PUSH, "ok"], title="Release")
        await run_turns(server, session, "go")
        pages = [await browser.open("/inbox") for _ in range(2)]
        phone = await browser.open("/inbox", token=created["token"], width=360, height=740)
        for page in (*pages, phone):
            await expect(page.locator(".inbox-entry")).to_have_count(1)
        await phone.get_by_role("button", name="Deny").click()
        await phone.get_by_role("button", name="Deny", exact=True).click()
        for page in (*pages, phone):
            await expect(page.locator(".decided li")).to_contain_text("denied by phone")
            await expect(page.locator(".inbox-entry")).to_have_count(0)


async def test_a_question_is_notified_while_the_page_is_hidden(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        page = await browser.open("/inbox", permissions=["notifications"])
        await expect(page.get_by_text("Nothing waits for you")).to_be_visible()
        await page.evaluate(
            """() => {
                window.shown = [];
                window.Notification = class {
                    static permission = "granted";
                    constructor(title, options) { window.shown.push([title, options.body]); }
                };
                Object.defineProperty(document, "hidden", { get: () => true });
            }"""
        )
        session = await create_session(server, [PUSH, "ok"], title="Release")
        await run_turns(server, session, "go")
        await expect(page.locator(".inbox-entry")).to_have_count(1)
        assert await page.evaluate("() => window.shown") == [["Release waits for you", "Run this command?"]]
