"""What a backend says comes back to it unharmed, whatever it is, and every way to stop is an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.models.script import Script, ScriptedTurn
from parley.testing.model_server import ModelServer
from tests.helpers.session import Json, SessionHarness

SEARCH: Json = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://x.test", "title": "X", "encrypted_content": "RW5j"}],
    "caller": {"type": "direct"},
}
CITED: Json = {
    "type": "text",
    "text": "It is so.",
    "citations": [{"type": "web_search_result_location", "url": "https://x.test", "encrypted_index": "SWQ="}],
}
BLOCKS: list[Json] = [
    {"type": "redacted_thinking", "data": "c2VjcmV0"},
    {"signature": "c2ln", "type": "thinking", "thinking": "Hm."},
    SEARCH,
    FOUND,
    CITED,
    {"type": "container_upload", "file_id": "f1", "strange": {"new": [1, None]}},
]
USAGE: Json = {
    "input_tokens": 5,
    "cache_creation_input_tokens": 7,
    "cache_read_input_tokens": 11,
    "output_tokens": 13,
    "service_tier": "priority",
    "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
    "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
}
DONE = ScriptedTurn(text="Done.")


async def played(folder: Path, *turns: ScriptedTurn, prompts: int = 1) -> tuple[list[Json], list[Any]]:
    """The results of so many prompts, and the messages of every request."""

    async with ModelServer(Script(turn=list(turns))) as server:
        harness = SessionHarness(folder, "", model="sonnet")
        harness.environment = {**harness.environment, "ANTHROPIC_BASE_URL": server.url}
        results = []
        async with harness:
            for _ in range(prompts):
                harness.prompt("go")
                results.append(await harness.receive("result"))
        return results, [exchange.body["messages"] for exchange in server.exchanges]


async def test_every_block_goes_back_as_it_came(tmp_path: Path) -> None:
    _, (_, sent) = await played(tmp_path, ScriptedTurn(blocks=BLOCKS), DONE, prompts=2)

    assert sent[1] == {"role": "assistant", "content": BLOCKS}
    assert msgspec.json.encode(sent[1]["content"]) == msgspec.json.encode(BLOCKS)


async def test_a_usage_is_reported_with_all_that_it_has(tmp_path: Path) -> None:
    [result], _ = await played(tmp_path, ScriptedTurn(text="Hi.", usage=USAGE))

    assert result["usage"] == USAGE
    [used] = result["modelUsage"].values()
    assert (used["cacheReadInputTokens"], used["cacheCreationInputTokens"], used["webSearchRequests"]) == (11, 7, 1)


@pytest.mark.parametrize(
    "reason", ["end_turn", "max_tokens", "stop_sequence", "refusal", "model_context_window_exceeded", "a_new_one"]
)
async def test_every_way_to_stop_ends_the_turn_and_is_reported(tmp_path: Path, reason: str) -> None:
    results, _ = await played(tmp_path, ScriptedTurn(text="So.", stop_reason=reason), DONE, prompts=2)

    assert [(line["result"], line["stop_reason"], line["is_error"]) for line in results] == [
        ("So.", reason, False),
        ("Done.", "end_turn", False),
    ]


async def test_a_pause_of_the_backend_is_continued_from_with_its_own_message(tmp_path: Path) -> None:
    paused = ScriptedTurn(blocks=[SEARCH], stop_reason="pause_turn")
    [result], (first, second) = await played(tmp_path, paused, ScriptedTurn(blocks=[FOUND, CITED]))

    assert (result["result"], result["stop_reason"], result["num_turns"]) == ("It is so.", "end_turn", 2)
    assert [message["role"] for message in first] == ["user"]
    assert [message["role"] for message in second] == ["user", "assistant"]
    assert second[1]["content"][0]["id"] == "srvtoolu_1"


async def test_a_backend_that_only_pauses_is_given_up(tmp_path: Path) -> None:
    paused = ScriptedTurn(blocks=[SEARCH], stop_reason="pause_turn")
    [result], sent = await played(tmp_path, *[paused] * 30)

    assert (result["subtype"], result["stop_reason"], len(sent)) == ("success", "pause_turn", 21)
