"""Random sessions against a model that rejects every change before a thinking block.

    python -m tests.stress.models.strict_history --sessions 10000 --jobs 2 --seed 1

Each session is a real engine in this process, a client that speaks stream-json to it, and a model server on loopback
(tests/helpers/strict_model.py). The client prompts, changes models and permission modes, adds, changes and removes MCP
servers of its own, adds context by hooks, sends images, queues prompts, interrupts, compacts, resumes and forks. The
model thinks, calls tools, subagents and tools that it was never given, refuses, and breaks off.

No request may be rejected, and no thinking block left out that would be valid. The exit code is 0 if it is so.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from parley.models.base import ModelRequest
from parley.testing.model_server import ModelServer
from tests.helpers.session import Json, SessionHarness, counted
from tests.helpers.strict_model import Reply, StrictModel, encode, is_aside

MODELS = ("claude-fable-5-2", "claude-mythos-5-2", "claude-opus-5-5", "claude-sonnet-5-5", "claude-sonnet-4-5")
MODES = ("default", "acceptEdits", "plan", "bypassPermissions")
EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NOT_PNG = "bm90IGEgcGljdHVyZQ=="
TOO_LARGE = PNG[:40] + "A" * (6 * 1024 * 1024)
MCP_NAME = re.compile(rb"mcp__\w+")
SMALL_WINDOW = "14000"
"""In tokens. Tools and the system prompt take about a third of it."""
SESSION_SECONDS = 120
BATCH = 50
"""Sessions of one job."""


class Broken(AssertionError):
    """A session did not go as it must."""


class Answers:
    """What the model answers, by dice."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice

    def choose(self, request: ModelRequest) -> Reply:
        dice = self._dice
        if is_aside(encode(request.messages[-1])):  # it cannot be interrupted
            return Reply([*self._think(), text("A summary.")])
        blocks = self._think()
        if dice.random() < 0.6:
            blocks.append(text("I look."))
        for _ in range(dice.choice([0, 0, 0, 1, 1, 2])):
            blocks += self._think() if dice.random() < 0.2 else []
            blocks.append(self._call(request))
        if not any(block["type"] in ("text", "tool_use") for block in blocks):
            blocks.append(text("Done."))
        refuses = dice.random() < 0.03
        if refuses:
            blocks = [block for block in blocks if block["type"] != "tool_use"] + [text("I will not.")]
        ending = dice.random()
        cut = dice.randint(1, 3 + 3 * len(blocks)) if ending < 0.08 else None
        return Reply(blocks, "refusal" if refuses else None, cut, hangs=ending < 0.04)

    def _think(self) -> list[Json]:
        dice = self._dice
        if dice.random() < 0.2:
            return []
        if dice.random() < 0.1:
            return [{"type": "redacted_thinking", "data": ""}]
        # The text can be empty: the signature holds the thinking.
        return [{"type": "thinking", "thinking": dice.choice(["", "Hm.", "Grüße … \u2028"])}]

    def _call(self, request: ModelRequest) -> Json:
        dice = self._dice
        heard = sorted({name.decode() for name in MCP_NAME.findall(encode([request.messages, request.tools]))})
        kind = dice.random()
        if heard and kind < 0.5:
            name = dice.choice(heard)
            if kind < 0.2:
                return call("ToolSearch", query=f"select:{name}")
            return call(name, what="x", why=1)
        if kind < 0.58:
            return call(
                "Agent", description="a task", prompt=f"A task {dice.random()}", subagent_type="general-purpose"
            )
        if kind < 0.66:
            return call("EnterPlanMode")
        return call("Read", file_path=dice.choice(["notes.txt", "missing.txt", "picture.png"]))


