"""Results and failures of model calls in words, for people. Pure."""

from __future__ import annotations

from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry
from parley.settings.base import printable

MAX_REASON_CHARS = 500
LIMITS_IN_TEXT = (
    ("Reached maximum number of turns (", "Reached max turns ("),
    ("Reached maximum budget ($", "Exceeded USD budget ("),
)
"""How Claude Code words limits in `errors`, and in text output. Scripts match both."""


def failure_reason(failure: ApiRetry) -> str:
    """Describe a failed call. Without a status there was no complete response, so do not call it a server error."""
    text = printable(failure.error_message, MAX_REASON_CHARS) if isinstance(failure.error_message, str) else ""
    if failure.error_status is None:
        return text or "no complete response from the server"
    return f"{failure.error}, status {failure.error_status}{': ' if text else ''}{text}"


def retry_text(failure: ApiRetry) -> str:
    return f"retrying in {failure.retry_delay_ms / 1000:.1f} s ({failure.attempt} of {failure.max_retries})"


def text_of(result: Result) -> str:
    """The answer, or what went wrong: a failed turn prints its reason on stdout too, and exits with 1."""
    if isinstance(result.result, str):
        return result.result
    reason = "\n".join(result.errors) if isinstance(result.errors, list) else result.subtype
    for in_json, in_text in LIMITS_IN_TEXT:
        reason = reason.replace(in_json, in_text)
    return f"Error: {reason}"
