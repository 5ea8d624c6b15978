"""The console for everybody: screen readers (axe), the keyboard alone, small and large windows, light and dark."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from parley.models.script import TurnLike, call
from tests.compat.harness import installed
from tests.compat.install import AXE
from tests.helpers.console import (
    Browser,
    create_session,
    needs_chromium,
    read_script,
    run_turns,
    send_prompt,
    wait_for_state,
)
from tests.helpers.gateway import Server

pytestmark = needs_chromium

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LONG = "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenverordnung"
SETTLE = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
"""Waits until a new size of the window is drawn."""
QUESTIONS = [
    {
        "question": f"Which {LONG}?",
        "header": "DB",
        "multiSelect": False,
        "options": [{"label": LONG, "description": "big"}, {"label": "SQLite", "description": "small"}],
    }
]


@pytest.fixture(scope="module")
def axe() -> str:
    return (installed(AXE).place / "node_modules" / "axe-core" / "axe.min.js").read_text()


async def find_faults(page: Page, axe: str, at: str = "") -> list[str]:
    """What axe finds in a wide, a dark and a narrow window. Of its rules, only that for contrasts looks at colours."""
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(f"() => {{ {axe} }}")
    everything, contrasts = {"runOnly": RULES}, {"runOnly": ["color-contrast"]}
    faults = [f"wide {at}: {fault}" for fault in await run_axe(page, everything)]
    await page.emulate_media(color_scheme="dark")
    faults += [f"dark {at}: {fault}" for fault in await run_axe(page, contrasts)]
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size({"width": 360, "height": 800})
    await page.evaluate(SETTLE)
    faults += [f"narrow {at}: {fault}" for fault in await run_axe(page, everything)]
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.evaluate(SETTLE)
    return faults


async def run_axe(page: Page, options: dict[str, Any]) -> list[str]:
    found: dict[str, Any] = await page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{fault['id']} ({fault['impact']}): {node['target']} {node['html'][:120]}"
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical", "moderate")
        for node in fault["nodes"]
    ]


async def fill(server: Server) -> dict[str, str]:
    """Sessions that show everything, by what they wait for."""
    (server.root / "app.py").write_text("def main():\n    return 'hello'\n")
    todos = [{"content": LONG, "status": "in_progress", "activeForm": LONG}]
    edit = call("Edit", file_path="app.py", old_string="'hello'", new_string=f"'{LONG}'")
    turns: list[TurnLike] = [
        [
            f"# {LONG}\n\n| {LONG} | b |\n|---|---|\n| c | {LONG} |\n\n`{LONG * 3}`",
            call("Read", file_path="app.py"),
            edit,
        ],
        [call("Bash", command=f"echo {LONG * 4}; exit 1"), call("TodoWrite", todos=todos)],
        ["Asking.", call("Bash", command=f"touch {LONG * 3}", description=LONG)],
    ]
    options = {"permission_mode": "acceptEdits", "allowed_tools": ["Bash(echo *)"]}
    everything = await create_session(server, turns, title=LONG * 2, options=options)
    plan = await create_session(server, [[call("ExitPlanMode", plan=f"# {LONG}\n\n1. one")]], title="Plan")
    choices = await create_session(server, [[call("AskUserQuestion", questions=QUESTIONS)]], title="Choices")
    for session in (everything, plan, choices):
        await send_prompt(server, session, f"Do it {LONG}")
        await wait_for_state(server, session, "requires_action")
    failed = await server.create(title="Failed")
    await run_turns(server, failed, "fail 400 no such model")
    return {"everything": everything, "plan": plan, "choices": choices, "failed": failed}


async def show(page: Page, server: Server, route: str) -> None:
    await page.goto(f"{server.url}/console/#{route}")
    await expect(page.locator("h1").first).to_be_visible()
    await expect(page.locator(".boot")).to_have_count(0)


async def test_axe_has_no_finding(tmp_path: Path, axe: str) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        sessions = await fill(server)
        login = await browser.open("/", token="", reduced_motion="reduce")
        await expect(login.get_by_role("heading", name="Sign in to Parley")).to_be_visible()
        assert await find_faults(login, axe) == []

        page = await browser.open("/", reduced_motion="reduce")
        await expect(page.locator(".session-row")).to_have_count(4)
        assert await find_faults(page, axe) == []
        await page.get_by_role("button", name="New session").click()
        assert await find_faults(page, axe) == []
        await page.keyboard.press("Escape")
        for name, session in sessions.items():
            await show(page, server, f"/s/{session}")
            await expect(page.locator(".prompt").last).to_be_visible()
            await page.locator(".rail summary", has_text="Prompt cache").click()
            await expect(page.locator(".rail").get_by_text("Loading…")).to_have_count(0)
            assert await find_faults(page, axe, name) == []
        await page.locator(".item[data-kind=result]").get_by_role("button").click()
        await page.get_by_role("menuitem", name="Where the time went").click()
        assert await find_faults(page, axe, "timeline") == []
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Session", exact=True).click()
        assert await find_faults(page, axe) == []
        await show(page, server, f"/compare/{sessions['everything']}/{sessions['plan']}")
        await expect(page.get_by_text("Loading…")).to_have_count(0)
        assert await find_faults(page, axe) == []


OVERFLOW = read_script("find_overflow")
SIZES = [(360, 800), (700, 800), (1280, 800), (3840, 2160)]


async def find_overflow(page: Page) -> list[str]:
    """What is cut off at any width."""
    found = []
    for width, height in SIZES:
        await page.set_viewport_size({"width": width, "height": height})
        await page.evaluate(SETTLE)
        found += [f"{width}: {each}" for each in await page.evaluate(OVERFLOW)]
    return found


async def test_nothing_is_cut_off_at_any_width(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        sessions = await fill(server)
        page = await browser.open("/", width=360)
        await expect(page.locator(".session-row")).to_have_count(4)
        assert await find_overflow(page) == []
        for name, session in sessions.items():
            await show(page, server, f"/s/{session}")
            await expect(page.locator(".prompt").last).to_be_visible()
            assert await find_overflow(page) == [], name
            if name != "everything":
                continue
            for width, height in SIZES:
                await page.set_viewport_size({"width": width, "height": height})
                for button in ("Allow A", "Deny D", "Stop", "Queue the prompt"):
                    await expect(page.get_by_role("button", name=button)).to_be_in_viewport()


async def test_everything_can_be_done_with_the_keyboard(tmp_path: Path) -> None:
    turns: list[TurnLike] = [[call("Bash", command="touch made")], "Made."]
    async with Server(tmp_path) as server, Browser(server) as browser:
        await create_session(server, turns, title="By keyboard")
        page = await browser.open("/")
        await expect(page.locator(".session-row")).to_have_count(1)
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("main")).to_be_focused()
        row = page.locator(".session-link")
        await press_until(page, "Tab", row)
        await page.keyboard.press("Enter")

        prompt = page.get_by_role("textbox", name="Prompt")
        await expect(prompt).to_be_visible()
        await press_until(page, "Tab", prompt)
        await page.keyboard.type("Make it")
        await page.keyboard.press("Enter")
        allow = page.get_by_role("button", name="Allow A")
        await expect(allow).to_be_visible()
        await press_until(page, "Shift+Tab", allow)
        await page.keyboard.press("Enter")
        await expect(page.locator(".answer")).to_have_text("Made.")
        card = page.locator(".tool-head")
        await press_until(page, "Shift+Tab", card)
        await page.keyboard.press("Enter")
        await expect(card).to_have_attribute("aria-expanded", "false")


async def press_until(page: Page, key: str, wanted: Any) -> None:
    """Move the focus; a page where that is not possible does not have 60 controls."""
    for _ in range(60):
        if await wanted.evaluate_all("found => found.includes(document.activeElement)"):
            return
        await page.keyboard.press(key)
        await asyncio.sleep(0)
    raise AssertionError(f"{key} does not reach {wanted}")
