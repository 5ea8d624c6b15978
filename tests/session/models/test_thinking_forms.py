"""Every model with every wish about thinking, against a server that rejects what the Messages API rejects.

The rules of the server are those of the pages "Adaptive thinking", "Effort" and "What's new" of platform.claude.com.
They are written down here a second time, because our own table is what is tested.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.errors import ModelError
from parley.models.base import ModelRequest
from parley.models.script import read_script
from parley.protocol.base import Json, Struct
from parley.testing.model_server import ModelServer, ScriptSource, SourceAnswer
from tests.helpers.models import counting
from tests.helpers.session import SessionHarness

UP_TO_HIGH = ("low", "medium", "high")
ALL = (*UP_TO_HIGH, "xhigh", "max")
INTERLEAVED = "interleaved-thinking-2025-05-14"
LONG_CONTEXT = "context-1m-2025-08-07"
OTHER_FORM = 'Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
ANSWER = "[[turn]]\ntext = 'Yes.'\nusage = { input_tokens = 10, output_tokens = 5 }\n"


Check = Callable[[Json, dict[str, str]], ModelError | None]
"""The error that a server answers with, by the body and the headers of a request."""


class Rules(Struct, frozen=True):
    """What the API takes for a model."""

    types: tuple[str, ...]
    """The values of `thinking.type`."""
    efforts: tuple[str, ...] = ALL
    off_up_to_high: bool = False
    """Whether thinking can be off only at an effort of `high` or less."""
    forces_tools: bool = False
    takes_sampling: bool = False


BUDGETS = Rules(("enabled", "disabled"), (), forces_tools=True, takes_sampling=True)
ALWAYS = Rules(("adaptive",))
MODELS = {
    "claude-3-7-sonnet-20250219": BUDGETS,
    "claude-sonnet-4-20250514": BUDGETS,
    "claude-opus-4-1": BUDGETS,
    "claude-opus-4-5": Rules(BUDGETS.types, UP_TO_HIGH, forces_tools=True, takes_sampling=True),
    "claude-sonnet-4-5": BUDGETS,
    "claude-haiku-4-5": BUDGETS,
    "claude-opus-4-6": Rules(("adaptive", "enabled", "disabled"), (*UP_TO_HIGH, "max"), takes_sampling=True),
    "claude-sonnet-4-6": Rules(("adaptive", "enabled", "disabled"), (*UP_TO_HIGH, "max"), takes_sampling=True),
    "claude-opus-4-7": Rules(("adaptive", "disabled")),
    "claude-opus-4-8": Rules(("adaptive", "disabled")),
    "claude-sonnet-5": Rules(("adaptive", "disabled"), forces_tools=True),
    "claude-opus-5": Rules(("adaptive", "disabled"), off_up_to_high=True),
    "claude-haiku-5-5": Rules(("adaptive", "disabled"), off_up_to_high=True),
    "claude-sonnet-5-5": Rules(("adaptive", "between_tools"), off_up_to_high=True),
    "claude-opus-5-5": ALWAYS,
    "claude-fable-5": ALWAYS,
    "claude-fable-5-1": ALWAYS,
    "claude-fable-5-2": ALWAYS,
    "claude-mythos-5": ALWAYS,
    "claude-mythos-5-1": ALWAYS,
}
WISHES: dict[str, Json] = {
    "nothing": {},
    "a budget": {"thinking": "enabled", "max_thinking_tokens": 5_000},
    "adaptive": {"thinking": "adaptive"},
    "disabled": {"thinking": "disabled"},
    "disabled at max": {"thinking": "disabled", "effort": "max"},
    **{f"effort {effort}": {"effort": effort} for effort in ALL},
    **{f"{tokens} tokens": {"max_thinking_tokens": tokens} for tokens in (0, 1, 8_000, 1_000_000)},
    "no tokens at xhigh": {"max_thinking_tokens": 0, "effort": "xhigh"},
    "few tokens at max": {"max_thinking_tokens": 1, "effort": "max"},
    "shown": {"thinking_display": "summarized", "max_thinking_tokens": 2_000},
}


def find_fault(rules: Rules, body: Json, headers: dict[str, str]) -> str | None:
    """Why the API rejects a request; None if it does not."""
    thinking, effort = body.get("thinking") or {}, (body.get("output_config") or {}).get("effort")
    kind = thinking.get("type")
    if kind is not None and kind not in rules.types:
        return f'"thinking.type.{kind}" is not supported for this model. {OTHER_FORM}'
    if kind == "enabled" and not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
        return "`max_tokens` must be greater than `thinking.budget_tokens`"
    if effort is not None and effort not in rules.efforts:
        return "This model does not support the effort parameter." if not rules.efforts else f"effort: {effort}"
    if rules.off_up_to_high and kind in ("disabled", "between_tools") and effort in ("xhigh", "max"):
        return f"thinking {kind} requires an effort of high or less"
    if not rules.forces_tools and (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        return "tool_choice: forced tool use is not supported for this model"
    new_version = headers["anthropic-version"] >= "2026-10-21"
    if (new_version or not rules.takes_sampling) and {"temperature", "top_p", "top_k"} & body.keys():
        return "`temperature` is not supported for this model."
    return None


def rejecting(rules: Rules) -> Check:
    def check(body: Json, headers: dict[str, str]) -> ModelError | None:
        fault = find_fault(rules, body, headers)
        return None if fault is None else ModelError(fault, status=400, kind="invalid_request_error")

    return check


class StrictSource(ScriptSource):
    """Plays a script to requests that the API would accept."""

    def __init__(self, check: Check) -> None:
        super().__init__(read_script(ANSWER * 20, "here"), counting("id_"))
        self._check = check
        self.server: ModelServer | None = None

    def answer(self, request: ModelRequest) -> SourceAnswer:
        assert self.server is not None
        exchange = self.server.exchanges[-1]
        if (error := self._check(exchange.body, exchange.headers)) is not None:
            raise error
        return super().answer(request)


@asynccontextmanager
async def strict_server(check: Check) -> AsyncIterator[ModelServer]:
    source = StrictSource(check)
    async with ModelServer(source) as server:
        source.server = server
        yield server


async def talk(server: ModelServer, folder: Path, turns: int = 1, **options: Any) -> SessionHarness:
    folder.mkdir(exist_ok=True)
    environment = options.pop("environment", {})
    harness = SessionHarness(folder, "", **options)
    harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k", **environment}
    async with harness:
        for _ in range(turns):
            harness.prompt("Hello")
            await harness.receive("result")
    return harness


@pytest.mark.parametrize("suffix", ["", "[1m]"])
@pytest.mark.parametrize("model", MODELS)
async def test_every_wish_is_one_request_with_a_known_cost(tmp_path: Path, model: str, suffix: str) -> None:
    async with strict_server(rejecting(MODELS[model])) as server:
        for number, wish in enumerate(WISHES.values()):
            harness = await talk(server, tmp_path / str(number), model=f"{model}{suffix}", **wish)
            [result] = harness.messages("result")

            assert (result["subtype"], result["result"]) == ("success", "Yes.")
            assert result["total_cost_usd"] > 0
            assert all(used["costUSD"] > 0 for used in result["modelUsage"].values())
            assert len(server.exchanges) == number + 1
        sent = dict(zip(WISHES, [exchange.body for exchange in server.exchanges], strict=True))
        betas = [exchange.headers.get("anthropic-beta", "") for exchange in server.exchanges]

    on = ("nothing", "a budget", "adaptive", "8000 tokens", "1000000 tokens", *(f"effort {effort}" for effort in ALL))
    off = ("disabled", "0 tokens", "no tokens at xhigh")
    assert all(sent[wish]["thinking"]["type"] in ("adaptive", "enabled") for wish in on)
    assert all(sent[wish].get("thinking", {}).get("type") not in ("adaptive", "enabled") for wish in off)
    assert {body["model"] for body in sent.values()} == {model}
    if "enabled" not in MODELS[model].types:
        efforts = [sent[wish]["output_config"]["effort"] for wish in ("1 tokens", "8000 tokens", "few tokens at max")]
        assert efforts == ["low", "medium", "max"]
    is_four = model.startswith(("claude-sonnet-4-5", "claude-opus-4-5", "claude-haiku-4-5"))
    assert (INTERLEAVED in betas[0], LONG_CONTEXT in betas[0]) == (
        is_four or model in ("claude-sonnet-4-20250514", "claude-opus-4-1"),
        bool(suffix) and "adaptive" not in MODELS[model].types,
    )


@pytest.mark.parametrize(
    ("model", "types", "sent"),
    [
        ("claude-opus-9", ("enabled", "disabled"), ["adaptive", "enabled", "enabled"]),
        ("claude-opus-4-5", ("adaptive",), ["enabled", "adaptive", "adaptive"]),
    ],
)
async def test_the_other_form_is_tried_once_and_remembered(
    tmp_path: Path, model: str, types: tuple[str, ...], sent: list[str]
) -> None:
    rules = Rules(types)
    async with strict_server(rejecting(rules)) as server:
        harness = await talk(server, tmp_path, turns=2, model=model)

        assert [exchange.body["thinking"]["type"] for exchange in server.exchanges] == sent
    assert [message["result"] for message in harness.messages("result")] == ["Yes.", "Yes."]
    reason = f'"thinking.type.{sent[0]}" is not supported for this model. {OTHER_FORM}'
    told = f"warning: the server of {model} rejected thinking {sent[0]!r} ({reason}); it gets thinking {sent[1]!r}"
    assert [line for line in harness.warnings if "thinking" in line] == [told]


async def test_a_model_that_takes_no_effort_keeps_its_thinking(tmp_path: Path) -> None:
    rules = Rules(("adaptive",), ())
    async with strict_server(rejecting(rules)) as server:
        await talk(server, tmp_path, turns=2, model="claude-opus-9", effort="low")

        bodies = [exchange.body for exchange in server.exchanges]
    assert [body["thinking"] for body in bodies] == [{"type": "adaptive"}] * 3
    assert ["output_config" in body for body in bodies] == [True, False, False]


async def test_a_model_that_always_thinks_says_so_once(tmp_path: Path) -> None:
    async with strict_server(rejecting(ALWAYS)) as server:
        harness = await talk(server, tmp_path, turns=2, model="opus", max_thinking_tokens=0)

    told = [line for line in harness.warnings if "always thinks" in line]
    assert told == ["warning: claude-opus-5-5 always thinks; a lower effort makes it think less"]


@pytest.mark.parametrize(
    ("model", "headers", "kept"),
    [
        ("opus", "", False),
        ("claude-sonnet-4-5", "", True),
        ("claude-sonnet-4-5", "anthropic-version: 2026-10-21", False),
    ],
)
async def test_sampling_parameters_are_sent_only_where_they_are_taken(
    tmp_path: Path, model: str, headers: str, kept: bool
) -> None:
    rules = ALWAYS if model == "opus" else BUDGETS
    extra = {"CLAUDE_CODE_EXTRA_BODY": '{"temperature": 1}', "ANTHROPIC_CUSTOM_HEADERS": headers}
    async with strict_server(rejecting(rules)) as server:
        harness = await talk(server, tmp_path, model=model, environment=extra)

        assert ["temperature" in exchange.body for exchange in server.exchanges] == [kept]
    assert [line for line in harness.warnings if "temperature" in line] == (
        [] if kept else [f"warning: 'temperature' is not sent: {server.exchanges[0].body['model']} does not take it"]
    )


async def test_structured_output_forces_no_tool(tmp_path: Path) -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}}'
    async with strict_server(rejecting(ALWAYS)) as server:
        await talk(server, tmp_path, model="fable", json_schema=schema, max_turns=1)

        assert all("tool_choice" not in exchange.body for exchange in server.exchanges)


async def test_opusplan_calls_opus_in_plan_mode_and_sonnet_otherwise(tmp_path: Path) -> None:
    async with strict_server(lambda body, headers: None) as server:
        harness = SessionHarness(tmp_path, "", model="opusplan", permission_mode="plan")
        harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k"}
        async with harness:
            for mode in ("plan", "default", "plan"):
                await harness.request(subtype="set_permission_mode", mode=mode)
                harness.prompt("Hello")
                await harness.receive("result")

        assert [exchange.body["model"] for exchange in server.exchanges] == [
            "claude-opus-5-5",
            "claude-sonnet-5-5",
            "claude-opus-5-5",
        ]
    assert all(result["total_cost_usd"] > 0 for result in harness.messages("result"))


async def test_best_falls_back_to_opus_where_an_account_does_not_have_it(tmp_path: Path) -> None:
    def check(body: Json, headers: dict[str, str]) -> ModelError | None:
        return ModelError("model", status=404, kind="not_found_error") if "fable" in body["model"] else None

    async with strict_server(check) as server:
        harness = await talk(server, tmp_path, model="best")

        assert [exchange.body["model"] for exchange in server.exchanges] == ["claude-fable-5-2", "claude-opus-5-5"]
    assert [message["result"] for message in harness.messages("result")] == ["Yes."]


async def test_a_fallback_to_opusplan_lasts_for_one_turn(tmp_path: Path) -> None:
    def check(body: Json, headers: dict[str, str]) -> ModelError | None:
        return ModelError("model", status=404, kind="not_found_error") if body["model"] == "gone" else None

    async with strict_server(check) as server:
        await talk(server, tmp_path, turns=2, model="gone", fallback_model="opusplan")

        assert [exchange.body["model"] for exchange in server.exchanges] == ["gone", "claude-sonnet-5-5"] * 2


async def test_the_user_can_say_how_a_model_thinks(tmp_path: Path) -> None:
    settings = tmp_path / "own.json"
    entry = '{"thinking": "adaptive", "efforts": ["low", "high"], "price": {"input": 1, "output": 1}}'
    settings.write_text(f'{{"models": {{"house-": {entry}}}}}')
    async with strict_server(rejecting(Rules(("adaptive",), ("low", "high")))) as server:
        harness = await talk(server, tmp_path, model="house-3", effort="max", settings=str(settings))

        [exchange] = server.exchanges
    assert (exchange.body["thinking"], exchange.body["output_config"]) == ({"type": "adaptive"}, {"effort": "high"})
    assert [result["total_cost_usd"] for result in harness.messages("result")] == [pytest.approx(15e-6)]
