"""Options by flag, by variable and in settings."""

from __future__ import annotations

from typing import Any

import pytest

from parley.errors import UsageError
from parley.protocol.options import CliOptions
from parley.settings.env_vars import LIMITS, OptionValues
from parley.settings.keys import KEYS


def given(
    environment: dict[str, str] | None = None, settings: dict[str, Any] | None = None, **options: Any
) -> OptionValues:
    return OptionValues(CliOptions(**options), environment or {}, {"limits": settings}.get)


def test_the_flag_counts_before_the_variable_and_the_variable_before_the_settings() -> None:
    assert given(settings={"maxTurns": 3}, max_turns=2).get("max_turns") == 2
    assert given({"CLAUDE_CODE_MAX_RETRIES": "4"}, {"maxRetries": 5}).get("max_retries") == 4
    assert given({"CLAUDE_CODE_MAX_RETRIES": ""}, {"maxRetries": 5}).get("max_retries") == 5
    assert given().get("max_retries") == 8


def test_zero_is_a_limit() -> None:
    assert given(max_budget_usd=0.0).get("max_budget_usd") == 0
    assert given({"CLAUDE_CODE_MAX_RETRIES": "0"}).get("max_retries") == 0


@pytest.mark.parametrize(
    ("environment", "options", "name", "words"),
    [
        ({}, {"max_turns": 0}, "max_turns", "option '--max-turns' must be a whole number, 1 or more"),
        ({}, {"max_budget_usd": -1.0}, "max_budget_usd", "option '--max-budget-usd' must be a number, 0 or more"),
        ({"API_TIMEOUT_MS": "soon"}, {}, "first_byte_timeout_ms", "API_TIMEOUT_MS must be a whole number, not 'soon'"),
        ({"API_TIMEOUT_MS": "-1"}, {}, "first_byte_timeout_ms", "API_TIMEOUT_MS must be a whole number, 0 or more"),
    ],
)
def test_what_can_be_no_limit_is_refused(
    environment: dict[str, str], options: dict[str, Any], name: str, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        given(environment, **options).get(name)

    assert str(caught.value) == words


def test_deadlines_are_in_seconds_and_what_is_no_time_is_none() -> None:
    environment = {"API_TIMEOUT_MS": "600000", "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "1500"}

    assert given().deadlines() == {}
    assert given(environment, {"connectTimeoutMs": 2000, "contentTimeoutMs": 0}).deadlines() == {
        "connect_seconds": 2.0,
        "first_byte_seconds": 600.0,
        "silence_seconds": 1.5,
        "content_seconds": 1.5,
        "request_seconds": 600.0,
    }


@pytest.mark.parametrize("value", [[], {"maxTurn": 3}, {"maxTurns": "3"}, {"maxTurns": 0}, {"maxTurns": True}])
def test_settings_with_a_limit_that_is_none_are_not_taken(value: Any) -> None:
    assert not KEYS["limits"].kind.accepts(value)


def test_settings_may_have_every_limit() -> None:
    assert KEYS["limits"].kind.accepts(dict.fromkeys(LIMITS, 1))


def resolved(environment: dict[str, str] | None = None, settings: dict[str, Any] | None = None) -> CliOptions:
    return OptionValues(CliOptions(model="m"), environment or {}, (settings or {}).get).resolve()


def test_resolved_options_have_what_variables_and_settings_say() -> None:
    assert resolved() == CliOptions(model="m")
    assert resolved({"MAX_THINKING_TOKENS": "0", "API_TIMEOUT_MS": "7"}, {"fsync": "off"}) == CliOptions(
        model="m", max_thinking_tokens=0, first_byte_timeout_ms=7, request_timeout_ms=7, fsync="off"
    )


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)])
def test_a_variable_can_be_a_switch(text: str, value: bool) -> None:
    assert resolved({"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": text}).disable_background_tasks is value


def test_a_variable_with_choices_is_checked_unless_other_versions_know_more() -> None:
    with pytest.raises(UsageError, match="PARLEY_FSYNC must be always, turn or off, not 'sometimes'"):
        resolved({"PARLEY_FSYNC": "sometimes"})

    assert resolved({"CLAUDE_CODE_EFFORT_LEVEL": "extreme"}).effort == "extreme"
