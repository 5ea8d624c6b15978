"""How a turn can end, and what its result says."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.turn.outcome import (
    TurnOutcome,
    aborted,
    api_failed,
    completed,
    error_name,
    error_text,
    failed,
    out_of_turns,
    terminal_reason,
)
from parley.errors import ModelError


def problem(status: int | None = None, message: str = "m", kind: str | None = None, **more: Any) -> ModelError:
    return ModelError(message, status=status, kind=kind, **more)


def test_a_turn_that_completed_has_its_text() -> None:
    assert completed("Done.", "end_turn") == TurnOutcome(
        subtype="success",
        is_error=False,
        terminal_reason="completed",
        text="Done.",
        stop_reason="end_turn",
        api_error_status=None,
    )


def test_a_failed_call_is_a_success_that_is_an_error() -> None:
    assert api_failed(problem(529, kind="overloaded_error"), "API Error: 529 m") == TurnOutcome(
        subtype="success",
        is_error=True,
        terminal_reason="api_error",
        text="API Error: 529 m",
        stop_reason="stop_sequence",
        api_error_status=529,
        api_error_type="overloaded_error",
    )


def test_a_failure_without_a_status_has_a_name_of_ours() -> None:
    assert api_failed(problem(kind="connection_failed"), "t") == TurnOutcome(
        is_error=True,
        terminal_reason="api_error",
        text="t",
        stop_reason="stop_sequence",
        api_error_status=None,
        api_error="connection_failed",
    )


@pytest.mark.parametrize("where", ["streaming", "tools"])
def test_an_interrupted_turn_says_where_it_was(where: str) -> None:
    assert aborted(where, "tool_use") == TurnOutcome(
        subtype="error_during_execution",
        is_error=True,
        terminal_reason=f"aborted_{where}",
        errors=["The turn was interrupted."],
        stop_reason="tool_use",
    )


def test_a_turn_that_ran_out_of_calls_names_the_limit() -> None:
    assert out_of_turns(3, "tool_use") == TurnOutcome(
        subtype="error_max_turns",
        is_error=True,
        terminal_reason="max_turns",
        errors=["Reached maximum number of turns (3)"],
        stop_reason="tool_use",
    )


def test_a_broken_turn_gives_the_reason() -> None:
    expected = TurnOutcome(
        subtype="error_during_execution", is_error=True, errors=["no disk"], fault_type="system_error"
    )
    assert failed("no disk") == expected


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (problem(400), "unknown"),
        (problem(401), "authentication_failed"),
        (problem(402), "billing_error"),
        (problem(403), "authentication_failed"),
        (problem(404), "model_not_found"),
        (problem(413), "invalid_request"),
        (problem(422), "invalid_request"),
        (problem(429), "rate_limit"),
        (problem(418), "unknown"),
        (problem(500), "server_error"),
        (problem(529, kind="overloaded_error"), "server_error"),
        (problem(), "server_error"),
        (problem(kind="timeout_error"), "server_error"),
        (problem(kind="no_key"), "authentication_failed"),
        (problem(kind="authentication_error"), "authentication_failed"),
        (problem(kind="prompt_too_long"), "invalid_request"),
        (problem(400, "Your Credit Balance is too low"), "billing_error"),
        (problem(403, "see your billing page"), "billing_error"),
        (problem(400, "Prompt is too long: 9 > 8"), "invalid_request"),
    ],
)
def test_every_failure_has_a_name_that_clients_know(error: ModelError, name: str) -> None:
    assert error_name(error) == name


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (problem(400, "prompt is too long: 9 > 8"), "prompt_too_long"),
        (problem(kind="prompt_too_long"), "blocking_limit"),
        (problem(400, kind="prompt_too_long"), "prompt_too_long"),
        (problem(500, "prompt is too long"), "api_error"),
        (problem(413), "image_error"),
        (problem(), "api_error"),
        (problem(429), "api_error"),
    ],
)
def test_the_terminal_reason_says_that_a_shorter_prompt_would_help(error: ModelError, reason: str) -> None:
    assert terminal_reason(error) == reason


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (problem(kind="no_key", message="No API key."), "No API key."),
        (problem(kind="prompt_too_long", message="Prompt is too long"), "Prompt is too long"),
        (problem(kind="connection_failed", message="no answer"), "API Error: no answer"),
        (problem(529, "busy"), "API Error: 529 busy"),
        (problem(401, "no"), "API Error: 401 no"),
    ],
)
def test_the_person_reads_what_happened(error: ModelError, text: str) -> None:
    assert error_text(error) == text


@pytest.mark.parametrize("message", ["no", "no."])
def test_the_person_reads_what_helps(message: str) -> None:
    error = problem(401, message)
    error.advice = "Check the key."

    assert error_text(error) == "API Error: 401 no. Check the key."
