"""What the page says when something is wrong, and that it recovers without a reload."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from playwright.async_api import Route, expect

from parley.models.script import TurnLike, call
from tests.helpers.console import Browser, create_session, needs_chromium, run_turns, send_prompt
from tests.helpers.gateway import Server
from tests.helpers.patience import PATIENCE_SECONDS

pytestmark = needs_chromium


async def test_a_restart_of_the_server_is_survived(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await server.create(title="Kept")
        page = await browser.open(f"/s/{session}")
        await expect(page.get_by_text("Nothing was said yet")).to_be_visible()
        await page.evaluate("() => { window.isTheSame = true; }")
        await send_prompt(server, session, 'call Bash {"command": "touch made"}\nsay Made.')
        await expect(page.get_by_role("region", name="Approvals")).to_be_visible()
        await server.kill(signal.SIGTERM)
        banner = page.locator(".banner")
        await expect(banner).to_contain_text("The connection to the server was lost")
        await server.start()

        await expect(banner).to_have_count(0, timeout=60_000)
        await page.get_by_role("button", name="Allow A").click()
        await expect(page.locator(".answer")).to_have_text("Made.")
        await expect(page.locator(".prompt")).to_have_count(1)
        assert await page.evaluate("() => window.isTheSame")


async def test_lines_that_came_while_the_connection_was_cut_are_there_once(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await server.create()
        await run_turns(server, session, "say one")
        page = await browser.open(f"/s/{session}")
        await expect(page.locator(".answer")).to_have_text("one")
        await page.context.set_offline(True)
        await run_turns(server, session, "say two", "say three")
        await page.context.set_offline(False)

        await expect(page.locator(".answer")).to_have_text(["one", "two", "three"], timeout=60_000)
        await expect(page.locator(".prompt")).to_have_count(3)


async def test_a_session_that_is_deleted_elsewhere_is_said_plainly(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await server.create(title="Doomed")
        page = await browser.open(f"/s/{session}")
        await expect(page.get_by_role("heading", name="Doomed")).to_be_visible()
        await server.request("DELETE", f"/sessions/{session}")
        await expect(page.get_by_role("heading", name="This session does not exist")).to_be_visible()
        await page.get_by_role("link", name="Show all sessions").click()
        await expect(page.get_by_text("No sessions yet")).to_be_visible()

        unknown = await browser.open("/nowhere/at/all")
        await expect(unknown.get_by_role("heading", name="There is nothing here")).to_be_visible()


async def test_ages_follow_the_clock_of_the_server(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        await server.create(title="Fresh")
        page = await browser.open("/", token="")
        await page.clock.install(time="2020-01-01T00:00:00Z")
        await page.goto(f"{server.url}/console/?late#token={server.token}")
        await expect(page.locator(".session-row .age")).to_have_text("now")


async def test_a_decision_that_came_too_late_says_who_was_first(tmp_path: Path) -> None:
    turns: list[TurnLike] = [[call("Bash", command="touch made")], "Made."]
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, turns)
        page = await browser.open(f"/s/{session}")
        await send_prompt(server, session, "Make it")
        await expect(page.get_by_role("button", name="Allow A")).to_be_visible()
        await page.route("**/answer", lambda route: answer_first(server, session, route))
        await page.get_by_role("button", name="Deny D").click()
        await page.get_by_role("region", name="Approvals").get_by_role("button", name="Deny", exact=True).click()

        await expect(page.locator(".toast")).to_contain_text("decided by 'admin'")
        await expect(page.locator(".answer")).to_have_text("Made.")


async def test_a_question_that_comes_while_the_list_of_questions_loads_stays(tmp_path: Path) -> None:
    turns: list[TurnLike] = [[call("Bash", command="touch made")], "Made."]
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, turns)
        page = await browser.open("/", token="")
        allow = page.get_by_role("button", name="Allow A")

        async def answer_late(route: Route) -> None:
            empty = await route.fetch()
            await send_prompt(server, session, "Make it")
            await allow.wait_for()
            await route.fulfill(response=empty)
            is_answered.set()

        is_answered = asyncio.Event()
        await page.route("**/questions", answer_late)
        await page.goto("about:blank")
        await page.goto(f"{server.url}/console/#/s/{session}?token={server.token}")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await is_answered.wait()
        await page.evaluate("() => new Promise(requestAnimationFrame)")
        await allow.click()
        await expect(page.locator(".answer")).to_have_text("Made.")


async def answer_first(server: Server, session: str, route: object) -> None:
    """Somebody else decides while the answer of the page is on its way."""
    assert isinstance(route, Route)
    _, found = await server.request("GET", f"/questions?session={session}")
    for question in found["questions"]:
        await server.request("POST", f"/questions/{session}/{question['request_id']}/answer", {"behavior": "allow"})
    await route.continue_()
