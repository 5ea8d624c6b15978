"""WebSearch: by the model's backend, by the person's endpoint, or not at all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from parley.compose.launch_context import LaunchContext
from parley.compose.tools import make_web
from parley.errors import ModelError, ToolError, UsageError
from parley.protocol.base import Json
from parley.protocol.options import CliOptions
from parley.settings.env_vars import child_environment
from parley.tools.base import ToolOutput, read_input
from parley.tools.web import WebSearch
from parley.workspace.web import Web
from tests.helpers.http_server import Answer, Loopback, loopback, whole
from tests.helpers.tools import ToolHarness

HIT = {"type": "web_search_result", "title": "Cats", "url": "https://example.com/cats", "encrypted_content": "x"}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [HIT]}


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    harness = ToolHarness(tmp_path)
    ticks = iter(range(1000))
    harness.change(clock=lambda: float(next(ticks)))
    return harness


def backend(harness: ToolHarness, answer: list[Json] | ModelError) -> list[tuple[str, list[Json]]]:
    """A backend that searches; what it is asked."""
    heard: list[tuple[str, list[Json]]] = []

    class Backend:
        async def consult(self, prompt: str, tools: list[Json]) -> list[Json]:
            heard.append((prompt, tools))
            if isinstance(answer, ModelError):
                raise answer
            return answer

    harness.offer(models=Backend())
    return heard


def text(words: str) -> Json:
    return {"type": "text", "text": words}


# The backend.


def test_the_backend_searches_and_its_words_and_pages_are_given(harness: ToolHarness) -> None:
    use = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "cats"}}
    heard = backend(harness, [text("I look."), use, FOUND, text("Cats "), text("are animals.")])
    result = harness.call(WebSearch(), query="cats", allowed_domains=["example.com"])
    pages = {"tool_use_id": "srv_1", "content": [{"title": "Cats", "url": "https://example.com/cats"}]}
    parts = ["I look.", pages, "Cats are animals."]
    assert result == ToolOutput(
        content="Web search for 'cats':\n\nI look.\n\n- Cats: https://example.com/cats\n\nCats are animals.",
        detail={"query": "cats", "results": parts, "durationSeconds": 1.0, "searchCount": 1},
    )
    [(prompt, [tool])] = heard
    assert prompt.endswith("cats")
    assert tool == {
        "type": "web_search_20250305",
        "name": "web_search",
        "max_uses": 8,
        "allowed_domains": ["example.com"],
    }


def test_a_search_that_failed_is_reported_among_the_others(harness: ToolHarness) -> None:
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    backend(harness, [FOUND, {**FOUND, "content": error}])
    result = harness.call(WebSearch(), query="cats")
    assert result.detail["results"][1] == "A search failed: max_uses_exceeded"
    assert result.detail["searchCount"] == 1


def test_a_search_without_hits_says_so(harness: ToolHarness) -> None:
    backend(harness, [{**FOUND, "content": []}])
    assert "(no results)" in str(harness.call(WebSearch(), query="cats").content)


def test_an_answer_without_a_search_or_a_word_is_refused(harness: ToolHarness) -> None:
    backend(harness, [text(" ")])
    assert "found nothing" in harness.refusal(WebSearch(), query="cats")


def test_domains_are_either_allowed_or_blocked(harness: ToolHarness) -> None:
    heard = backend(harness, [FOUND])
    words = harness.refusal(WebSearch(), query="cats", allowed_domains=["a.com"], blocked_domains=["b.com"])
    assert "not both" in words
    assert heard == []


# No one.


def test_where_no_one_can_search_the_model_is_informed_what_is_missing(harness: ToolHarness) -> None:
    assert "PARLEY_SEARCH_URL" in harness.refusal(WebSearch(), query="cats")
    harness.change(open_web=Web)
    backend(harness, ModelError("the model offline has no server-side tools"))
    words = harness.refusal(WebSearch(), query="cats")
    assert "the model offline has no server-side tools" in words
    assert "later" not in words


def test_a_backend_that_is_busy_may_be_asked_later(harness: ToolHarness) -> None:
    backend(harness, ModelError("overloaded", status=529, retryable=True))
    assert "overloaded (it may work a little later)" in harness.refusal(WebSearch(), query="cats")


# The endpoint.


async def search(harness: ToolHarness, answer: Answer, **input: Any) -> tuple[ToolOutput, Loopback]:
    async with asyncio.timeout(60), loopback(answer) as server:
        harness.change(open_web=lambda: Web(search_url=server.url + "/find?q={query}&n=5"))
        call = read_input(WebSearch(), {"query": "black & white", **input})
        return await WebSearch().run(call, harness.context, harness.reach), server


def answering(*urls: str) -> Answer:
    hits = [{"title": f"T {url}", "url": url, "snippet": f"S {url}"} for url in urls]
    return whole(200, json.dumps({"results": hits}).encode(), {"content-type": "application/json"})


async def test_the_persons_endpoint_is_asked_where_the_backend_cannot_search(harness: ToolHarness) -> None:
    backend(harness, ModelError("no tools here", status=400))
    result, server = await search(harness, answering("https://a.com/x"))
    assert server.heard[0].line == "GET /find?q=black%20%26%20white&n=5 HTTP/1.1"
    [part] = result.detail["results"]
    assert part["content"] == [{"title": "T https://a.com/x", "url": "https://a.com/x", "snippet": "S https://a.com/x"}]
    assert "- T https://a.com/x: https://a.com/x\n  S https://a.com/x" in str(result.content)


URLS = ("https://a.com/x", "https://www.a.com/y", "https://nota.com/z", "https://b.org/", "http://[broken")


@pytest.mark.parametrize(
    ("wishes", "kept"),
    [
        ({}, URLS[:4]),
        ({"allowed_domains": ["A.com"]}, URLS[:2]),
        ({"blocked_domains": ["a.com", "b.org"]}, URLS[2:3]),
    ],
)
async def test_the_endpoints_pages_are_sifted_by_whole_domains(
    harness: ToolHarness, wishes: Json, kept: tuple[str, ...]
) -> None:
    result, _ = await search(harness, answering(*URLS), **wishes)
    assert [hit["url"] for hit in result.detail["results"][0]["content"]] == list(kept)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (whole(500, b"down", {}), "answered 500"),
        (whole(302, b"", {"location": "https://elsewhere.example/"}), "answered 302"),
        (whole(200, b"<html>", {}), "cannot be read"),
        (whole(200, b'{"hits": []}', {}), "cannot be read"),
        (whole(200, b'{"results": [{"title": "no url"}]}', {}), "cannot be read"),
    ],
)
async def test_an_endpoint_that_does_not_answer_as_it_must_is_reported(
    harness: ToolHarness, answer: Answer, words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        await search(harness, answer)


def test_an_endpoint_that_takes_no_query_is_reported_at_the_start(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PARLEY_SEARCH_URL": "http://localhost:8080/search"}
    with pytest.raises(UsageError, match="PARLEY_SEARCH_URL"):
        make_web(LaunchContext(CliOptions(), environment, str(tmp_path)), None)


def test_no_command_sees_the_endpoint_which_may_carry_a_key() -> None:
    seen = child_environment({"PATH": "/bin", "PARLEY_SEARCH_URL": "https://s.example/?key=secret&q={query}"})
    assert "secret" not in str(seen)


async def test_endless_snippets_are_cut(harness: ToolHarness) -> None:
    hits = [{"title": "t" * 5000, "url": f"https://a.com/{n}", "snippet": "s" * 100_000} for n in range(50)]
    result, _ = await search(harness, whole(200, json.dumps({"results": hits}).encode(), {}))
    assert len(str(result.content)) < 40_000
