"""`parley console`: a server on this machine, and the sessions of the demo."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.helpers.forked import PARLEY, ForkedPipes
from tests.helpers.gateway import Server, following
from tests.helpers.patience import PATIENCE_SECONDS

LINK = re.compile(r"console on http://127\.0\.0\.1:(\d+)/console/#token=([\w-]{40,})\n")


class Console(Server):
    """`parley console` in a process of its own."""

    display = ""

    async def start(self) -> None:
        """Start it and wait until it says where it is."""
        environment = {**self._environment, "TMPDIR": str(self.folder / "tmp"), "DISPLAY": self.display}
        (self.folder / "tmp").mkdir()
        self.process = await ForkedPipes.start(("console", *self._options), env=environment, cwd=self.root)
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await self.process.stderr.readline()).decode():
                self.stderr.append(line)
                if found := LINK.match(line):
                    self.port, self._token = int(found[1]), found[2]
                    self._reader = asyncio.create_task(self._read_stderr(self.process.stderr))
                    return
        raise AssertionError(f"the console did not start: {''.join(self.stderr)}")

    @property
    def token(self) -> str:
        return self._token


@asynccontextmanager
async def find_session(server: Server, title: str) -> AsyncIterator[Any]:
    """Follow the session with a title."""
    listed = (await server.get("/sessions"))["sessions"]
    [found] = [info["id"] for info in listed if info["title"].startswith(title)]
    async with following(server, found) as viewer:
        yield viewer


def tools_of(lines: list[tuple[int, str]]) -> set[str]:
    messages = [json.loads(line).get("message", {}) for _, line in lines]
    blocks = [block for message in messages for block in message.get("content") or () if isinstance(block, dict)]
    return {block["name"] for block in blocks if block["type"] == "tool_use"}


async def test_the_demo_shows_every_kind_of_session_and_leaves_nothing(tmp_path: Path) -> None:
    async with Console(tmp_path, "--demo", "--no-browser") as console:
        async with find_session(console, "Round prices") as viewer:
            await viewer.wait_for(lambda: len(viewer.results()) == 2)
            assert tools_of(viewer.lines) == {"TodoWrite", "Read", "Grep", "Edit", "Write", "Bash"}
            assert "59.97" in "".join(line for _, line in viewer.lines)
            assert not [line for _, line in viewer.lines if '"is_error":true' in line]
        async with find_session(console, "Where is") as viewer:
            await viewer.wait_for(viewer.results)
            assert {"task_started", "task_notification", "background_tasks_changed"} <= {
                json.loads(line).get("subtype") for _, line in viewer.lines
            }
            assert viewer.results()[0]["result"].startswith("Only `shop/receipt.py` calls")
        async with find_session(console, "Understand") as viewer:
            await viewer.wait_for(lambda: len(viewer.results()) == 152)
            assert "compact_boundary" in {json.loads(line).get("subtype") for _, line in viewer.lines}
        async with find_session(console, "Draw") as viewer:
            await viewer.wait_for(viewer.results)
            assert sum('"type":"image"' in line for _, line in viewer.lines) >= 2
        async with find_session(console, "Translate") as viewer:
            await viewer.wait_for(lambda: len(viewer.results()) == 2)
        for title in ("Publish", "Plan", "Choose"):
            async with find_session(console, title) as viewer:
                await viewer.wait_for(lambda viewer=viewer: any("can_use_tool" in line for _, line in viewer.lines))
        questions = (await console.get("/questions"))["questions"]
        states = [info["state"] for info in (await console.get("/sessions"))["sessions"]]
        costs = await console.get("/costs")
        assert await console.kill(signal.SIGTERM) == 0
    assert {question["request"]["tool_name"] for question in questions} == {"Bash", "ExitPlanMode", "AskUserQuestion"}
    assert sorted(set(states)) == ["failed", "idle", "requires_action", "running"]
    assert sum(row["usd"] for row in costs["by_session"]) > 1
    assert list((tmp_path / "tmp").glob("parley-demo-*")) == []
    assert not (tmp_path / "config").exists()


async def test_a_console_keeps_its_sessions_and_takes_options(tmp_path: Path) -> None:
    async with Console(tmp_path, "--no-browser", "--model", "offline") as console:
        session_id = await console.create()
        async with following(console, session_id) as viewer:
            await console.request("POST", f"/sessions/{session_id}/prompts", {"content": "say Hello."})
            await viewer.wait_for(viewer.results)
        info = await console.get(f"/sessions/{session_id}")
        assert (info["cwd"], info["model"]) == (str(console.root), "offline")
        first = console.token
        await console.kill(signal.SIGTERM)
        (tmp_path / "tmp").rmdir()
        await console.start()
        assert console.token != first
        assert [row["id"] for row in (await console.get("/sessions"))["sessions"]] == [session_id]
        status, _, _ = await console.fetch("GET", "/me", None, {"Authorization": f"Bearer {first}"})
        assert status == 401
    stored = [path for path in tmp_path.rglob("*") if path.is_file() and console.token.encode() in path.read_bytes()]
    assert stored == []


def test_a_browser_cannot_open_a_unix_socket(tmp_path: Path) -> None:
    done = subprocess.run(
        [PARLEY, "console", "--listen", f"unix:{tmp_path}/socket"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 2
    assert "a browser cannot open a Unix socket" in done.stderr


async def test_the_token_is_not_in_the_arguments_of_the_browser(tmp_path: Path) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    os.mkfifo(seen)
    browser.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" > {seen}\n")
    browser.chmod(0o755)
    console = Console(tmp_path, environment={"BROWSER": f"{browser} %s"})
    console.display = ":0"
    async with console:
        async with asyncio.timeout(PATIENCE_SECONDS):
            arguments = (await asyncio.to_thread(seen.read_text)).strip()
        page = Path(arguments.removeprefix("file://"))

        assert console.token not in arguments
        assert f"#token={console.token}" in page.read_text()
        assert page.parent.stat().st_mode & 0o777 == 0o700
        assert await console.kill(signal.SIGTERM) == 0
    assert not page.exists()
