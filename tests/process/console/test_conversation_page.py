"""A conversation in the browser: what the model says and does, and how to find one's way in it."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path

from playwright.async_api import expect

from parley.models.script import ScriptedError, ScriptedTurn, TurnLike, call
from tests.helpers.console import Browser, create_session, needs_chromium, run_turns, send_prompt, wait_for_state
from tests.helpers.gateway import Server

pytestmark = needs_chromium

MARKDOWN = """# Result

The **greeting** is *friendlier*, see `app.py` and [the docs](https://docs.example/x).

1. one
   - inner

| file | lines |
|---|---:|
| app.py | 2 |

```python
def main():
    return "hello"  # greet
```
"""


def make_png() -> bytes:
    """A red square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\xff\0\0" * 4 for _ in range(4))
    header = struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def test_an_answer_is_streamed_as_markdown(tmp_path: Path) -> None:
    turn = ScriptedTurn(thinking="I should be kind.", text=MARKDOWN, chunk_chars=4, event_delay_ms=20)
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, [turn])
        page = await browser.open(f"/s/{session}")
        await expect(page.get_by_text("Nothing was said yet")).to_be_visible()
        await send_prompt(server, session, "Make it friendlier")

        await expect(page.locator(".markdown.streaming")).to_be_visible()
        await expect(page.get_by_text("Working…")).to_be_visible()
        answer = page.locator(".answer .markdown")
        await expect(answer.locator("pre")).to_contain_text('return "hello"')
        await expect(page.locator(".markdown.streaming")).to_have_count(0)
        await expect(answer.locator(".level-1")).to_have_text("Result")
        await expect(answer.locator("strong")).to_have_text("greeting")
        await expect(answer.locator("td")).to_have_text(["app.py", "2"])
        await expect(answer.locator("ol ul li")).to_have_text("inner")
        await expect(answer.locator(".hl-keyword")).to_have_text(["def", "return"])
        link = answer.get_by_role("link", name="the docs")
        assert await link.get_attribute("href") == "https://docs.example/x"
        assert "noopener" in (await link.get_attribute("rel") or "")
        await expect(page.locator(".pill")).to_contain_text("Idle")

        thought = page.get_by_role("button", name="Thought")
        await expect(page.locator(".thinking-text")).to_have_count(0)
        await thought.click()
        await expect(page.locator(".thinking-text")).to_have_text("I should be kind.")


async def test_tool_calls_are_cards_that_fit_the_tool(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "app.py").write_text("def main():\n    print('hello')\n    return 0\n")
    (root / "red.png").write_bytes(make_png())
    turns: list[TurnLike] = [
        [
            "I will look.",
            call("Read", file_path="app.py"),
            call("Grep", pattern="hello", output_mode="content", **{"-n": True}),
            call("Read", file_path="red.png"),
            call("Edit", file_path="app.py", old_string="'hello'", new_string="'good day'"),
            call("Bash", command="echo out; echo bad >&2; ls", description="List files"),
            call("Bash", command="echo no; exit 3"),
            call("TodoWrite", todos=[{"content": "Test", "status": "in_progress", "activeForm": "Testing"}]),
        ],
        "Done.",
    ]
    async with Server(tmp_path, "--permission-mode", "acceptEdits", "--allowedTools", "Bash") as server:
        session = await create_session(server, turns)
        await run_turns(server, session, "Change it")
        async with Browser(server) as browser:
            page = await browser.open(f"/s/{session}", height=3000)
            await expect(page.locator(".answer").last).to_have_text("Done.")

            listing = page.locator('.tool[data-tool="Bash"]').first
            await expect(listing.locator(".code-block")).to_contain_text("echo out; echo bad >&2; ls")
            await expect(listing.locator(".output")).to_contain_text("red.png")
            await expect(listing).to_have_attribute("data-state", "done")
            failed = page.locator('.tool[data-tool="Bash"]').last
            await expect(failed).to_have_attribute("data-state", "failed")
            await expect(failed.locator(".tool-error")).to_contain_text("Exit code 3")

            edit = page.locator('.tool[data-tool="Edit"]')
            await expect(edit.locator("tr.removed")).to_contain_text("print('hello')")
            await expect(edit.locator("tr.added")).to_contain_text("print('good day')")
            await expect(edit.locator("tr.added mark")).to_have_text("good day")
            await edit.get_by_role("button", name="Side by side").click()
            row = edit.locator(".split tr").nth(1)
            await expect(row.locator("td.line")).to_have_text(["    print('hello')", "    print('good day')"])

            search = page.locator('.tool[data-tool="Grep"]')
            await search.get_by_role("button").first.click()
            await expect(search.locator(".hit-file")).to_have_text("app.py")
            await expect(search.locator("mark")).to_have_text("hello")

            await page.locator('.tool[data-tool="Read"]').last.get_by_role("button").first.click()
            picture = page.locator('.tool[data-tool="Read"] img')
            await expect(picture).to_be_visible()
            assert await picture.evaluate("image => image.naturalWidth") == 4

            await expect(page.locator(".rail .todos li")).to_have_text("Testing")