class StrictSession:
    """One session over several engines, and what its client does."""

    def __init__(self, folder: Path, dice: Random, url: str, strict: StrictModel) -> None:
        self._folder = folder
        self._dice = dice
        self._url = url
        self._clock = msgspec.structs.replace(counted(), sleep=sleep_briefly)
        self._client: StrictClient | None = None
        self._session_id = ""
        self._prompts = 0
        self.servers: dict[str, list[Json]] = {}
        """The MCP servers of the client, with their tools."""
        self._model = dice.choice(MODELS)
        self._search = dice.choice(["", "", "true", "false"])
        strict.hanging = self._interrupt

    @property
    def client(self) -> StrictClient:
        assert self._client is not None
        return self._client

    async def run(self) -> None:
        if self._dice.random() < 0.5:
            self.servers["first"] = self._make_tools()
        await self._open()
        steps: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (8, self._prompt),
            (2, self._queue),
            (2, self._show_image),
            (3, self._set_model),
            (2, self._set_mode),
            (3, self._change_servers),
            (1, self._toggle_server),
            (1.5, self._compact),
            (1.5, self._reopen),
            (0.5, self._ask_aside),
        ]
        weights, actions = zip(*steps, strict=True)
        for action in self._dice.choices(actions, weights, k=self._dice.randint(4, 14)):
            await action()
            if action not in (self._prompt, self._queue, self._show_image):
                await self._prompt()
        await self.client.close()

    def _interrupt(self) -> None:
        self.client.interrupt()

    async def _open(self, **options: Any) -> None:
        dice = self._dice
        if dice.random() < 0.3:
            options["fallback_model"] = dice.choice(MODELS)
        if dice.random() < 0.15:
            options["autocompact"] = SMALL_WINDOW
        self._client = StrictClient(
            self._folder,
            "",
            dice=dice,
            servers=self.servers,
            model=self._model,
            permission_mode="bypassPermissions",
            permission_prompt_tool="stdio",
            fsync="off",
            input_format="stream-json",
            **options,
        )
        self._client.stamp = self._clock
        self._client.environment |= {
            "ANTHROPIC_BASE_URL": self._url,
            "ANTHROPIC_API_KEY": "a-key-for-tests",
            "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
            "ENABLE_TOOL_SEARCH": self._search,
        }
        await self._client.__aenter__()
        hooks = {event: [{"matcher": None, "hookCallbackIds": [event]}] for event in EVENTS}
        await self._client.request("initialize", hooks=hooks, sdkMcpServers=sorted(self.servers))

    def _make_tools(self) -> list[Json]:
        names = self._dice.sample(["fetch", "store", "count", "sort"], self._dice.randint(1, 3))
        word = self._dice.choice(["fast", "slow"])
        fields = {"what": {"type": "string"}, **({"why": {"type": "integer"}} if self._dice.random() < 0.5 else {})}
        return [
            {"name": name, "description": f"A {word} tool", "inputSchema": {"type": "object", "properties": fields}}
            for name in names
        ]

    # What the client does.

    def _text(self) -> str:
        self._prompts += 1
        return f"prompt {self._prompts} {self._dice.random()}"

    async def _prompt(self) -> None:
        self.client.prompt(self._text())
        await self.client.wait_idle()

    async def _queue(self) -> None:
        for _ in range(self._dice.randint(2, 3)):
            self.client.prompt(self._text())
            await asyncio.sleep(0)
        await self.client.wait_idle()

    async def _show_image(self) -> None:
        data = self._dice.choices([PNG, NOT_PNG, TOO_LARGE], [10, 3, 0.3])[0]
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
        content = [text(self._text()), image]
        self.client.send({"type": "user", "message": {"role": "user", "content": content}})
        await self.client.wait_idle()

    async def _set_model(self) -> None:
        self._model = self._dice.choice(MODELS)
        await self.client.request("set_model", model=self._model)

    async def _set_mode(self) -> None:
        await self.client.request("set_permission_mode", mode=self._dice.choice(MODES))

    async def _change_servers(self) -> None:
        name = self._dice.choice(["first", "second"])
        if name in self.servers and self._dice.random() < 0.5:
            self.servers[name] = self._make_tools()
            changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            await self.client.request("mcp_message", server_name=name, message=changed)
            return
        if name in self.servers:
            del self.servers[name]
        else:
            self.servers[name] = self._make_tools()
        await self.client.request(
            "mcp_set_servers", servers={name: {"type": "sdk", "name": name} for name in self.servers}
        )

    async def _toggle_server(self) -> None:
        if self.servers:
            name = self._dice.choice(sorted(self.servers))
            await self.client.request("mcp_toggle", serverName=name, enabled=self._dice.random() < 0.5)

    async def _compact(self) -> None:
        self.client.prompt("/compact")
        await self.client.wait_idle()

    async def _ask_aside(self) -> None:
        await self.client.request("side_question", question=f"Why? {self._dice.random()}")

    async def _reopen(self) -> None:
        if not self._prompts:
            await self._prompt()  # an empty session is not stored
        session_id, dice, options = self.client.session.id, self._dice, dict[str, Any]()
        if dice.random() < 0.4:
            options["fork_session"] = True
        answers = [
            entry.uuid for entry in self.client.session.journal.history.list_entries() if entry.role == "assistant"
        ]
        if answers and dice.random() < 0.3:
            options["resume_session_at"] = dice.choice(answers)
        await self.client.close()
        await self._open(resume=session_id, **options)


