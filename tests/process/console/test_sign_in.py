"""Signing in: where the token comes from, where it is kept, and what happens when it is not accepted."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.helpers.console import Browser, needs_chromium
from tests.helpers.gateway import Server

pytestmark = needs_chromium


async def test_the_page_asks_for_a_token_and_says_when_it_is_wrong(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        page = await browser.open("/inbox", token="")
        await expect(page.get_by_role("heading", name="Sign in to Parley")).to_be_visible()
        await page.get_by_label("Token").fill("wrong")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("The token is not valid")
        await page.get_by_label("Token").fill(server.token)
        await page.keyboard.press("Enter")

        await expect(page.get_by_role("navigation", name="Main")).to_be_visible()
        await expect(page.get_by_role("link", name="Inbox")).to_have_attribute("aria-current", "page")


async def test_the_token_leaves_the_address_and_is_kept_in_memory_only(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        page = await browser.open("/")
        await expect(page.get_by_role("heading", level=1)).to_be_visible()

        assert server.token not in page.url
        kept = await page.evaluate(
            "() => JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, history.state])"
        )
        assert server.token not in kept
        assert await page.context.cookies() == []
        assert server.token not in await page.content()
        await page.reload()
        await expect(page.get_by_role("heading", name="Sign in to Parley")).to_be_visible()


async def test_a_token_that_was_revoked_asks_for_another_without_a_reload(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        _, made = await server.request("POST", "/tokens", {"name": "ann", "tenant": "", "scopes": ["prompt"]})
        session = await server.create(title="Mine")
        page = await browser.open(f"/s/{session}", token=made["token"])
        await expect(page.get_by_role("heading", name="Mine")).to_be_visible()
        await page.evaluate("() => { window.isTheSame = true; }")
        await server.request("DELETE", "/tokens/ann")

        await expect(page.get_by_role("alert")).to_contain_text("has expired")
        await page.get_by_label("Token").fill(server.token)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Mine")).to_be_visible()
        assert await page.evaluate("() => window.isTheSame")


async def test_a_viewer_sees_no_controls_that_its_token_cannot_use(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        _, made = await server.request("POST", "/tokens", {"name": "bob", "tenant": "", "scopes": ["view"]})
        session = await server.create(title="Watched")
        page = await browser.open("/", token=made["token"])
        await expect(page.get_by_role("link", name="Watched").last).to_be_visible()
        await expect(page.get_by_role("button", name="New session")).to_have_count(0)
        await page.goto(f"{server.url}/console/#/s/{session}")
        await expect(page.get_by_role("textbox", name="Prompt")).to_be_disabled()
        await page.get_by_role("button", name="Session", exact=True).click()
        await expect(page.get_by_role("menuitem", name="Compare with…")).to_be_visible()
        await expect(page.get_by_role("menuitem", name="Wire view")).to_have_count(0)
        await expect(page.get_by_role("menuitem", name="Delete")).to_have_count(0)


class ServerBehindProxy(Server):
    """A server whose pages have a prefix."""

    @property
    def url(self) -> str:
        return f"{super().url}/team/parley"


async def test_the_page_signs_in_behind_a_path_prefix(tmp_path: Path) -> None:
    options = ("--model", "offline", "--path-prefix", "/team/parley")
    async with ServerBehindProxy(tmp_path, *options) as server, Browser(server) as browser:
        session = await server.create(title="Behind a proxy")
        page = await browser.open("/", token="")
        await page.get_by_label("Token").fill(server.token)
        await page.keyboard.press("Enter")
        await page.get_by_text("Behind a proxy").first.click()
        await expect(page.get_by_role("heading", name="Behind a proxy")).to_be_visible()
        assert page.url == f"{server.url}/console/#/s/{session}"
