"""Text of models, tools, files and titles runs nothing, loads nothing and looks like no control of the console.

    python -m tests.stress.gateway.hostile_text

Hostile strings (tests/data/console/hostile.json: 75 payloads in 4 frames) are put into every field of every message,
into titles, names of folders, and open questions. tests/process/console shows each payload in one frame, this program
in all. It ends with an AssertionError if a page runs, loads or shows what it must not.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from parley.gateway.session_log.records import AskedRecord
from parley.gateway.session_log.session_log import SessionLog
from tests.helpers.console import Browser, read_script
from tests.helpers.gateway import Server

TESTS = Path(__file__).parents[2]
CORPUS = json.loads((TESTS / "data" / "console" / "hostile.json").read_text())
FRAMES: list[str] = CORPUS["frames"]
STRINGS = [frame.replace("%s", text) for frame in FRAMES for text in CORPUS["payloads"]]
SAMPLE = [FRAMES[number % len(FRAMES)].replace("%s", text) for number, text in enumerate(CORPUS["payloads"])]
"""Each payload in one of the frames."""
CATALOGUE = [json.loads(line)["line"] for line in (TESTS / "golden" / "catalogue.jsonl").read_text().splitlines()]

KEPT = frozenset(
    {"type", "subtype", "role", "id", "tool_use_id", "task_id", "parent_tool_use_id", "name", "media_type"}
)
"""The fields that say what a message is: a hostile value would only make it another message."""
TOOLS = [
    *("Bash", "Edit", "Write", "Read", "Grep", "Glob", "WebSearch", "WebFetch", "TodoWrite", "Task", "NotebookEdit"),
    *("ExitPlanMode", "AskUserQuestion", "TaskCreate", "mcp__server__tool", "Unknown"),
]

FIRST_ROWS = 200
"""How many sessions the page shows at first."""
CHECK = read_script("check_content")
UNFOLD = read_script("unfold")
"""Shows everything, and returns the keys of the rows that are drawn."""


def poison(value: Any, text: str, key: str = "") -> Any:
    """A copy of a message in which every text is the hostile one."""
    if isinstance(value, dict):
        return {name: poison(each, text, name) for name, each in value.items()}
    if isinstance(value, list):
        return [poison(each, text, key) for each in value]
    return text if isinstance(value, str) and key not in KEPT else value


def make_call(tool: str, number: int, text: str) -> list[dict[str, Any]]:
    """A call and its result, with the text in all fields that the page shows."""
    fields = [
        "command",
        "description",
        "file_path",
        "notebook_path",
        "old_string",
        "new_string",
        "new_source",
        "content",
    ]
    fields += ["pattern", "path", "query", "url", "prompt", "subagent_type", "plan", "subject", text]
    call: dict[str, Any] = dict.fromkeys(fields, text)
    option = {"label": text, "description": text}
    call["todos"] = [{"content": text, "status": status, "activeForm": text} for status in ("pending", "in_progress")]
    call["questions"] = [{"question": text, "header": text, "options": [option], "multiSelect": False}]
    file = {"filePath": text, "content": text, "numLines": 1, "startLine": 1, "totalLines": 1}
    patch = [{"oldStart": 1, "newStart": 1, "lines": [f"-{text}", f"+{text}!", f" {text}"]}]
    page = {"title": text, "url": text}
    details: dict[str, Any] = {"stdout": text, "stderr": text, "filePath": text, "structuredPatch": patch, "file": file}
    details |= {"filenames": [text], "mode": "content", "content": f"{text}:1:{text}", "answers": {text: text}}
    details |= {
        "results": [{"content": [page]}],
        "result": text,
        "old_source": text,
        "task": {"id": "1", "subject": text},
    }
    if number % 3:  # not what the tool returns
        details["structuredPatch"] = [None] if number % 3 == 1 else [{"lines": [1]}]
    elif number % 2:
        details["filePath"] = 5
    if number % 2:
        details["mode"] = "files_with_matches"
    used = {"type": "tool_use", "id": f"t{number}", "name": text if tool == "Unknown" else tool, "input": call}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text, "is_error": number % 5 == 0}
    return [
        {"type": "assistant", "message": {"id": f"m{number}", "model": text, "content": [used]}, "uuid": f"u{number}"},
        {"type": "user", "message": {"role": "user", "content": [result]}, "tool_use_result": details},
    ]


def make_lines(texts: list[str], turn: int) -> list[dict[str, Any]]:
    """The texts in every field of every kind of message; another turn has other tools and messages for each."""
    lines: list[dict[str, Any]] = []
    for number, (text, tool) in enumerate(zip(texts, cycle(TOOLS[turn:] + TOOLS), strict=False)):
        said = [{"type": "text", "text": text}, {"type": "thinking", "thinking": text}]
        lines.append({"type": "user", "message": {"role": "user", "content": text}, "uuid": f"p{number}"})
        lines.append({"type": "assistant", "message": {"id": f"s{number}", "model": "m", "content": said}})
        lines += make_call(tool, number, text)
        task = {"task_id": f"task{number}", "description": text, "subagent_type": text, "tool_use_id": f"t{number}"}
        lines.append({"type": "system", "subtype": "task_started", **task})
        lines.append({"type": "system", "subtype": "task_notification", **task, "status": text, "summary": text})
        others = CATALOGUE[(number + turn) % len(texts) :: len(texts)]
        lines += [poison(other, text) for other in others if other.get("type") != "control_request"]
        lines.append({"type": "result", "subtype": "success", "is_error": number % 3 == 0, "errors": [text]})
    return lines


def make_questions(texts: list[str]) -> list[tuple[str, dict[str, Any]]]:
    asked: list[tuple[str, dict[str, Any]]] = []
    tools = ["Bash", "Edit", "Write", "ExitPlanMode", "AskUserQuestion", "Other", "elicitation", "request_user_dialog"]
    for number, (text, tool) in enumerate(zip(texts, cycle(tools), strict=False)):
        request: dict[str, Any]
        if tool == "elicitation":
            field = {"type": "string", "title": text, "description": text, "enum": [text], "enumNames": [text]}
            schema = {"properties": {"field": field, text: {"type": "string"}}}
            request = {"message": text, "mcp_server_name": text, "url": text, "requested_schema": schema}
        elif tool == "request_user_dialog":
            request = {"dialog_kind": text, "payload": {text: text}}
        else:
            used = make_call(tool, number, text)[0]["message"]["content"][0]
            rules = [{"toolName": text, "ruleContent": text}]
            always = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
            why = {"decision_reason": text, "blocked_path": text, "agent_id": text}
            asks = {"tool_name": text if tool == "Other" else tool, "title": text, "input": used["input"]}
            request = {**asks, **why, "permission_suggestions": [always]}
        kind = tool if tool in ("elicitation", "request_user_dialog") else "can_use_tool"
        asked.append((kind, {"subtype": kind, **request}))
    return asked


def find_state(folder: Path) -> Path:
    [database] = folder.rglob("projections.db")
    return database.parent


def write_questions(folder: Path, session: str, texts: list[str]) -> None:
    """What a hostile engine would have asked."""
    with closing(SessionLog(find_state(folder) / "logs" / f"{session}.log")) as log:
        for number, (kind, request) in enumerate(make_questions(texts)):
            line = json.dumps({"type": "control_request", "request_id": f"q{number}", "request": request})
            log.add_line(
                line.encode(), AskedRecord(request_id=f"q{number}", kind=kind, line=log.last + 1, at=time.time())
            )


async def check(page: Page) -> None:
    assert await page.evaluate(CHECK) == []


async def arm(page: Page) -> None:
    await page.evaluate("() => { window.hit = () => { window.isHit = true; }; }")


async def show_messages(folder: Path, texts: list[str], turn: int = 0) -> None:
    lines = make_lines(texts, turn)
    async with Server(folder) as server:
        session = await server.create()
        await server.kill()
        with closing(SessionLog(find_state(folder) / "logs" / f"{session}.log")) as log:
            for line in lines:
                log.add_line(json.dumps(line).encode())
        await server.start()
        async with Browser(server) as browser:
            page = await browser.open(f"/s/{session}", height=4000)
            await arm(page)
            await expect(page.locator(".result").last).to_be_visible()
            seen = set()
            while True:
                seen |= set(await page.evaluate(UNFOLD))
                await check(page)
                is_first = await page.locator('.virtual-row[aria-posinset="1"]').count()
                if is_first and await page.get_by_text("Start of the session").count():
                    break
                await page.evaluate(read_script("scroll_up"))
            # Older messages that came while the page was at its top have moved others out of sight.
            while await page.evaluate(read_script("scroll_down")):
                seen |= set(await page.evaluate(UNFOLD))
                await check(page)
            assert len(seen) > len(texts) * 4
            changes = page.locator(".changes .link-button")
            for number in range(await changes.count()):
                await changes.nth(number).click()
                await expect(page.get_by_role("dialog")).to_be_visible()
                await check(page)
                await page.keyboard.press("Escape")
                await expect(page.get_by_role("dialog")).to_have_count(0)
            await page.locator(".item[data-kind=result]").last.get_by_role("button", name="Actions").click()
            await page.get_by_role("menuitem", name="Where the time went").click()
            await expect(page.locator(".timeline tbody tr").first).to_be_visible()
            await check(page)


async def show_questions(folder: Path, texts: list[str]) -> None:
    async with Server(folder) as server:
        session = await server.create()
        await server.kill()
        write_questions(folder, session, texts)
        await server.start()
        async with Browser(server) as browser:
            page = await browser.open(f"/s/{session}")
            await arm(page)
            bar = page.get_by_role("region", name="Approvals")
            for number in range(len(texts)):
                await expect(bar).to_contain_text(f"{number + 1} of {len(texts)} questions")
                await check(page)
                await bar.get_by_role("button", name="Next", exact=True).evaluate("button => button.click()")


async def show_titles_and_folders(folder: Path, texts: list[str]) -> None:
    async with Server(folder) as server, Browser(server) as browser:
        for number, text in enumerate(texts):
            name = text.replace("/", "∕").replace("\0", "␀")[:80]
            (server.root / f"{number} {name}").mkdir()
            await server.create(title=text, cwd=f"{number} {name}")
        page = await browser.open("/")
        await arm(page)
        await expect(page.locator(".session-row")).to_have_count(min(len(texts), FIRST_ROWS))
        if len(texts) > FIRST_ROWS:
            await page.get_by_role("button", name="Show more").click()
        await expect(page.locator(".session-row")).to_have_count(len(texts))
        await check(page)
        for text in CORPUS["payloads"][:20]:
            await page.get_by_role("searchbox", name="Search sessions").fill(text)
            await expect(page.locator(".session-row, .empty").first).to_be_visible()
            await check(page)


async def run(folder: Path) -> None:
    count = len(CORPUS["payloads"])
    for turn in range(len(FRAMES)):
        (folder / f"messages-{turn}").mkdir()
        await show_messages(folder / f"messages-{turn}", STRINGS[turn * count :][:count], turn)
    for name, show in (("questions", show_questions), ("titles", show_titles_and_folders)):
        (folder / name).mkdir()
        await show(folder / name, STRINGS)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
