"""Measure the console in Chromium: first content, a session of 10,000 messages, and a fast stream while typing.

    python bench/console.py                     all of it
    python bench/console.py --only open,scroll  some of it
    python bench/console.py --quick             with small numbers, to prove that it runs

What is measured, in the page itself:

    first   time from navigation to the first row of the list of sessions
    open    time from navigation to the newest message of a session of 10,000 messages
    scroll  long tasks (over 50 ms) while the whole session is scrolled through, from its end to its start
    stream  an answer of many small events: events a second, long tasks, and how long a key takes until it is drawn

It needs the extra `dev`, and Chromium (`--chromium PATH` if it is not on PATH).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from parley.gateway.session_log.session_log import SessionLog

PARLEY = str(Path(sys.executable).with_name("parley"))
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
DEADLINE_SECONDS = 120
WATCH = """
window.seen = { tasks: [], keys: [], frames: 0, at: {} };
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.seen.tasks.push(entry.duration);
}).observe({ type: "longtask", buffered: true });
const Original = WebSocket;
window.WebSocket = class extends Original {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", () => window.seen.frames++);
  }
};
addEventListener("keydown", () => {
  const start = performance.now();
  requestAnimationFrame(() => setTimeout(() => window.seen.keys.push(performance.now() - start)));
}, true);
for (const [name, selector] of Object.entries(SELECTORS))
  new MutationObserver((_, observer) => {
    if (!document.querySelector(selector)) return;
    observer.disconnect();
    requestAnimationFrame(() => (window.seen.at[name] = performance.now()));
  }).observe(document, { childList: true, subtree: true });
"""
SELECTORS = {"list": ".session-row .session-name", "answer": ".answer", "login": ".login"}


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    messages: int = 10_000
    stream_chars: int = 20_000
    keys: int = 40
    runs: int = 5


QUICK = Scale(messages=300, stream_chars=600, keys=5, runs=1)


class Server:
    """`parley serve` with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "root").mkdir()

    def __enter__(self) -> Server:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        environment = {**os.environ, "HOME": str(self.folder), "CLAUDE_CONFIG_DIR": str(self.folder / "config")}
        options = ["--listen", f"127.0.0.1:{self.port}", "--token-file", str(self.folder / "token")]
        self._process = subprocess.Popen(
            [PARLEY, "serve", *options, "--root", str(self.folder / "root"), "--model", "offline"],
            stderr=(self.folder / "log").open("wb"),
            env=environment,
        )
        deadline = time.monotonic() + DEADLINE_SECONDS
        while b"listening on " not in (self.folder / "log").read_bytes():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise SystemExit(f"the server did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.05)

    def _stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    def request(self, method: str, path: str, body: object = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Authorization": f"Bearer {self.token}"})
        reply = connection.getresponse().read()
        connection.close()
        return json.loads(reply) if reply else None

    def create(self, **body: Any) -> str:
        return str(self.request("POST", "/sessions", body)["session_id"])

    def write_log(self, session_id: str, lines: list[dict[str, Any]]) -> None:
        """Give a session a past."""
        self._stop()
        [logs] = (self.folder / "config").rglob("logs")
        with closing(SessionLog(logs / f"{session_id}.log")) as log:
            for line in lines:
                log.add_line(json.dumps(line).encode())
        self._start()


def make_messages(count: int) -> list[dict[str, Any]]:
    """Turns of four messages: a prompt, a call, its result and an answer."""
    lines: list[dict[str, Any]] = []
    for number in range(count // 4):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": f"make step-{number}"}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"step {number}\n" * (number % 9 + 1)}
        text = f"## Step {number}\n\nIt **works**: see `step-{number}`.\n\n" + "Some more words about it. " * (
            number % 12
        )
        if number % 7 == 0:
            text += f"\n\n```python\ndef step_{number}():\n    return {number}\n```\n"
        lines += [
            {"type": "user", "message": {"role": "user", "content": f"Do step {number}"}, "uuid": f"p{number}"},
            {
                "type": "assistant",
                "message": {"id": f"c{number}", "model": "m", "content": [call]},
                "uuid": f"c{number}",
            },
            {"type": "user", "message": {"role": "user", "content": [result]}, "uuid": f"r{number}"},
            {
                "type": "assistant",
                "message": {"id": f"a{number}", "model": "m", "content": [{"type": "text", "text": text}]},
            },
        ]
    return lines


async def open_page(browser: Browser, server: Server, route: str, selector: str) -> Page:
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    page = await context.new_page()
    await page.add_init_script(WATCH.replace("SELECTORS", json.dumps(SELECTORS)))
    await page.goto(f"{server.url}/console/#{route}?token={server.token}")
    await page.wait_for_selector(selector)
    return page


async def read_seen(page: Page) -> dict[str, Any]:
    """After two frames, so that what was measured last is there too."""
    await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 200)))")
    seen: dict[str, Any] = await page.evaluate("() => window.seen")
    return seen


