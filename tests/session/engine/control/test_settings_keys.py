"""Keys of settings files have their effect on what the model gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parley.models.script import Script, ScriptedError, ScriptedTurn
from parley.testing.model_server import running
from tests.helpers.session import SessionHarness

YES = ScriptedTurn(text="Yes.")


async def requests(folder: Path, *turns: ScriptedTurn, **settings: Any) -> list[Any]:
    """The requests of one turn with these settings."""
    with running(Script(turn=list(turns), at_end="repeat")) as server:
        given = json.dumps({"model": "claude-opus-5", **settings})
        harness = SessionHarness(folder, "", model=None, settings=given)
        harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "a-key-for-tests"}
        async with harness:
            harness.prompt("Hi")
            result = await harness.receive("result")
    assert result["result"] == "Yes."
    return [exchange.body for exchange in server.exchanges]


async def test_the_settings_name_the_model_and_the_effort(tmp_path: Path) -> None:
    (request,) = await requests(tmp_path, YES, effortLevel="low")

    assert (request["model"], request["output_config"]) == ("claude-opus-5", {"effort": "low"})


async def test_the_settings_name_a_fallback_model(tmp_path: Path) -> None:
    busy = ScriptedTurn(error=ScriptedError(status=529, message="Overloaded"))
    sent = await requests(tmp_path, busy, busy, busy, YES, fallbackModel="claude-sonnet-5")

    assert [request["model"] for request in sent][-1] == "claude-sonnet-5"


async def test_the_settings_set_the_window_at_which_a_conversation_is_compacted(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, "", settings='{"autoCompactWindow": 50000}') as harness:
        usage = (await harness.request("get_context_usage"))["response"]["response"]

    assert usage["maxTokens"] == 50_000
