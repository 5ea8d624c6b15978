"""The box for prompts: the queue, interrupt, model and mode, images, completion."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from parley.models.script import ScriptedTurn
from tests.helpers.console import Browser, create_session, needs_chromium
from tests.helpers.gateway import Server

pytestmark = needs_chromium


async def send(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Prompt").fill(text)
    await page.keyboard.press("Enter")


async def test_prompts_of_a_running_turn_are_queued_and_can_be_edited_and_removed(tmp_path: Path) -> None:
    async with Server(tmp_path, "--allowedTools", "Bash", "--model", "offline") as server, Browser(server) as browser:
        session = await server.create()
        page = await browser.open(f"/s/{session}")
        await send(page, 'call Bash {"command": "until [ -e go ]; do sleep 0.1; done"}\nsay first')
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        for number in ("two", "three", "four"):
            await send(page, f"say {number}")
        queue = page.get_by_role("region", name="Queued prompts")
        await expect(queue.get_by_role("listitem")).to_have_count(3)

        await queue.get_by_role("listitem").nth(1).get_by_role("button", name="Remove").click()
        await expect(queue.get_by_role("listitem")).to_have_count(2)
        await queue.get_by_role("listitem").nth(1).get_by_role("button", name="Edit").click()
        await expect(page.get_by_role("textbox", name="Prompt")).to_have_value("say four")
        await send(page, "say five")
        await expect(queue.get_by_role("listitem")).to_have_text(["say two", "say five"])
        (server.root / "go").touch()

        await expect(queue).to_have_count(0)
        prompts = page.locator(".prompt-text")
        await expect(prompts).to_have_count(3)
        await expect(prompts.last).to_have_text("say five")
        await expect(page.locator(".conversation-head .pill")).to_have_text("Idle")


async def test_a_turn_is_interrupted_with_escape(tmp_path: Path) -> None:
    turn = ScriptedTurn(text="One word after the other. " * 60, chunk_chars=5, event_delay_ms=50)
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, [turn])
        page = await browser.open(f"/s/{session}")
        await send(page, "Talk")
        await expect(page.locator(".answer")).to_contain_text("One word")
        await page.keyboard.press("Escape")

        await expect(page.locator('[data-mark="interruption"]')).to_be_visible()
        await expect(page.locator(".conversation-head .pill")).not_to_have_text("Working")
        await expect(page.locator(".answer")).to_contain_text("One word")


async def test_model_and_mode_are_switched(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await server.create()
        page = await browser.open(f"/s/{session}")
        await send(page, "say hi")
        await expect(page.locator(".answer")).to_have_text("hi")
        model = page.get_by_role("combobox", name="Model")
        await model.focus()
        await expect(model.get_by_role("option", name="Haiku")).to_be_attached()
        await model.select_option("haiku")
        await page.get_by_role("combobox", name="Permissions").select_option("acceptEdits")

        await expect(page.locator(".conversation-head")).to_contain_text("haiku")
        second = await browser.open(f"/s/{session}")
        await expect(second.get_by_role("combobox", name="Permissions")).to_have_value("acceptEdits")


async def test_images_are_pasted_and_attached(tmp_path: Path) -> None:
    from tests.process.console.test_conversation_page import make_png

    (tmp_path / "red.png").write_bytes(make_png())
    (tmp_path / "notes.txt").write_text("no image")
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await server.create()
        page = await browser.open(f"/s/{session}")
        attach = page.locator("input[type=file]")
        await attach.set_input_files([tmp_path / "red.png", tmp_path / "notes.txt"])
        await expect(page.locator(".attachments img")).to_have_count(1)
        await expect(page.get_by_text("notes.txt is not an image")).to_be_visible()
        await page.get_by_role("textbox", name="Prompt").evaluate(
            """(area, bytes) => {
                const data = new DataTransfer();
                data.items.add(new File([new Uint8Array(bytes)], "pasted.png", { type: "image/png" }));
                area.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
            }""",
            list(make_png()),
        )
        await expect(page.locator(".attachments img")).to_have_count(2)
        await page.get_by_role("button", name="Remove pasted.png").click()
        await send(page, "say seen")

        await expect(page.locator(".prompt img")).to_have_count(1)
        await expect(page.locator(".answer")).to_have_text("seen")
        await expect(page.locator(".attachments")).to_have_count(0)


async def test_commands_and_files_are_completed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "application.py").write_text("")
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await server.create()
        page = await browser.open(f"/s/{session}")
        area = page.get_by_role("textbox", name="Prompt")
        await area.press_sequentially("/co")
        options = page.get_by_role("listbox", name="Commands").get_by_role("option")
        await expect(options).to_contain_text(["/compact", "/context"])
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(area).to_have_value("/context ")

        await area.fill("")
        await area.press_sequentially("say look at @appl")
        await expect(page.get_by_role("listbox", name="Files").get_by_role("option")).to_have_text(
            "@src/application.py"
        )
        await page.keyboard.press("Tab")
        await expect(area).to_have_value("say look at @src/application.py ")
        await page.keyboard.press("Enter")
        await expect(page.locator(".prompt-text")).to_have_text("say look at @src/application.py")


async def test_what_was_typed_stays_when_the_server_refuses_it(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await server.create()
        page = await browser.open(f"/s/{session}")
        await expect(page.get_by_text("Nothing was said yet")).to_be_visible()
        await server.kill()
        await send(page, "say hello")

        await expect(page.get_by_role("textbox", name="Prompt")).to_have_value("say hello")
        await expect(page.locator(".toast")).to_contain_text("The server cannot be reached")
        await expect(page.locator(".prompt")).to_have_count(0)
