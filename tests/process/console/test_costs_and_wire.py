"""What sessions cost, and their raw lines, in the browser."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.async_api import expect

from parley.models.script import Script, ScriptedTurn, TurnLike, call
from parley.stores.request_usage import FIRST, UNKNOWN
from tests.helpers.console import Browser, create_session, needs_chromium, run_turns
from tests.helpers.gateway import Server

pytestmark = needs_chromium


async def test_turns_are_counted_by_day_model_and_session(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, ["One.", "Two."], title="Two turns")
        await run_turns(server, session, "first", "second")
        page = await browser.open("/costs")
        figures = page.locator(".figures > div")
        await expect(figures.filter(has_text="Turns").locator("dd")).to_have_text("2")
        row = page.locator(".cost-table tr", has_text="Two turns")
        await expect(row.locator("td").nth(1)).to_have_text("2")
        await row.get_by_role("button", name="Show the turns").click()
        table = page.get_by_role("table", name="Tokens per turn")
        await expect(table.locator("tbody tr")).to_have_count(2)
        await expect(page.get_by_role("img", name="Time per turn")).to_be_visible()


async def test_the_lines_of_both_directions_are_shown_with_what_is_open(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        turns: list[TurnLike] = ["Hello.", call("Bash", command="touch made"), "made"]
        session = await create_session(server, turns, title="Wire")
        await run_turns(server, session, "say it", "touch it")
        page = await browser.open(f"/s/{session}/wire")
        waiting = page.locator(".wire-open li")
        await expect(waiting.filter(has_text="can_use_tool")).to_have_count(1)
        await expect(waiting.filter(has_text="user")).to_have_count(1)

        await page.get_by_role("searchbox", name="Search lines").fill("say it")
        rows = page.locator(".wire-row")
        await expect(rows).to_have_count(1)
        await expect(rows.locator(".wire-latency")).to_be_visible()
        await rows.get_by_role("button").click()
        await expect(rows.locator("pre")).to_contain_text('"content": "say it"')
        await rows.get_by_role("button", name="Show the answer").click()
        await expect(page.locator(".wire-row", has_text="result success").first).to_be_visible()

        await page.get_by_role("button", name="Unknown fields").click()
        await expect(page.get_by_text("No line matches the filter.")).to_be_visible()
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Export recording").click()
        saved = Path(await (await download.value).path()).read_text()
        assert "touch made" in saved


async def test_secrets_do_not_reach_the_page(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "x" * 40
    async with Server(tmp_path, environment={"ANTHROPIC_API_KEY": secret}) as server, Browser(server) as browser:
        session = await create_session(server, ["Noted."], title="Secret")
        await run_turns(server, session, f"remember {secret}")
        page = await browser.open(f"/s/{session}/wire")
        await expect(page.locator(".wire-row", has_text="result success")).to_be_visible()
        _, found = await server.request("GET", f"/sessions/{session}/wire")
        assert "remember" in json.dumps(found)
        assert secret not in json.dumps(found)


async def test_the_context_window_and_the_budget_that_is_left(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        wanted = {"name": "ann", "tenant": "", "scopes": ["prompt", "create"], "quotas": {"usd": 5}}
        _, made = await server.request("POST", "/tokens", wanted)
        session = await create_session(server, ["One."], title="Context")
        await run_turns(server, session, "first")
        page = await browser.open(f"/s/{session}", token=made["token"])
        await page.get_by_text("Context window").click()
        await expect(page.locator(".context-bar span").first).to_be_visible()
        await expect(page.locator(".context-legend")).to_contain_text("Messages")
        await page.goto(f"{server.url}/console/#/costs")
        await expect(page.locator(".figures > div", has_text="Budget left")).to_contain_text("$5.00 of $5.00")


async def test_what_each_request_missed_in_the_prompt_cache(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    async with Server(tmp_path) as server, Browser(server) as browser:
        turns: list[TurnLike] = [
            ScriptedTurn(
                text=str(read),
                usage={"input_tokens": 3, "cache_read_input_tokens": read, "cache_creation_input_tokens": written},
            )
            for read, written in ((0, 5000), (2000, 3500))
        ]
        script = tmp_path / hostile
        script.write_bytes(Script(turns).to_json())
        session = await server.create(options={"model": f"scripted:{script}"}, title="Cache")
        await run_turns(server, session, "first", "second")
        page = await browser.open(f"/s/{session}")
        table = page.get_by_role("table", name="Tokens of each request")
        await expect(page.locator(".rail summary", has_text="Prompt cache")).to_be_visible()
        await expect(table).to_have_count(0)

        await page.locator(".rail summary", has_text="Prompt cache").focus()
        await page.keyboard.press("Enter")
        newest, oldest = table.locator("tbody").nth(0), table.locator("tbody").nth(1)
        await expect(newest.locator("td")).to_have_text(["2.0k", "3.5k", "3", "3.0k", UNKNOWN])
        await expect(oldest.locator("td").last).to_have_text(FIRST)
        await expect(newest.locator("th")).to_contain_text(hostile)
        await expect(table.locator("img")).to_have_count(0)
