"""How a turn can end, and what its `result` then says. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from parley.errors import BudgetSpent, ModelError
from parley.protocol.base import UNSET, Json, Struct, UnsetType


class Outcome(Struct, frozen=True, kw_only=True):
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
    """Whose fault it is that the turn could not be run: the asker's, a tool's, or the engine's."""
    local_command: str | UnsetType = UNSET
    """The command of the person that was the whole turn."""
    structured_output: Any = UNSET
    structured_output_report: Json | UnsetType = UNSET

    @property
    def is_aborted(self) -> bool:
        """Whether the turn was ended before its time."""
        return isinstance(self.terminal_reason, str) and self.terminal_reason.startswith("aborted_")


def completed(text: str, stop_reason: str | None) -> Outcome:
    return Outcome(terminal_reason="completed", text=text, stop_reason=stop_reason, api_error_status=None)


def formed(text: str, output: Any, report: Json, stop_reason: str | None) -> Outcome:
    """The answer has the form that was asked for."""
    return Outcome(
        terminal_reason="completed",
        text=text,
        stop_reason=stop_reason,
        api_error_status=None,
        structured_output=output,
        structured_output_report=report,
    )


def not_formed(report: Json, stop_reason: str | None) -> Outcome:
    """The answer never had the form that was asked for."""
    tries = f"{report['attempts']} attempt{'' if report['attempts'] == 1 else 's'}"
    return Outcome(
        subtype="error_max_structured_output_retries",
        is_error=True,
        terminal_reason="structured_output_retry_exhausted",
        errors=[f"No valid structured output after {tries}", *report["errors"]],
        stop_reason=stop_reason,
        structured_output_report=report,
    )


def stopped(ended: Outcome) -> Outcome:
    """The same end, because a hook wants it."""
    return msgspec.structs.replace(ended, terminal_reason="hook_stopped")


def blocked(text: str) -> Outcome:
    """A hook did not let the prompt in."""
    return Outcome(text=text)


def api_failed(flaw: ModelError, text: str) -> Outcome:
    """Clients know this by `is_error` with subtype success, and show `result`."""
    return Outcome(
        is_error=True,
        terminal_reason=terminal_reason(flaw),
        text=text,
        stop_reason="stop_sequence",
        api_error_status=flaw.status,
        api_error_type=flaw.kind if flaw.status is not None and flaw.kind else UNSET,
        api_error=flaw.kind if flaw.status is None and flaw.kind else UNSET,
    )


def aborted(where: str, stop_reason: str | None) -> Outcome:
    """The host interrupted; `where` is `streaming` or `tools`."""
    return Outcome(
        subtype="error_during_execution",
        is_error=True,
        terminal_reason=f"aborted_{where}",
        errors=["The turn was interrupted."],
        stop_reason=stop_reason,
    )


def gave_way(where: str, stop_reason: str | None) -> Outcome:
    """A prompt of the priority `now` came: the turn is over, and nothing went wrong."""
    return Outcome(terminal_reason=f"aborted_{where}", text="", stop_reason=stop_reason, api_error_status=None)


def denied(tools: list[str], stop_reason: str | None) -> Outcome:
    """The turn went on, but the person wants a run with denials to fail."""
    return Outcome(
        subtype="error_during_execution",
        is_error=True,
        terminal_reason="permission_denied",
        errors=[f"Permission was denied: {', '.join(tools)}"],
        stop_reason=stop_reason,
    )


def out_of_budget(flaw: BudgetSpent, stop_reason: str | None) -> Outcome:
    # Clients know one name for a spent budget, and it says dollars.
    subtype = "error_max_budget_usd" if flaw.kind == "usd" else "error_during_execution"
    return Outcome(
        subtype=subtype,
        is_error=True,
        terminal_reason="budget_exhausted",
        errors=[str(flaw)],
        stop_reason=stop_reason,
    )


def commanded(command: str, text: str = "") -> Outcome:
    """The prompt was a command, and no model was asked."""
    return Outcome(text=text, local_command=command)


def out_of_turns(limit: int, stop_reason: str | None) -> Outcome:
    return Outcome(
        subtype="error_max_turns",
        is_error=True,
        terminal_reason="max_turns",
        errors=[f"Reached maximum number of turns ({limit})"],
        stop_reason=stop_reason,
    )


def broken(reason: str, fault_type: str = "system_error") -> Outcome:
    """The prompt could not be run at all, or we have a bug."""
    return Outcome(subtype="error_during_execution", is_error=True, errors=[reason], fault_type=fault_type)


# The names of `assistant.error`, by status; the API's own type decides where the status does not.
NAMES = {
    401: "authentication_failed",
    403: "authentication_failed",
    402: "billing_error",
    404: "model_not_found",
    413: "invalid_request",
    422: "invalid_request",
    429: "rate_limit",
}


def error_name(flaw: ModelError) -> str:
    """What `assistant.error` and `api_retry.error` call a failure."""
    text = flaw.message.lower()
    if "credit balance" in text or "billing" in text:
        return "billing_error"
    if is_too_long(flaw):
        return "invalid_request"
    if flaw.kind in ("authentication_error", "no_key"):
        return "authentication_failed"
    if flaw.status is None:
        return "server_error"
    # A 529 is `overloaded` only where it is told in passing; clients know `server_error`.
    return NAMES.get(flaw.status, "server_error" if flaw.status >= 500 else "unknown")


TOO_LONG = (
    *("prompt is too long", "input is too long", "input length", "context limit", "context length", "context size"),
    *("context window", "context_length_exceeded", "maximum number of tokens"),
)
"""What backends and the servers before them say of a conversation that does not fit."""


def is_too_long(flaw: ModelError) -> bool:
    text = flaw.message.lower()
    return flaw.kind == "prompt_too_long" or (flaw.status == 400 and any(words in text for words in TOO_LONG))


def is_too_much(flaw: ModelError) -> bool:
    """Whether a shorter request may come through; pictures have few tokens, and more bytes than some backends take."""
    return is_too_long(flaw) or flaw.status == 413


def terminal_reason(flaw: ModelError) -> str:
    if is_too_long(flaw):
        return "prompt_too_long"
    return "image_error" if flaw.status == 413 else "api_error"


PLAIN = ("no_key", "prompt_too_long", "compaction_failed")
"""Kinds whose words are ours, and say enough."""


def error_text(flaw: ModelError) -> str:
    """What the person reads."""
    if flaw.status is None:
        return flaw.message if flaw.kind in PLAIN else f"API Error: {flaw.message}"
    if flaw.status == 401:
        keys = "ANTHROPIC_API_KEY or OPENAI_API_KEY"
        return f"API Error: 401 {flaw.message}. Check the API key ({keys}), or try --model offline."
    return f"API Error: {flaw.status} {flaw.message}"
