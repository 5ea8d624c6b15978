"""The HTML report of a conversation in the browser, as `parley tap --html` and `parley inspect --html` write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.async_api import expect

from parley.cli.commands.subcommand import run_subcommand
from parley.stores.wire_recording import DIRECTIONS, KeptLine, WireHeader, WireRecorder
from tests.helpers.console import Browser, needs_chromium

pytestmark = needs_chromium
KEY = "sk-ant-api03-" + "x" * 40


def write_recording(path: Path) -> None:
    """A conversation with a secret, an unknown field, garbage, and a question that was not answered."""
    recorder = WireRecorder(path, WireHeader(command=("claude", "--print")))
    lines: list[tuple[Any, Any]] = [
        ("client", {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize"}}),
        ("engine", {"type": "control_response", "response": {"subtype": "success", "request_id": "r1"}}),
        ("client", {"type": "user", "message": {"role": "user", "content": f"use {KEY} </script><b>"}}),
        ("engine", {"type": "system", "subtype": "hologram"}),
        ("engine", "segmentation fault"),
        ("engine_stderr", "warning: low memory"),
        ("engine", {"type": "keep_alive", "mood": "good"}),
        ("engine", {"type": "control_request", "request_id": "q1", "request": {"subtype": "can_use_tool"}}),
    ]
    for at, (sender, line) in enumerate(lines):
        data = (line if isinstance(line, str) else json.dumps(line)).encode()
        recorder.add(KeptLine(record=(0, at * 0.25, DIRECTIONS[sender], len(data), None), data=data))
    recorder.end(9, -9)


async def test_the_report_shows_the_lines_what_waits_and_no_secret(tmp_path: Path) -> None:
    recording, report = tmp_path / "talk.jsonl", tmp_path / "talk.html"
    write_recording(recording)
    assert run_subcommand("inspect", [str(recording), "--html", str(report), "--summary"]) == 0
    assert KEY not in report.read_text()

    async with Browser() as browser:
        page = await browser.open_file(report)
        rows = page.locator(".wire-row")
        await expect(rows).to_have_count(8)
        await expect(page.locator(".figures")).to_contain_text("signal 9")
        waiting = page.locator(".wire-open li")
        await expect(waiting).to_have_count(2)
        await expect(waiting.last).to_contain_text("control_request can_use_tool")
        await expect(rows.nth(1).locator(".wire-latency")).to_have_text("250 ms")
        await expect(rows.nth(4)).to_contain_text("not JSON segmentation fault")
        await expect(rows.nth(5)).to_contain_text("stderr warning: low memory")
        unknown = page.locator(".report details", has_text="Not in the schema")
        await expect(unknown).to_contain_text("keep_alive: mood")
        await expect(unknown).to_contain_text("system hologram")
        await page.get_by_role("searchbox", name="Search lines").fill("[redacted]")
        await expect(rows).to_have_count(1)
        await rows.get_by_role("button").click()
        await expect(rows.locator("pre")).to_contain_text("use [redacted] </script><b>")


def test_a_report_is_not_written_over_a_file(tmp_path: Path, capfd: Any) -> None:
    recording = tmp_path / "talk.jsonl"
    write_recording(recording)
    before = recording.read_bytes()

    from parley.cli.main import main as run

    assert run(["inspect", str(recording), "--html", str(recording)]) == 1
    assert "already exists" in capfd.readouterr().err
    assert recording.read_bytes() == before
