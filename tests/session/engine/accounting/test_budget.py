"""What may be spent: the pure decision, and every way a budget ends a turn."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.clock import SessionIdentity
from parley.engine.context.models import ModelPool, ModelSelection, SideQuery
from parley.engine.ledger import Ledger, SpendingLimits, Spent, check_budget, find_warnings
from parley.errors import BudgetSpent, ModelError
from parley.models.base import ModelEvent, ModelRequest
from parley.models.catalog import ModelRef, Prices
from parley.models.event_synthesis import event_objects, message_json, synthesize_events
from tests.helpers.http_server import loopback, stream
from tests.helpers.session import Json, SessionHarness

WORK = """
[[turn]]
usage = { input_tokens = 100, output_tokens = 10, cache_read_input_tokens = 1000 }
tools = [{ name = "Bash", input = { command = "true" } }]
"""
DONE = """
[[turn]]
text = "Done."
"""


@pytest.mark.parametrize(
    ("budget", "spent", "words"),
    [
        (SpendingLimits(), Spent(usd=None, tokens=10**9, calls=10**9, seconds=1e9), None),
        (SpendingLimits(usd=0.5), Spent(usd=0.49), None),
        (SpendingLimits(usd=0.5), Spent(usd=0.5), "Reached maximum budget ($0.5)"),
        (SpendingLimits(usd=0), Spent(), "Reached maximum budget ($0)"),
        (SpendingLimits(usd=1), Spent(usd=None), "a model without a known price"),
        (SpendingLimits(tokens=100), Spent(tokens=99), None),
        (SpendingLimits(tokens=100), Spent(tokens=100), "Reached maximum budget (100 tokens)"),
        (SpendingLimits(calls=3), Spent(calls=3), "Reached maximum budget (3 model calls)"),
        (SpendingLimits(seconds=1.5), Spent(seconds=1.5), "Reached maximum budget (1.5 seconds)"),
        (SpendingLimits(usd=1, calls=2), Spent(usd=0.1, calls=2), "2 model calls"),
    ],
)
def test_a_budget_is_spent_when_what_was_spent_reaches_it(
    budget: SpendingLimits, spent: Spent, words: str | None
) -> None:
    if words is None:
        check_budget(budget, spent)
    else:
        with pytest.raises(BudgetSpent) as caught:
            check_budget(budget, spent)
        assert words in str(caught.value)


def test_what_is_nearly_spent_is_said_once() -> None:
    told: set[tuple[str, float]] = set()
    steps = [
        find_warnings(SpendingLimits(tokens=100), Spent(tokens=tokens), told) for tokens in (79, 80, 90, 96, 99, 100)
    ]

    assert steps == [
        [],
        ["80% of the budget (100 tokens) is spent"],
        [],
        ["95% of the budget (100 tokens) is spent"],
        [],
        [],
    ]
    assert find_warnings(SpendingLimits(calls=10), Spent(calls=10), told) == []


async def scenario(folder: Path, script: str, environment: dict[str, str] | None = None, **options: Any) -> list[Json]:
    """The lines of a session with one prompt."""

    harness = SessionHarness(folder, script, permission_mode="bypassPermissions", **options)
    harness.environment |= environment or {}
    async with harness:
        harness.prompt("go")
        await harness.receive("result")
    return harness.lines


def results_of_calls(lines: list[Json]) -> int:
    contents = [line["message"]["content"] for line in lines if line["type"] == "user"]
    return sum(block["type"] == "tool_result" for content in contents for block in content)


@pytest.mark.parametrize(
    ("option", "words", "calls"),
    [
        ({"max_budget_tokens": 1110}, "1110 tokens", 1),
        ({"max_budget_tokens": 1111}, "1111 tokens", 2),
        ({"max_budget_calls": 3}, "3 model calls", 3),
        ({"max_budget_seconds": 0.0}, "0 seconds", 0),
        ({"task_budget": 10}, "task budget (10 tokens)", 1),
    ],
)
async def test_a_spent_budget_ends_the_turn_after_the_results_of_its_calls(
    tmp_path: Path, option: Json, words: str, calls: int
) -> None:
    *_, result = lines = await scenario(tmp_path, WORK * 5 + DONE, **option)

    assert (result["subtype"], result["terminal_reason"]) == ("error_during_execution", "budget_exhausted")
    assert words in result["errors"][0]
    assert (result["num_turns"], results_of_calls(lines)) == (calls, calls)


@pytest.mark.parametrize(
    ("option", "prices", "subtype"),
    [
        ({"max_budget_usd": 0.01}, {"": {"input": 1000, "output": 1000}}, "error_max_budget_usd"),
        ({"max_budget_usd": 100.0}, {"": {"input": 1000, "output": 1000}}, "success"),
        ({"max_budget_calls": 1}, {}, "success"),
        ({"max_budget_tokens": 10}, {}, "success"),
    ],
)
async def test_only_a_dollar_budget_fails_the_turn_whose_last_answer_spends_it(
    tmp_path: Path, option: Json, prices: Json, subtype: str
) -> None:
    place = tmp_path / "prices.json"
    place.write_text(json.dumps(prices))
    answer = '[[turn]]\ntext = "Done."\nusage = { input_tokens = 100, output_tokens = 10 }\n'
    *_, spoken, result = await scenario(tmp_path, answer, {"PARLEY_PRICES": str(place)}, **option)

    assert (result["subtype"], result["num_turns"], result["stop_reason"]) == (subtype, 1, "end_turn")
    assert result.get("result") == ("Done." if subtype == "success" else None)
    assert spoken["message"]["content"] == [{"type": "text", "text": "Done."}]


async def test_a_budget_comes_from_settings_too_and_is_warned_of(tmp_path: Path) -> None:
    settings = json.dumps({"limits": {"maxBudgetTokens": 2400}})
    lines = await scenario(tmp_path, WORK * 5 + DONE, settings=settings)

    assert lines[-1]["num_turns"] == 3
    told = [line["content"] for line in lines if line.get("subtype") == "informational"]
    assert told == ["80% of the budget (2400 tokens) is spent"]


async def test_a_budget_is_looked_at_before_a_retry_too(tmp_path: Path) -> None:
    broken = WORK.replace("[[turn]]", '[[turn]]\nfault = "reset=2"')
    *_, result = await scenario(tmp_path, broken * 3, max_budget_calls=1)

    assert (result["terminal_reason"], result["num_turns"]) == ("budget_exhausted", 1)


class Costly:
    """A model each of whose answers costs 100 tokens; it counts how many are asked for at once."""

    def __init__(self) -> None:
        self.calls = self.open = self.most_open = 0

    async def stream(self, request: ModelRequest) -> Any:
        self.calls += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            for event in self.events(request):
                await asyncio.sleep(0)
                yield event
        finally:
            self.open -= 1

    def events(self, request: ModelRequest) -> list[ModelEvent]:
        usage = {"input_tokens": 60, "output_tokens": 40}
        text = {"type": "text", "text": "Yes."}
        return list(synthesize_events(message_json([text], id=f"msg_{self.calls}", model=request.model, usage=usage)))

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("budget", "calls", "at_once"), [(SpendingLimits(tokens=250), 3, 1), (SpendingLimits(), 6, 6)])
async def test_errands_side_by_side_overshoot_a_budget_by_one_call_at_most(
    budget: SpendingLimits, calls: int, at_once: int
) -> None:
    model, choice = Costly(), ModelRef("scripted", "x")

    models, ledger = ModelPool(lambda chosen: model), Ledger(Prices(), budget)
    errand = SideQuery(models, ModelSelection(choice), choice, ledger, SessionIdentity("s"))
    found = await asyncio.gather(*[errand.ask_small("Well?") for _ in range(6)], return_exceptions=True)
    assert (model.calls, model.most_open) == (calls, at_once)
    assert [str(problem) for problem in found if isinstance(problem, ModelError)] == [
        "Reached maximum budget (250 tokens)"
    ] * (6 - calls)


@pytest.mark.parametrize(("model", "told"), [("claude-opus-5-5", True), ("claude-sonnet-4-5", False)])
async def test_a_task_budget_is_reported_to_a_model_that_understands_it(tmp_path: Path, model: str, told: bool) -> None:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = message_json([{"type": "text", "text": "Hi."}], id="msg_1", model=model, usage=usage)
    sse = [f"data: {json.dumps(event)}\n\n".encode() for event in event_objects(message, 40)]

    async with loopback(stream(*sse)) as server:
        harness = SessionHarness(tmp_path, "", model=model, task_budget=64_000)
        harness.environment["ANTHROPIC_BASE_URL"] = server.url
        async with harness:
            harness.prompt("go")
            await harness.receive("result")
        [request] = server.heard
        body, betas = json.loads(request.body), request.headers.get("anthropic-beta", "")

    budget = body.get("output_config", {}).get("task_budget")
    assert (budget, "task-budgets" in betas) == (({"type": "tokens", "total": 64_000}, True) if told else (None, False))
