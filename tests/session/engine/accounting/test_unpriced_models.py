"""A dollar budget and models without a known price: refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.errors import UsageError
from tests.helpers.http_server import loopback, stream
from tests.helpers.session import Json, SessionHarness

DONE = '[[turn]]\ntext = "Done."\n'
DELEGATE = """
[[turn]]
tools = [{ name = "Agent", input = { description = "d", prompt = "p", subagent_type = "odd" } }]
"""
ADVICE = (
    "set its price (`models` in the settings, or a file in PARLEY_PRICES), or limit tokens with --max-budget-tokens"
)
REFUSAL = f"the model openai:x has no known price, so a budget of $1 cannot be enforced: {ADVICE}"
CHUNKS = (
    {"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 1}},
)
ANSWER = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in CHUNKS) + b"data: [DONE]\n\n"


def priced(folder: Path, script: str = DONE, **options: Any) -> SessionHarness:
    """A session with a dollar budget, and a server for models without a price that cannot be reached."""
    harness = SessionHarness(folder, script, max_budget_usd=1.0, **options)
    harness.environment["OPENAI_BASE_URL"] = "http://127.0.0.1:9/v1"
    return harness


@pytest.mark.parametrize("options", [{"model": "openai:x"}, {"fallback_model": "openai:x"}])
def test_a_session_does_not_start(tmp_path: Path, options: Json) -> None:
    with pytest.raises(UsageError) as raised:
        priced(tmp_path, **options).composed()

    assert str(raised.value) == REFUSAL
    assert not (tmp_path / "home" / ".claude" / "projects").exists()


def test_a_budget_in_settings_is_the_same(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path, DONE, model="openai:x", settings='{"limits": {"maxBudgetUsd": 1}}')

    with pytest.raises(UsageError, match="has no known price"):
        harness.composed()


@pytest.mark.parametrize(
    ("prices", "settings"),
    [({"openai:": {"input": 1, "output": 1}}, {}), ({}, {"openai:x": {"price": {"input": 1, "output": 1}}})],
)
def test_a_price_of_the_user_is_enough(tmp_path: Path, prices: Json, settings: Json) -> None:
    (tmp_path / "prices.json").write_text(json.dumps(prices))
    harness = priced(tmp_path, model="openai:x", settings=json.dumps({"models": settings}))
    harness.environment["PARLEY_PRICES"] = str(tmp_path / "prices.json")

    harness.composed().storage.log.close()


async def test_a_client_cannot_switch_to_such_a_model(tmp_path: Path) -> None:
    async with priced(tmp_path) as harness:
        answer = await harness.request("set_model", model="openai:x")
        changed = await harness.request("apply_flag_settings", settings={"model": "openai:x"})
        harness.prompt("/model openai:x")
        command = await harness.receive("result")
        harness.prompt("go")
        result = await harness.receive("result")

    assert [line["response"]["error"] for line in (answer, changed)] == [REFUSAL, REFUSAL]
    assert command["result"] == REFUSAL
    assert (result["subtype"], result["result"]) == ("success", "Done.")


async def test_a_subagent_with_such_a_model_does_not_start(tmp_path: Path) -> None:
    agents = json.dumps({"odd": {"description": "d", "prompt": "p", "model": "openai:x"}})
    async with priced(tmp_path, DELEGATE + DONE, permission_mode="bypassPermissions", agents=agents) as harness:
        harness.prompt("go")
        result = await harness.receive("result")

    contents = [block for line in harness.messages("user") for block in line["message"]["content"]]
    [refused] = [block for block in contents if block["type"] == "tool_result"]
    assert (refused["content"], refused["is_error"]) == (f"The agent cannot start: {REFUSAL}", True)
    assert (result["subtype"], result["total_cost_usd"]) == ("success", 0)


async def unpriced_session(folder: Path, entrypoint: str = "") -> str:
    """The id of a session that has used a model without a price."""
    async with loopback(stream(ANSWER)) as server:
        harness = SessionHarness(folder, DONE, model="openai:x")
        harness.environment |= {"OPENAI_BASE_URL": f"{server.url}/v1", "CLAUDE_CODE_ENTRYPOINT": entrypoint}
        async with harness:
            harness.prompt("go")
            result = await harness.receive("result")
    # The TypeScript SDK declares a number.
    cost = 0 if entrypoint == "sdk-ts" else None
    warnings = [text for text in harness.warnings if "costs are reported as 0" in text]
    assert (result["result"], result["total_cost_usd"]) == ("Hi.", cost)
    assert (result["modelUsage"]["openai:x"]["costUSD"], len(warnings)) == (cost, cost == 0)
    return str(result["session_id"])


@pytest.mark.parametrize("entrypoint", ["sdk-cli", "sdk-ts"])
async def test_a_resumed_session_that_has_used_one_makes_no_call(tmp_path: Path, entrypoint: str) -> None:
    session = await unpriced_session(tmp_path, entrypoint)
    async with priced(tmp_path, resume=session) as harness:
        harness.prompt("go")
        result = await harness.receive("result")

    assert (result["subtype"], result["num_turns"]) == ("error_max_budget_usd", 0)
    assert result["errors"] == [
        f"The dollar budget cannot be enforced: this session has used a model without a known price. S{ADVICE[1:]}"
    ]


async def test_a_price_that_is_known_later_counts_for_what_was_used_before(tmp_path: Path) -> None:
    session = await unpriced_session(tmp_path)
    price = {"models": {"openai:": {"price": {"input": 10_000, "output": 0}}}}
    async with priced(tmp_path, resume=session, settings=json.dumps(price)) as harness:
        harness.prompt("go")
        result = await harness.receive("result")

    assert (result["result"], result["total_cost_usd"]) == ("Done.", pytest.approx(0.1))