class StrictClient(SessionHarness):
    """A client that answers what the engine asks, and has MCP servers of its own."""

    def __init__(
        self, folder: Path, script: str, *, dice: Random, servers: dict[str, list[Json]], **options: Any
    ) -> None:
        super().__init__(folder, script, **options)
        self._dice = dice
        self._servers = servers

    async def wait_idle(self) -> None:
        await self.receive_until(
            lambda line: line.get("subtype") == "session_state_changed" and line["state"] == "idle"
        )

    def interrupt(self) -> None:
        self.send({"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}})

    async def receive_until(self, wanted: Any) -> Json:
        def look(line: Json) -> bool:
            if line["type"] == "control_request":
                self._answer(line)
            return bool(wanted(line))

        return await super().receive_until(look)

    def _answer(self, line: Json) -> None:
        request = line["request"]
        answers: dict[str, Callable[[Json], Json]] = {
            "mcp_message": self._answer_message,
            "hook_callback": self._answer_hook,
            "can_use_tool": self._answer_question,
        }
        made = answers[request["subtype"]](request)
        response = {"subtype": "success", "request_id": line["request_id"], "response": made}
        self.send({"type": "control_response", "response": response})

    def _answer_message(self, request: Json) -> Json:
        message, tools = request["message"], self._servers.get(request["server_name"], [])
        results: Json = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": request["server_name"], "version": "1"},
                "instructions": f"About {request['server_name']}.",
            },
            "tools/list": {"tools": tools},
            "tools/call": {"content": [text(self._dice.choice(["", "found", "nothing"]))]},
        }
        result = results.get(message["method"], {})
        return {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": result}}

    def _answer_hook(self, request: Json) -> Json:
        event = request["input"]["hook_event_name"]
        if event == "Stop" or self._dice.random() < 0.7:
            return {}
        context = f"context {self._dice.random()}"
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": context}}

    def _answer_question(self, request: Json) -> Json:
        if self._dice.random() < 0.3:
            return {"behavior": "deny", "message": "No."}
        return {"behavior": "allow", "updatedInput": request["input"]}


async def sleep_briefly(seconds: float) -> None:
    """Retries wait for nothing."""
    await asyncio.sleep(min(seconds, 0.01))


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def call(name: str, **input: Any) -> Json:
    return {"type": "tool_use", "id": "", "name": name, "input": input}


async def run_one(seed: str) -> Counter[str]:
    """What happened in one session. Raises Broken if it did not end."""
    dice = Random(seed)
    strict = StrictModel(Answers(dice).choose)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "notes.txt").write_text("notes\n")
        async with ModelServer(strict, keeps=0) as server:
            try:
                async with asyncio.timeout(SESSION_SECONDS):
                    await StrictSession(folder, dice, server.url, strict).run()
            except Exception as exc:
                raise Broken(f"session {seed} did not end: {exc!r}") from exc
    counts = Counter(requests=strict.requests, sessions=1)
    for kind, found in (("rejected", strict.rejections), ("dropped", strict.dropped), ("rewritten", strict.rewritten)):
        counts[kind] = len(found)
        counts[f"sessions with {kind}"] = bool(found)
        for words in found:
            counts[f"{kind}: {re.sub(r'[0-9]+', 'N', words)[:110]}"] += 1
    if strict.rejections or strict.dropped:
        sys.stderr.write(f"{seed}: {[*strict.rejections[:1], *strict.dropped[:1]]}\n")
    return counts


def run(first: int, last: int, seed: int) -> Counter[str]:
    """What happened in the sessions from `first` to before `last`."""

    async def run_all() -> Counter[str]:
        counts: Counter[str] = Counter()
        for number in range(first, last):
            counts += await run_one(f"{seed}-{number}")
        return counts

    return asyncio.run(run_all())


def run_in_processes(first: int, last: int, seed: int, jobs: int) -> Counter[str]:
    """The same in other processes, so many at a time."""
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as pool:
        starts = range(first, last, BATCH)
        for batch in [pool.submit(run, start, min(start + BATCH, last), seed) for start in starts]:
            counts += batch.result()
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first session")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    started = time.monotonic()
    counts = run_in_processes(given.first, given.first + given.sessions, given.seed, given.jobs)
    seconds = time.monotonic() - started
    for name, number in sorted(counts.items()):
        sys.stdout.write(f"{number:9}  {name}\n")
    sys.stdout.write(f"{counts['sessions'] / seconds:9.1f}  sessions per second\n")
    return 1 if counts["rejected"] or counts["dropped"] else 0


if __name__ == "__main__":
    sys.exit(main())
