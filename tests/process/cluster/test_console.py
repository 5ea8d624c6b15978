"""The console in a real browser while the owner of its session is killed."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.helpers.console import PATIENCE_MS, Browser, needs_chromium, send_prompt
from tests.helpers.gateway_process import process_cluster


@needs_chromium
async def test_the_console_shows_a_turn_that_another_host_continues(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster:
        (server,) = cluster.gateways
        async with Browser(server) as browser:
            session = await server.create()
            page = await browser.open(f"/s/{session}")
            await send_prompt(server, session, "say Hello.")
            await expect(page.locator(".answer")).to_have_text("Hello.", timeout=PATIENCE_MS)
            await send_prompt(server, session, 'call Bash {"command": "touch made"}\nsay Made.')
            bar = page.get_by_role("region", name="Approvals")
            await expect(bar).to_contain_text("touch made", timeout=PATIENCE_MS)
            await cluster.kill_owner(session)
            await bar.get_by_role("button", name="Allow A").click()
            await expect(page.locator(".answer").last).to_have_text("Made.", timeout=PATIENCE_MS)
            await expect(page.locator(".answer")).to_have_count(2)
        assert (cluster.rig.root / "made").exists()
