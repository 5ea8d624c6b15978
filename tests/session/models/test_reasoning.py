"""Reasoning items of the Responses API: kept in the transcript, sent back to the model that made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.models.backends.reasoning_items import PREFIX
from parley.models.script import read_script
from parley.testing.model_server import ModelServer
from tests.helpers.session import Json, SessionHarness, texts

MODEL = "openai-responses:gpt-5"
THINKS = "[[turn]]\nthinking = 'Hm.'\ntext = 'First.'\n"
HIDDEN = "[[turn]]\nblocks = [{ type = 'redacted_thinking', data = 'gAAA' }, { type = 'text', text = 'First.' }]\n"
SAYS = "[[turn]]\ntext = 'Then.'\n"
ITEM = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "c2NyaXB0ZWQ=",
}


async def talk(server: ModelServer, folder: Path, *prompts: str | Json, **options: Any) -> SessionHarness:
    """A session in which these prompts are answered; a prompt that is an object is a control request."""
    harness = SessionHarness(folder, "", **{"model": MODEL, **options})
    harness.environment = {
        **harness.environment,
        "ANTHROPIC_BASE_URL": server.url,
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
    }
    async with harness:
        for prompt in prompts:
            if isinstance(prompt, dict):
                await harness.request(**prompt)
            else:
                harness.prompt(prompt)
                await harness.receive("result")
    return harness


def sent(server: ModelServer, number: int = -1) -> list[Json]:
    """The reasoning items of a request, without their ids."""
    items = [item for item in server.exchanges[number].body["input"] if item["type"] == "reasoning"]
    return [{name: value for name, value in item.items() if name != "id"} for item in items]


async def test_reasoning_goes_back_to_the_model_in_its_place(tmp_path: Path) -> None:
    async with ModelServer(read_script(THINKS + SAYS, "here")) as server:
        await talk(server, tmp_path, "one", "two")

    assert sent(server) == [ITEM]
    assert [item["type"] for item in server.exchanges[1].body["input"]] == [
        "message",
        "reasoning",
        "message",
        "message",
    ]
    first = server.exchanges[0].body
    assert (first["store"], first["include"]) == (False, ["reasoning.encrypted_content"])


async def test_reasoning_without_a_summary_goes_back_too(tmp_path: Path) -> None:
    async with ModelServer(read_script(HIDDEN + SAYS, "here")) as server:
        harness = await talk(server, tmp_path, "one", "two")

    assert sent(server) == [{"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}]
    assert texts(harness.messages("assistant")) == ["First.", "Then."]


async def test_reasoning_survives_resume(tmp_path: Path) -> None:
    async with ModelServer(read_script(THINKS + SAYS, "here")) as server:
        first = await talk(server, tmp_path, "one")
        await talk(server, tmp_path, "two", resume=first.session.id)

    assert sent(server) == [ITEM]


async def test_another_model_does_not_get_it(tmp_path: Path) -> None:
    switch: Json = {"subtype": "set_model", "model": "openai-responses:gpt-6"}
    back: Json = {"subtype": "set_model", "model": MODEL}
    async with ModelServer(read_script(THINKS + SAYS + SAYS, "here")) as server:
        await talk(server, tmp_path, "one", switch, "two", back, "three")

    assert sent(server, 1) == []
    assert sent(server, 2) == [ITEM]


@pytest.mark.parametrize("model", ["sonnet", "openai:gpt-5"])
@pytest.mark.parametrize("script", [THINKS, HIDDEN])
async def test_another_backend_does_not_get_it(tmp_path: Path, model: str, script: str) -> None:
    async with ModelServer(read_script(script + SAYS, "here")) as server:
        harness = await talk(server, tmp_path, "one", {"subtype": "set_model", "model": model}, "two")

    assert PREFIX not in str(server.exchanges[1].body)
    assert server.exchanges[1].body["messages"][-2]["content"] in ("First.", [{"type": "text", "text": "First."}])
    assert texts(harness.messages("assistant")) == ["First.", "Then."]


async def test_reasoning_that_the_server_rejects_is_left_out_from_then_on(tmp_path: Path) -> None:
    words = "The encrypted content for item rs_1 could not be verified."
    error = f"[[turn]]\nerror = {{ status = 400, type = 'invalid_request_error', message = '{words}' }}\n"
    async with ModelServer(read_script(THINKS + error + SAYS, "here")) as server:
        harness = await talk(server, tmp_path, "one", "two")

    assert (sent(server, 1), sent(server, 2)) == ([ITEM], [])
    assert texts(harness.messages("assistant")) == ["First.", "Then."]
    assert [line["content"] for line in harness.messages("system") if line.get("tag") == "history_repaired"] != []


async def test_a_stream_that_keeps_breaking_in_its_reasoning_ends_the_turn_and_not_the_session(tmp_path: Path) -> None:
    broken = "[[turn]]\nthinking = 'Hm, hm.'\ntext = 'Never.'\nchunk_chars = 2\nfault = 'reset=4'\n"
    async with ModelServer(read_script(broken + broken + SAYS, "here")) as server:
        harness = await talk(server, tmp_path, "one", "two")
    failed, fine = harness.messages("result")

    assert failed["is_error"]
    assert "the stream broke off inside a reasoning item" in failed["result"]
    assert fine["result"] == "Then."
    assert sent(server) == []


async def test_thinking_tokens_are_counted(tmp_path: Path) -> None:
    used = "usage = { input_tokens = 7, output_tokens = 30, output_tokens_details = { thinking_tokens = 20 } }\n"
    async with ModelServer(read_script(THINKS + used, "here")) as server:
        harness = await talk(server, tmp_path, "one")
    [result] = harness.messages("result")

    assert result["usage"]["output_tokens_details"] == {"thinking_tokens": 20}


SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'


async def test_a_server_that_enforces_schemas_gets_the_schema(tmp_path: Path) -> None:
    async with ModelServer(read_script("[[turn]]\ntext = '{\"n\": 7}'\n", "here")) as server:
        harness = SessionHarness(tmp_path, "", model=MODEL, json_schema=SCHEMA)
        harness.environment = {
            **harness.environment,
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "PARLEY_OPENAI_FIELDS": "response_format",
        }
        async with harness:
            harness.prompt("go")
            result = await harness.receive("result")
    body = server.exchanges[0].body

    assert body["text"]["format"]["schema"]["required"] == ["n"]
    assert "StructuredOutput" not in [tool["name"] for tool in body["tools"]]
    assert result["structured_output"] == {"n": 7}


@pytest.mark.parametrize(
    ("options", "reasoning"),
    [
        ({}, {"summary": "auto"}),
        ({"effort": "high"}, {"effort": "high", "summary": "auto"}),
        ({"max_thinking_tokens": 2000}, {"effort": "low", "summary": "auto"}),
        ({"max_thinking_tokens": 0}, {"effort": "none"}),
    ],
)
async def test_effort_and_thinking_budget_reach_the_server(tmp_path: Path, options: Json, reasoning: Json) -> None:
    async with ModelServer(read_script(SAYS, "here")) as server:
        await talk(server, tmp_path, "one", **options)

    assert server.exchanges[0].body["reasoning"] == reasoning


async def test_a_model_that_does_not_reason_gets_no_such_fields(tmp_path: Path) -> None:
    async with ModelServer(read_script(SAYS, "here")) as server:
        await talk(server, tmp_path, "one", model="openai-responses:gpt-4o")

    assert not {"reasoning", "include"} & set(server.exchanges[0].body)
