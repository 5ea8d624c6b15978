"""How a turn can end, and what its `result` says. Pure."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from parley.engine.clock import Clock
from parley.engine.ledger import blank_usage
from parley.errors import BudgetSpent, ModelError
from parley.protocol.base import UNSET, Json, Message, Struct, UnsetType
from parley.protocol.messages.result import Result


class StopCause(enum.Enum):
    """Why a turn is stopped, as the results of its unfinished calls say it."""

    INTERRUPT = "The user interrupted"
    GIVE_WAY = "A newer message from the user arrived"


class TurnOutcome(Struct, frozen=True, kw_only=True):
    """The part of a result that depends on how the turn ended."""

    subtype: str = "success"
    is_error: bool = False
    terminal_reason: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    """The final text; only results of subtype `success` have one."""
    errors: list[str] | UnsetType = UNSET
    stop_reason: str | None = None
    api_error_status: int | None | UnsetType = UNSET
    api_error_type: str | UnsetType = UNSET
    api_error: str | UnsetType = UNSET
    fault_type: str | UnsetType = UNSET
    """What kept the turn from running: the request, a tool, or the engine."""
    local_command: str | UnsetType = UNSET
    """The slash command that was the whole turn."""
    structured_output: Any = UNSET
    structured_output_report: Json | UnsetType = UNSET
    deferred_tool_use: Json | UnsetType = UNSET
    """The call that waits for the session to be resumed."""

    @property
    def is_aborted(self) -> bool:
        """Whether the turn was stopped."""
        return isinstance(self.terminal_reason, str) and self.terminal_reason.startswith("aborted_")


def completed(text: str, stop_reason: str | None) -> TurnOutcome:
    return TurnOutcome(terminal_reason="completed", text=text, stop_reason=stop_reason, api_error_status=None)


def structured(text: str, output: Any, report: Json, stop_reason: str | None) -> TurnOutcome:
    """The answer matches the output schema."""
    return TurnOutcome(
        terminal_reason="completed",
        text=text,
        stop_reason=stop_reason,
        api_error_status=None,
        structured_output=output,
        structured_output_report=report,
    )


def not_structured(report: Json, stop_reason: str | None) -> TurnOutcome:
    """No answer matched the output schema."""
    tries = f"{report['attempts']} attempt{'' if report['attempts'] == 1 else 's'}"
    return TurnOutcome(
        subtype="error_max_structured_output_retries",
        is_error=True,
        terminal_reason="structured_output_retry_exhausted",
        errors=[f"No valid structured output after {tries}", *report["errors"]],
        stop_reason=stop_reason,
        structured_output_report=report,
    )


def stopped_by_hook(outcome: TurnOutcome, *, at_end: bool = False) -> TurnOutcome:
    """The same outcome, caused by a hook. `at_end`: a Stop hook, after the model had finished."""
    return msgspec.structs.replace(outcome, terminal_reason="stop_hook_prevented" if at_end else "hook_stopped")


def deferred(call: Json) -> TurnOutcome:
    """A hook deferred a call. The session continues with it when it is resumed."""
    return TurnOutcome(
        terminal_reason="tool_deferred",
        stop_reason="tool_deferred",
        text="",
        api_error_status=None,
        deferred_tool_use={"id": call["id"], "name": call["name"], "input": call["input"]},
    )


def deferred_unavailable(tool: str) -> TurnOutcome:
    """The session was resumed, and the tool of its deferred call is gone."""
    text = f"The deferred call cannot continue: the tool {tool} is not available."
    return TurnOutcome(
        is_error=True,
        terminal_reason="tool_deferred_unavailable",
        stop_reason="tool_deferred_unavailable",
        text=text,
        api_error_status=None,
    )


def blocked(text: str) -> TurnOutcome:
    """A hook refused the prompt."""
    return TurnOutcome(text=text)


def api_failed(error: ModelError, text: str) -> TurnOutcome:
    """The model call failed. Clients recognize it by `is_error` with subtype success, and show `result`."""
    return TurnOutcome(
        is_error=True,
        terminal_reason=terminal_reason(error),
        text=text,
        stop_reason="stop_sequence",
        api_error_status=error.status,
        api_error_type=error.kind if error.status is not None and error.kind else UNSET,
        api_error=error.kind if error.status is None and error.kind else UNSET,
    )


def aborted(where: str, stop_reason: str | None) -> TurnOutcome:
    """The client interrupted; `where` is `streaming` or `tools`."""
    return TurnOutcome(
        subtype="error_during_execution",
        is_error=True,
        terminal_reason=f"aborted_{where}",
        errors=["The turn was interrupted."],
        stop_reason=stop_reason,
    )


def yielded(where: str, stop_reason: str | None) -> TurnOutcome:
    """A prompt of the priority `now` ended the turn. This is not an error."""
    return TurnOutcome(terminal_reason=f"aborted_{where}", text="", stop_reason=stop_reason, api_error_status=None)


def denied(tools: list[str], stop_reason: str | None) -> TurnOutcome:
    """A call was denied, and the limits make that an error."""
    return TurnOutcome(
        subtype="error_during_execution",
        is_error=True,
        terminal_reason="permission_denied",
        errors=[f"Permission was denied: {', '.join(tools)}"],
        stop_reason=stop_reason,
    )


def out_of_budget(error: BudgetSpent, stop_reason: str | None) -> TurnOutcome:
    # Clients know one name for every spent budget, and it says USD.
    subtype = "error_max_budget_usd" if error.kind == "usd" else "error_during_execution"
    return TurnOutcome(
        subtype=subtype,
        is_error=True,
        terminal_reason="budget_exhausted",
        errors=[str(error)],
        stop_reason=stop_reason,
    )


def local_command(command: str, text: str = "") -> TurnOutcome:
    """The prompt was a command, and no model was called."""
    return TurnOutcome(text=text, local_command=command)


def out_of_turns(limit: int, stop_reason: str | None) -> TurnOutcome:
    return TurnOutcome(
        subtype="error_max_turns",
        is_error=True,
        terminal_reason="max_turns",
        errors=[f"Reached maximum number of turns ({limit})"],
        stop_reason=stop_reason,
    )


def failed(reason: str, fault_type: str = "system_error", terminal_reason: str | UnsetType = UNSET) -> TurnOutcome:
    """The turn could not run, or there is a bug in the engine."""
    return TurnOutcome(
        subtype="error_during_execution",
        is_error=True,
        errors=[reason],
        fault_type=fault_type,
        terminal_reason=terminal_reason,
    )


def malformed(count: int, stop_reason: str | None) -> TurnOutcome:
    """The model kept calling tools with arguments that are not JSON."""
    return TurnOutcome(
        subtype="error_during_execution",
        is_error=True,
        terminal_reason="malformed_tool_use_exhausted",
        errors=[f"The model called tools {count} times in a row with input that is not a JSON object"],
        stop_reason=stop_reason,
    )


def no_answer(problem: str, stop_reason: str | None) -> TurnOutcome:
    """The model ended its turn without an answer, and did so again when it was asked for one."""
    return TurnOutcome(
        subtype="error_during_execution",
        is_error=True,
        terminal_reason="no_answer",
        errors=[problem],
        stop_reason=stop_reason,
    )


def repeated(tool: str, count: int, stop_reason: str | None) -> TurnOutcome:
    """The model repeats itself."""
    return TurnOutcome(
        subtype="error_during_execution",
        is_error=True,
        terminal_reason="repeated_tool_use",
        errors=[
            f"The model called {tool} {count} times in a row with the same input and got the same result each time"
        ],
        stop_reason=stop_reason,
    )


# The values of `assistant.error`, by status. Without a status, the error type of the API decides.
NAMES = {
    401: "authentication_failed",
    403: "authentication_failed",
    402: "billing_error",
    404: "model_not_found",
    413: "invalid_request",
    422: "invalid_request",
    429: "rate_limit",
}


def error_name(error: ModelError) -> str:
    """The value of `assistant.error` and `api_retry.error` for a failure."""
    text = error.message.lower()
    if "credit balance" in text or "billing" in text:
        return "billing_error"
    if is_too_long(error):
        return "invalid_request"
    if error.kind in ("authentication_error", "no_key"):
        return "authentication_failed"
    if error.status is None:
        return "server_error"
    # A 529 is `overloaded` only in retries; clients expect `server_error` here.
    return NAMES.get(error.status, "server_error" if error.status >= 500 else "unknown")


TOO_LONG = (
    *("prompt is too long", "input is too long", "input length", "context limit", "context length", "context size"),
    *("context window", "context_length_exceeded", "maximum number of tokens"),
)
"""Phrases by which backends and proxies report a conversation that is too long."""


def is_too_long(error: ModelError) -> bool:
    text = error.message.lower()
    return error.kind == "prompt_too_long" or (error.status == 400 and any(words in text for words in TOO_LONG))


def is_too_large(error: ModelError) -> bool:
    """Whether a shorter request may succeed. Images have few tokens, but can exceed the size limit of a backend."""
    return is_too_long(error) or error.status == 413


def terminal_reason(error: ModelError) -> str:
    if is_too_long(error):
        # Without a status no backend was asked: the prompt exceeds the window by itself.
        return "blocking_limit" if error.status is None else "prompt_too_long"
    return "image_error" if error.status == 413 else "api_error"


PLAIN = ("no_key", "prompt_too_long", "compaction_failed")
"""Kinds with messages of our own, which need no prefix."""


def error_text(error: ModelError) -> str:
    """The text for the user."""
    if error.status is None:
        return str(error) if error.kind in PLAIN else f"API Error: {error}"
    return f"API Error: {error.status} {error}"


def no_session_result(
    reason: str, session_id: str, clock: Clock, prompt_ids: list[str] | UnsetType = UNSET, **how: Any
) -> Message:
    """The zeroed result by which clients know that a session cannot be opened."""
    return Result(
        subtype="error_during_execution",
        is_error=True,
        duration_ms=0,
        duration_api_ms=0,
        num_turns=0,
        stop_reason=None,
        session_id=session_id,
        total_cost_usd=0,
        usage=blank_usage(),
        modelUsage={},
        permission_denials=[],
        errors=[reason],
        uuid=clock.new_uuid(),
        result_index=0,
        result=UNSET,
        user_message_uuids=prompt_ids,
        **how,
    )
