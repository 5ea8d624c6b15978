"""The console in a real browser, and an editor, while the owner of their session is killed."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.helpers.console import Browser, needs_chromium, send_prompt
from tests.helpers.gateway import open_question
from tests.helpers.gateway_process import process_cluster
from tests.process.gateway.test_editors import connect

ALLOWED = {"behavior": "allow"}


@needs_chromium
async def test_the_console_shows_a_turn_that_another_host_continues(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster:
        (server,) = cluster.gateways
        async with Browser(server) as browser:
            session = await server.create()
            page = await browser.open(f"/s/{session}")
            await send_prompt(server, session, "wait 3\nsay Hello from another host.")
            await expect(page.locator(".conversation-head .pill")).to_have_text("Working")
            await cluster.kill_owner(session)
            await expect(page.locator(".answer")).to_have_text("Hello from another host.")
            await send_prompt(server, session, 'call Bash {"command": "touch made"}\nsay Made.')
            bar = page.get_by_role("region", name="Approvals")
            await expect(bar).to_contain_text("touch made")
            await cluster.kill_owner(session)
            await bar.get_by_role("button", name="Allow A").click()
            await expect(page.locator(".answer").last).to_have_text("Made.")
            await expect(page.locator(".answer")).to_have_count(2)
        assert (cluster.rig.root / "made").exists()


async def test_an_editor_continues_on_another_host(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster:
        (server,) = cluster.gateways
        async with await connect(server, answer=None) as editor:
            session = await editor.new(server.root)
            await editor.start(session, 'call Bash {"command": "touch made"}\nsay Made.')
            await editor.wait_for(lambda: editor.asked)
            asked = await open_question(server, session)
            await cluster.kill_owner(session)
            path = f"/questions/{session}/{asked['request_id']}/answer"
            status, _ = await server.request("POST", path, ALLOWED)
            assert status == 200
            await editor.wait_for(lambda: "Made." in editor.texts("agent_message_chunk"))
            again = await editor.prompt(session, "say Again.")
        assert again["result"]["stopReason"] == "end_turn"
        assert editor.texts("agent_message_chunk") == "Made.Again."
        assert len(editor.asked) == 1
        assert (cluster.rig.root / "made").exists()
