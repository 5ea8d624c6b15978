"""Model calls beside the conversation, through real tools and a real API on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from parley.engine.clock import SessionIdentity
from parley.engine.context.models import ModelPool, ModelSelection, SideQuery
from parley.engine.ledger import Ledger
from parley.errors import ModelError
from parley.models.base import Model, ModelEvent, ModelRequest
from parley.models.catalog import ModelRef, Prices
from parley.models.script import read_script
from parley.testing.model_server import Exchange, ModelServer
from tests.helpers.http_server import loopback, whole
from tests.helpers.session import Json, SessionHarness

PAGE = whole(200, b"<p>page text</p>", {"content-type": "text/html"})
USAGE = "usage = { input_tokens = 10, output_tokens = 5 }"
FETCH = """
[[turn]]
tools = [{{ name = "WebFetch", input = {{ url = "{url}", prompt = "What?" }} }}]
{usage}
[[turn]]
when = "page text"
{answer}
[[turn]]
text = "ok"
{usage}
"""
SEARCH = """
[[turn]]
tools = [{ name = "WebSearch", input = { query = "cats", blocked_domains = ["b.com"] } }]
[[turn]]
when = "cats"
blocks = [
  { type = "server_tool_use", id = "srv_1", name = "web_search", input = { query = "cats" } },
  { type = "web_search_tool_result", tool_use_id = "srv_1", content = [
    { type = "web_search_result", title = "Cats", url = "https://a.com/", encrypted_content = "x" } ] },
  { type = "text", text = "Cats are animals." },
]
[[turn]]
text = "ok"
"""


async def on_the_api(folder: Path, script: str, **environment: str) -> tuple[SessionHarness, list[Exchange]]:
    """One turn of a session whose model is an API that plays this script."""
    async with ModelServer(read_script(script, "test")) as server:
        harness = SessionHarness(folder, "", model="opus", permission_mode="bypassPermissions")
        harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "PARLEY_WEBFETCH_ALLOW_PRIVATE": "1", **environment}
        async with harness:
            harness.prompt("go")
            await harness.receive("result")
    return harness, server.exchanges


async def fetched(folder: Path, answer: str, **environment: str) -> tuple[SessionHarness, list[Exchange]]:
    async with asyncio.timeout(60), loopback(PAGE) as server:
        script = FETCH.format(url=server.url, answer=answer, usage=USAGE)
        return await on_the_api(folder, script, **environment)


def result_of(harness: SessionHarness) -> Json:
    line = next(harness.messages("user"))
    content: Json = line["message"]["content"][0]
    return content


async def test_the_small_model_is_asked_beside_the_conversation(tmp_path: Path) -> None:
    harness, exchanges = await fetched(tmp_path, f"text = 'A summary.'\n{USAGE}")
    assert result_of(harness)["content"] == "A summary."
    models = [exchange.body["model"] for exchange in exchanges]
    assert models == ["claude-opus-5-5", "claude-haiku-5-5", "claude-opus-5-5"]
    beside = exchanges[1].body
    assert len(beside["messages"]) == 1
    assert {"tools", "system", "thinking"}.isdisjoint(beside)
    assert b"page text" not in exchanges[2].raw


async def test_what_it_uses_is_booked_under_its_name_and_not_as_the_turns_own(tmp_path: Path) -> None:
    harness, _ = await fetched(tmp_path, f"text = 'A summary.'\n{USAGE}")
    result = next(harness.messages("result"))
    assert result["usage"]["input_tokens"] == 20
    used = {name: usage["inputTokens"] for name, usage in result["modelUsage"].items()}
    assert used == {"claude-opus-5-5": 20, "claude-haiku-5-5": 10}
    assert set(result["model_usage_since_last_result"]) == set(used)
    assert result["num_turns"] == 2


async def test_a_variable_names_the_small_model(tmp_path: Path) -> None:
    _, exchanges = await fetched(tmp_path, "text = 'x'", ANTHROPIC_SMALL_FAST_MODEL="claude-tiny")
    assert exchanges[1].body["model"] == "claude-tiny"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("error = { status = 529, type = 'overloaded_error', message = 'busy' }", "busy"),
        ("text = ' '", "has no text"),
    ],
)
async def test_where_it_fails_the_tool_continues_without_it(tmp_path: Path, answer: str, reason: str) -> None:
    harness, exchanges = await fetched(tmp_path, answer)
    assert len(exchanges) == 3
    content = result_of(harness)["content"]
    assert reason in content
    assert content.endswith("page text")


async def test_thinking_in_the_text_is_no_part_of_the_answer(tmp_path: Path) -> None:
    harness, _ = await fetched(tmp_path, "text = '<think>Hm.</think>A summary.'")

    assert result_of(harness)["content"] == "A summary."


async def test_a_session_that_is_not_on_the_api_asks_its_own_model(tmp_path: Path) -> None:
    async with asyncio.timeout(60), loopback(PAGE) as server:
        script = FETCH.format(url=server.url, answer="text = 'A summary.'", usage=USAGE)
        harness = SessionHarness(tmp_path, script, permission_mode="bypassPermissions")
        harness.environment["PARLEY_WEBFETCH_ALLOW_PRIVATE"] = "1"
        async with harness:
            harness.prompt("go")
            await harness.receive("result")
        result = harness

    assert result_of(result)["content"] == "A summary."


async def test_the_sessions_own_model_searches_with_its_backends_tool(tmp_path: Path) -> None:
    harness, exchanges = await on_the_api(tmp_path, SEARCH)
    asked = exchanges[1].body
    assert asked["model"] == "claude-opus-5-5"
    [tool] = asked["tools"]
    assert (tool["type"], tool["blocked_domains"]) == ("web_search_20250305", ["b.com"])
    line = next(harness.messages("user"))
    found = {"tool_use_id": "srv_1", "content": [{"title": "Cats", "url": "https://a.com/"}]}
    assert line["tool_use_result"]["results"] == [found, "Cats are animals."]


async def test_a_model_without_tools_of_its_own_says_so(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SEARCH, permission_mode="bypassPermissions") as harness:
        harness.prompt("go")
        await harness.receive("result")

    result = result_of(harness)
    assert result["is_error"] is True
    assert "has no server-side tools" in result["content"]


class Mute:
    """A model that begins and says no more, or breaks off."""

    def __init__(self, *, breaks_off: bool) -> None:
        self._breaks_off = breaks_off

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        yield ModelEvent(type="message_start", message={"id": "m", "usage": {"input_tokens": 7}})
        if not self._breaks_off:
            await asyncio.Event().wait()

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("breaks_off", "words"), [(False, "did not answer in time"), (True, "ended early")])
async def test_an_answer_that_does_not_end_is_not_waited_for_but_booked(breaks_off: bool, words: str) -> None:
    ledger = Ledger(Prices())
    choice = ModelRef("scripted", "x")

    def open_model(choice: ModelRef) -> Model:
        return Mute(breaks_off=breaks_off)

    models = ModelPool(open_model)
    errand = SideQuery(models, ModelSelection(choice), choice, ledger, SessionIdentity("s"), timeout_seconds=0.2)
    with pytest.raises(ModelError, match=words):
        await errand.ask_small("Hi")
    assert ledger.by_model()["scripted:x"].inputTokens == 7
    assert ledger.turn_usage["input_tokens"] == 0
