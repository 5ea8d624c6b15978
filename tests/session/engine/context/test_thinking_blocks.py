"""Thinking goes back to the model that made it, as long as nothing before it has changed; and no request is rejected.

The model is one that signs its thinking and checks every request (tests/helpers/strict_model.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.models.base import ModelRequest
from parley.models.catalog import thinking_owner
from parley.testing.messages_api import request_error
from parley.testing.model_server import ModelServer, SourceAnswer
from tests.helpers.mcp import answer
from tests.helpers.session import Json, SessionHarness, counted
from tests.helpers.strict_model import Reply, StrictModel

FABLE, OPUS = "claude-fable-5-2", "claude-opus-5-5"
THOUGHT: Json = {"type": "thinking", "thinking": "Hm."}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def call(name: str, **input: Any) -> Json:
    return {"type": "tool_use", "id": "", "name": name, "input": input}


SAYS = Reply([THOUGHT, text("Done.")])
Talk = Callable[["ThinkingSession"], Awaitable[None]]


class ThinkingSession:
    """A session over several engines, and the requests that its model got."""

    def __init__(
        self,
        folder: Path,
        replies: list[Reply],
        environment: dict[str, str] | None = None,
        model_class: type[StrictModel] = StrictModel,
        **options: Any,
    ) -> None:
        self.folder = folder
        self.environment = environment or {}
        self.options = options
        self.requests: list[ModelRequest] = []
        self.strict = model_class(self._choose)
        self.tools: list[Json] = []
        """Of the MCP server `shop`, which the client runs."""
        self._replies = iter(replies)
        self._clock = counted()
        self._url = ""

    def _choose(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        return next(self._replies, SAYS)

    async def play(self, talk: Talk) -> None:
        """No request is rejected, and no thinking is left out without need."""
        async with ModelServer(self.strict) as server, asyncio.timeout(60):
            self._url = server.url
            await self.open()
            await talk(self)
            await self.harness.close()
        assert (self.strict.rejections, self.strict.dropped) == ([], [])

    async def open(self, **options: Any) -> None:
        chosen = {"model": FABLE, "permission_mode": "bypassPermissions", **self.options, **options}
        self.harness = SessionHarness(self.folder, "", **chosen)
        self.harness.stamp = self._clock
        self.harness.environment |= {"ANTHROPIC_BASE_URL": self._url, "ANTHROPIC_API_KEY": "k", **self.environment}
        await self.harness.__aenter__()

    async def reopen(self, **options: Any) -> None:
        session_id = self.harness.session.id
        await self.harness.close()
        await self.open(resume=session_id, **options)

    async def prompt(self, content: str | list[Json] = "go") -> None:
        self.harness.send({"type": "user", "message": {"role": "user", "content": content}})
        await self.wait_for(lambda line: line["type"] == "result")

    async def request(self, subtype: str, **fields: Any) -> None:
        request_id = f"r{len(self.harness.lines)}"
        self.harness.send(
            {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}
        )
        await self.wait_for(lambda line: line.get("response", {}).get("request_id") == request_id)

    async def wait_for(self, wanted: Callable[[Json], bool]) -> None:
        def look(line: Json) -> bool:
            if line.get("request", {}).get("subtype") == "mcp_message":
                self.harness.send(self._answer(line))
            return wanted(line)

        await self.harness.receive_until(look)

    def _answer(self, line: Json) -> Json:
        message = line["request"]["message"]
        results: Json = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "shop", "version": "1"},
            },
            "tools/list": {"tools": self.tools},
            "tools/call": {"content": [text(""), text(f"called {message.get('params', {}).get('name')}")]},
        }
        result = results.get(message["method"], {})
        return answer(line, {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": result}})

    def thoughts(self) -> list[int]:
        """How many thinking blocks each request had."""
        return [
            sum(block["type"] == "thinking" for message in request.messages for block in message["content"])
            for request in self.requests
        ]


def tool(name: str, **properties: Json) -> Json:
    return {"name": name, "description": "A tool", "inputSchema": {"type": "object", "properties": properties}}


async def test_another_model_gets_no_foreign_thinking_and_the_first_gets_its_own_back(tmp_path: Path) -> None:
    async def talk(session: ThinkingSession) -> None:
        for model in (FABLE, OPUS, OPUS, FABLE, "claude-mythos-5-2"):
            await session.request("set_model", model=model)
            await session.prompt()

    session = ThinkingSession(tmp_path, [])
    await session.play(talk)
    assert session.thoughts() == [0, 0, 1, 1, 2]


async def test_a_fallback_model_gets_none_either(tmp_path: Path) -> None:
    async def talk(session: ThinkingSession) -> None:
        for _ in range(3):
            await session.prompt()

    session = ThinkingSession(tmp_path, [SAYS, Reply([THOUGHT, text("No.")], "refusal")], fallback_model=OPUS)
    await session.play(talk)
    assert [request.model for request in session.requests] == [FABLE, FABLE, OPUS, FABLE]
    assert session.thoughts() == [0, 1, 0, 1]


@pytest.mark.parametrize("options", [{}, {"fork_session": True}])
async def test_a_resumed_session_and_a_fork_keep_thinking(tmp_path: Path, options: Json) -> None:
    async def talk(session: ThinkingSession) -> None:
        await session.prompt()
        await session.reopen(**options)
        await session.prompt()

    session = ThinkingSession(tmp_path, [])
    await session.play(talk)
    assert session.thoughts() == [0, 1]


async def test_a_resumed_session_with_another_prompt_leaves_out_what_is_bound_to_the_first(tmp_path: Path) -> None:
    async def talk(session: ThinkingSession) -> None:
        await session.prompt()
        await session.reopen(append_system_prompt="Be brief.")
        await session.prompt()
        await session.prompt()

    session = ThinkingSession(tmp_path, [], system_prompt_snapshot="off")
    await session.play(talk)
    assert session.thoughts() == [0, 0, 1]


async def test_a_compaction_leaves_out_the_thinking_in_what_it_keeps(tmp_path: Path) -> None:
    async def talk(session: ThinkingSession) -> None:
        for prompt in ("a", "b", "c", "/compact", "d", "e"):
            await session.prompt(prompt)

    session = ThinkingSession(tmp_path, [])
    await session.play(talk)
    assert session.thoughts()[-2:] == [0, 1]


async def test_thinking_after_a_call_that_is_stored_in_another_form_is_left_out(tmp_path: Path) -> None:
    """The model calls a tool through ToolSearch, which is stored as a call of the tool, and thinks on."""
    through = call("ToolSearch", call="Read", input={"file_path": "a.txt"})

    async def talk(session: ThinkingSession) -> None:
        await session.prompt()
        await session.prompt()

    session = ThinkingSession(tmp_path, [Reply([THOUGHT, through, THOUGHT, call("Read", file_path="b.txt")])])
    await session.play(talk)
    assert session.thoughts() == [0, 1, 2]


@pytest.mark.parametrize("search", ["", "true"])
async def test_a_late_server_changes_neither_the_tools_nor_the_messages_before(tmp_path: Path, search: str) -> None:
    """Its tools are announced at the end, and found by a search."""
    find, use = call("ToolSearch", query="select:sell"), call("ToolSearch", call="mcp__shop__sell", input={"to": "x"})

    async def talk(session: ThinkingSession) -> None:
        await session.request("initialize", sdkMcpServers=["shop"])
        await session.prompt()
        session.tools.append(tool("sell"))
        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        await session.request("mcp_message", server_name="shop", message=changed)
        await session.prompt()

    replies = [SAYS, Reply([THOUGHT, find]), Reply([THOUGHT, use]), SAYS]
    session = ThinkingSession(tmp_path, replies, {"ENABLE_TOOL_SEARCH": search})
    session.tools = [tool("buy", what={"type": "string"})]
    await session.play(talk)
    first, second, *_, last = session.requests
    assert [one for one in last.tools if "defer_loading" not in one] == second.tools == first.tools
    assert "prefix mcp__shop__: sell" in json.dumps(second.messages[-1])
    assert "called sell" in json.dumps(last.messages[-1])
    assert session.thoughts() == [0, 1, 2, 3]


async def test_tools_that_change_or_go_are_news_at_the_end(tmp_path: Path) -> None:
    async def talk(session: ThinkingSession) -> None:
        await session.request("initialize", sdkMcpServers=["shop"])
        await session.prompt()
        session.tools[0] = tool("buy", how={"type": "string"})
        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        await session.request("mcp_message", server_name="shop", message=changed)
        await session.prompt()
        for enabled in (False, True):
            await session.request("mcp_toggle", serverName="shop", enabled=enabled)
            await session.prompt()

    session = ThinkingSession(tmp_path, [])
    session.tools = [tool("buy", what={"type": "string"})]
    await session.play(talk)
    first, *others = session.requests
    assert all(request.tools == first.tools for request in others)
    news = [json.dumps(request.messages[-1]) for request in others]
    assert '\\"how\\"' in news[0]
    assert "These tools no longer exist:\\nprefix mcp__shop__: buy" in news[1]
    assert "These tools exist again:\\nprefix mcp__shop__: buy" in news[2]
    assert session.thoughts() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("environment", "thoughts"),
    [({}, [0, 1, 2]), ({"ENABLE_TOOL_SEARCH": "false"}, [0, 0, 1])],
)
async def test_a_server_that_is_added_changes_the_tools_only_without_tool_search(
    tmp_path: Path, environment: dict[str, str], thoughts: list[int]
) -> None:
    async def talk(session: ThinkingSession) -> None:
        await session.prompt()
        await session.request("mcp_set_servers", servers={"shop": {"type": "sdk", "name": "shop"}})
        await session.prompt()
        await session.prompt()

    session = ThinkingSession(tmp_path, [], environment, input_format="stream-json")
    session.tools = [tool("buy")]
    await session.play(talk)
    first, *_, last = session.requests
    assert (first.tools == last.tools) == (not environment)
    assert session.thoughts() == thoughts


async def test_images_that_would_be_rejected_are_replaced_before_they_are_sent(tmp_path: Path) -> None:
    images = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
        for data in (PNG, "bm8=", PNG[:40] + "A" * (5 * 1024 * 1024))
    ]

    async def talk(session: ThinkingSession) -> None:
        await session.prompt([text("Look."), *images])
        await session.prompt()

    session = ThinkingSession(tmp_path, [])
    await session.play(talk)
    [_, shown, unreadable, large] = session.requests[-1].messages[0]["content"]
    assert shown == images[0]
    assert "It could not be read: the data are not image/png." in unreadable["text"]
    assert "It is too large: 5,242,920 characters in base64, the limit is 5,242,880." in large["text"]
    notices = [line for line in session.harness.lines if line.get("subtype") == "informational"]
    assert len(notices) == 2


class Suspicious(StrictModel):
    """Rejects thinking that is valid, once."""

    has_rejected = False

    def answer(self, request: ModelRequest) -> SourceAnswer:
        if len(request.messages) == 3 and not self.has_rejected:
            self.has_rejected = True
            raise request_error(400, "messages.1.content.0: Invalid `signature` in `thinking` block")
        return super().answer(request)


async def test_after_a_rejection_the_thinking_so_far_is_left_out_also_in_a_resumed_session(tmp_path: Path) -> None:
    async def talk(session: ThinkingSession) -> None:
        for _ in range(3):
            await session.prompt()
        await session.reopen()
        await session.prompt()
        session.strict.dropped.clear()  # what it rejected could have stayed

    session = ThinkingSession(tmp_path, [], model_class=Suspicious)
    await session.play(talk)
    assert session.thoughts() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
        ("claude-sonnet-4-5", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        ("claude-sonnet-4-5", "claude-sonnet-4-5@20250929", True),
        ("claude-sonnet-4-5", "claude-sonnet-4-5[1m]", True),
        ("claude-fable-5-2", "claude-mythos-5-2", True),
        ("claude-fable-5-2", "claude-fable-5-1", False),
        ("claude-sonnet-4-5", "claude-sonnet-4-6", False),
        ("claude-opus-5", "claude-opus-5-5", False),
        ("openai:gpt-5", "openai:gpt-5-mini", False),
    ],
)
def test_names_of_one_model_have_one_owner(one: str, other: str, same: bool) -> None:
    assert (thinking_owner(one) == thinking_owner(other)) is same