async def test_agents_and_tasks_are_a_tree_with_progress(tmp_path: Path) -> None:
    task = 'call Bash {"command": "echo 3"}\nsay Three.'
    counter = {"description": "Count files", "prompt": task, "subagent_type": "general-purpose"}
    shell = {"command": "sleep 60", "description": "Serve", "run_in_background": True}
    lines = [f"call Agent {json.dumps({**counter, 'run_in_background': False})}", f"call Bash {json.dumps(shell)}"]
    prompt = "\n".join([*lines, "say Both are started."])
    async with Server(tmp_path, "--model", "offline", "--allowedTools", "Bash,Agent") as server:
        session = await server.create()
        await run_turns(server, session, prompt)
        async with Browser(server) as browser:
            page = await browser.open(f"/s/{session}", height=2000)
            agent = page.locator('.tool[data-tool="Agent"]')
            await expect(agent.locator(".child[data-kind=tool]")).to_contain_text("echo 3")
            await expect(agent).to_contain_text("Three.")
            tasks = page.locator(".task-tree > li")
            await expect(tasks).to_have_count(2)
            await expect(tasks.first).to_contain_text("Count files")
            await expect(tasks.first).to_contain_text("done")
            await expect(tasks.last).to_contain_text("running")
            await tasks.last.get_by_role("button", name="Stop the task").click()
            await expect(tasks.last).not_to_contain_text("running")


async def test_errors_and_compaction_stand_out(tmp_path: Path) -> None:
    turns: list[TurnLike] = [
        "First.",
        "The summary.",
        ScriptedTurn(error=ScriptedError(status=400, message="no such model")),
    ]
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, turns)
        await run_turns(server, session, "one", "/compact", "two")
        page = await browser.open(f"/s/{session}")

        errors = page.get_by_role("group", name="Error")
        await expect(errors.filter(has_text="no such model")).to_be_visible()
        await expect(errors.last).to_contain_text("The turn failed")
        await expect(page.locator('[data-mark="compaction"]')).to_be_visible()
        await expect(page.locator(".conversation-head .pill")).to_have_text("Failed")


async def test_the_jump_list_and_permalinks_find_any_message(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await server.create()
        uuids = []
        for number in range(1, 31):
            uuids.append(await send_prompt(server, session, f"say answer {number}. {'word ' * 150}"))
            await wait_for_state(server, session, "idle")
        page = await browser.open(f"/s/{session}")
        await expect(page.locator(".answer").last).to_contain_text("answer 30.")
        assert await page.locator(".virtual-row").count() < 40

        await page.locator(".jump-list").get_by_text("answer 5.").click()
        await expect(page.locator(".answer").get_by_text("answer 5.")).to_be_in_viewport()
        await page.get_by_role("button", name="Newest").click()
        await expect(page.locator(".answer").get_by_text("answer 30.")).to_be_in_viewport()

        linked = await browser.open(f"/s/{session}/m/{uuids[11]}")
        await expect(linked.locator(".prompt").get_by_text("answer 12.")).to_be_in_viewport()
        await expect(linked.locator(".item.marked")).to_contain_text("answer 12.")
        missing = await browser.open(f"/s/{session}/m/nowhere")
        await expect(missing.get_by_text("This message is not in the session.")).to_be_visible()


async def test_older_lines_are_loaded_when_they_are_scrolled_to(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": f"Answer {number}."} for number in range(1, 901)]
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await create_session(server, [ScriptedTurn(blocks=blocks)])
        await run_turns(server, session, "Count to 900")
        page = await browser.open(f"/s/{session}")
        await expect(page.locator(".answer").get_by_text("Answer 900.", exact=True)).to_be_in_viewport()

        await page.get_by_role("feed").focus()
        prompt = page.locator(".prompt").get_by_text("Count to 900")
        while not await prompt.count():  # each page of older lines keeps what was visible in its place
            await page.keyboard.press("Home")
        await page.keyboard.press("Home")
        await expect(page.get_by_text("Start of the session")).to_be_in_viewport()
        await expect(prompt).to_be_in_viewport()
        await expect(page.locator(".answer").get_by_text("Answer 1.", exact=True)).to_be_in_viewport()
        await page.keyboard.press("End")
        await expect(page.locator(".answer").get_by_text("Answer 900.", exact=True)).to_be_in_viewport()


async def test_images_of_a_prompt_are_shown_and_remote_ones_are_not_loaded(tmp_path: Path) -> None:
    data = base64.b64encode(make_png()).decode()
    content = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "text", "text": "say ![cat](https://elsewhere.example/cat.png)"},
    ]
    async with Server(tmp_path) as server, Browser(server) as browser:
        session = await server.create()
        await run_turns(server, session, content)
        page = await browser.open(f"/s/{session}")

        await expect(page.get_by_role("img", name="Attached image")).to_be_visible()
        await expect(page.locator(".answer .image-link")).to_contain_text("https://elsewhere.example/cat.png")
        await expect(page.locator(".answer img")).to_have_count(0)
