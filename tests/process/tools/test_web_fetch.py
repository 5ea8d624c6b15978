"""WebFetch, with real pages on loopback: what the model reads, what the host sees, what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from parley.errors import ModelError, ToolError
from parley.tools.base import ToolOutput, read_input
from parley.tools.web import ASKED_CHARS, SHOWN_CHARS, WebFetch
from parley.workspace.web import FetchPolicy, Web
from tests.helpers.http_server import Answer, loopback, whole
from tests.helpers.tools import ToolHarness


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    harness = ToolHarness(tmp_path)
    harness.change(open_web=lambda: Web(FetchPolicy(allow_private=True)))
    ticks = iter(range(1000))
    harness.change(clock=lambda: next(ticks) / 1000)
    return harness


def html(body: str, status: int = 200) -> Answer:
    return whole(status, body.encode(), {"content-type": "text/html"})


async def fetch(
    harness: ToolHarness, answer: Answer, prompt: str = "What is it?", **more: Any
) -> tuple[ToolOutput, str]:
    """What the tool gives for a page on a server with this answer, and the page's URL."""

    async with asyncio.timeout(60), loopback(answer) as server:
        url = server.url + "/p"
        call = read_input(WebFetch(), {"url": url, "prompt": prompt, **more})
        return await WebFetch().run(call, harness.context, harness.reach), url


async def refusal(harness: ToolHarness, answer: Answer, **more: Any) -> str:
    with pytest.raises(ToolError) as exc:
        await fetch(harness, answer, **more)
    return str(exc.value)


def with_model(harness: ToolHarness, answer: str | ModelError) -> list[str]:
    """A small model that gives this answer; what it is asked."""
    heard: list[str] = []

    class Small:
        async def ask_small(self, prompt: str) -> str:
            heard.append(prompt)
            if isinstance(answer, ModelError):
                raise answer
            return answer

    harness.offer(models=Small())
    return heard


async def test_the_small_model_reads_the_page_and_answers(harness: ToolHarness) -> None:
    heard = with_model(harness, "A greeting.")
    result, url = await fetch(harness, html("<h1>Hi</h1><p>page text</p>"), "Which kind?")
    detail = {"bytes": 27, "code": 200, "codeText": "X", "result": "A greeting.", "durationMs": 1, "url": url}
    assert result == ToolOutput(content="A greeting.", detail=detail)
    [prompt] = heard
    assert "# Hi\n\npage text" in prompt
    assert prompt.endswith("Which kind?")
    assert url in prompt


async def test_without_a_model_the_page_itself_is_given(harness: ToolHarness) -> None:
    result, _ = await fetch(harness, html("<p>page text</p>"))
    assert result.content == "(The page itself follows, because no small model is configured.)\n\npage text"


async def test_where_the_model_fails_the_page_itself_is_given_and_the_reason(harness: ToolHarness) -> None:
    with_model(harness, ModelError("overloaded", status=529))
    result, _ = await fetch(harness, html("<p>page text</p>"))
    assert "overloaded" in str(result.content)
    assert str(result.content).endswith("page text")


async def test_a_long_page_is_cut_and_can_be_read_on(harness: ToolHarness) -> None:
    text = "".join(f"{number:9}\n" for number in range(ASKED_CHARS // 5)).strip()
    page = whole(200, text.encode(), {"content-type": "text/plain"})
    heard = with_model(harness, "Much.")
    result, _ = await fetch(harness, page)
    note = f"(The page up to character {ASKED_CHARS} of {len(text)}; continue with offset={ASKED_CHARS}.)"
    assert result.content == f"Much.\n\n{note}"
    await fetch(harness, page, offset=ASKED_CHARS)
    assert text[:ASKED_CHARS] in heard[0]
    assert text[ASKED_CHARS:][:ASKED_CHARS] in heard[1]
    harness.offer(models=None)
    shown, _ = await fetch(harness, page)
    assert f"up to character {SHOWN_CHARS} of" in str(shown.content)
    assert len(str(shown.content)) < SHOWN_CHARS + 300
    assert "is past the end" in await refusal(harness, page, offset=len(text))


async def test_a_page_on_another_host_is_reported_with_its_new_place(harness: ToolHarness) -> None:
    result, url = await fetch(harness, whole(301, b"", {"location": "https://example.com/new"}))
    assert "https://example.com/new" in str(result.content)
    assert result.detail == {
        "bytes": 0,
        "code": 301,
        "codeText": "X",
        "result": result.content,
        "durationMs": 1,
        "url": url,
    }


async def test_what_is_not_text_is_named(harness: ToolHarness) -> None:
    words = await refusal(harness, whole(200, b"\x89PNG", {"content-type": "image/png"}))
    assert "image/png (4 bytes)" in words


async def test_an_error_of_the_server_is_reported_with_its_text(harness: ToolHarness) -> None:
    with_model(harness, "not asked")
    words = await refusal(harness, html("<h1>Gone</h1><p>Ask elsewhere", 410))
    assert "answered 410" in words
    assert "Ask elsewhere" in words


async def test_a_page_without_text_is_refused(harness: ToolHarness) -> None:
    assert "has no text" in await refusal(harness, html("<script>render()</script>"))


async def test_a_private_address_is_refused_unless_it_is_allowed(harness: ToolHarness) -> None:
    harness.change(open_web=Web)
    assert "is not public" in await refusal(harness, html("secret"))


def test_without_a_network_it_is_refused(harness: ToolHarness) -> None:
    harness.change(open_web=None)
    assert "The network is not available" in harness.refusal(WebFetch(), url="https://example.com", prompt="x")