async def measure_first(browser: Browser, server: Server, scale: Scale) -> list[tuple[str, str]]:
    server.create(title="One")
    times = []
    for _ in range(scale.runs):
        page = await open_page(browser, server, "/", ".session-row .session-name")
        times.append((await read_seen(page))["at"]["list"])
        await page.context.close()
    return [("list of sessions is drawn, median", f"{statistics.median(times):.0f} ms")]


async def measure_open(browser: Browser, server: Server, scale: Scale) -> list[tuple[str, str]]:
    session = server.create(title="Long")
    server.write_log(session, make_messages(scale.messages))
    times = []
    for _ in range(scale.runs):
        page = await open_page(browser, server, f"/s/{session}", ".answer")
        times.append((await read_seen(page))["at"]["answer"])
        await page.context.close()
    return [(f"session of {scale.messages} messages is drawn, median", f"{statistics.median(times):.0f} ms")]


async def measure_scroll(browser: Browser, server: Server, scale: Scale) -> list[tuple[str, str]]:
    session = server.create(title="Long")
    server.write_log(session, make_messages(scale.messages))
    page = await open_page(browser, server, f"/s/{session}", ".answer")
    await page.evaluate("() => { window.seen.tasks.length = 0; }")
    await page.mouse.move(600, 300)
    steps = 0
    while await page.locator(".prompt", has_text="Do step 0").count() == 0:
        await page.mouse.wheel(0, -1500)
        steps += 1
    tasks = (await read_seen(page))["tasks"]
    longest = f"{max(tasks, default=0):.0f} ms"
    return [
        ("scrolled to the start, wheel steps", str(steps)),
        ("tasks over 50 ms", str(len(tasks))),
        ("the longest", longest),
    ]


async def measure_stream(browser: Browser, server: Server, scale: Scale) -> list[tuple[str, str]]:
    words = "A word, **bold** or `code`, and another one.\n\n- an item\n"
    text = (words * (scale.stream_chars // len(words) + 1))[: scale.stream_chars]
    script = server.folder / "script.json"
    script.write_text(json.dumps({"turn": [{"text": text, "chunk_chars": 1, "event_delay_ms": 0.3}]}))
    session = server.create(title="Stream", options={"model": f"scripted:{script}"})
    page = await open_page(browser, server, f"/s/{session}", "textarea")
    await page.focus("textarea")
    await page.evaluate("() => { window.seen.tasks.length = 0; window.seen.frames = 0; }")
    start = time.monotonic()
    server.request("POST", f"/sessions/{session}/prompts", {"content": "go"})
    for _ in range(scale.keys):
        await page.keyboard.type("x")
        await asyncio.sleep(0.1)
        if await page.locator(".result").count():
            break
    await page.wait_for_selector(".result", timeout=DEADLINE_SECONDS * 1000)
    seconds = time.monotonic() - start
    seen = await read_seen(page)
    keys = sorted(seen["keys"])
    return [
        ("events a second", f"{seen['frames'] / seconds:.0f}"),
        ("tasks over 50 ms", str(len(seen["tasks"]))),
        ("the longest", f"{max(seen['tasks'], default=0):.0f} ms"),
        ("a key until it is drawn, median", f"{statistics.median(keys):.0f} ms"),
        ("the slowest key", f"{keys[-1]:.0f} ms"),
    ]


Measure = Callable[[Browser, Server, Scale], Awaitable[list[tuple[str, str]]]]
MEASURES: dict[str, Measure] = {
    "first": measure_first,
    "open": measure_open,
    "scroll": measure_scroll,
    "stream": measure_stream,
}


async def run(names: list[str], scale: Scale, chromium: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in names:
            with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server:
                for quantity, value in await MEASURES[name](browser, server, scale):
                    sys.stdout.write(f"{name:8} {quantity:50} {value:>12}\n")
                    sys.stdout.flush()
        await browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(MEASURES), help="names of measures, separated by commas")
    parser.add_argument("--quick", action="store_true", help="small numbers")
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := set(names) - set(MEASURES):
        parser.error(f"unknown measure {min(unknown)!r} (choose from {', '.join(MEASURES)})")
    asyncio.run(run(names, QUICK if given.quick else Scale(), given.chromium))
    return 0


if __name__ == "__main__":
    sys.exit(main())
