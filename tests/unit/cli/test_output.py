"""The messages that a user reads during a one-shot run."""

from __future__ import annotations

import pytest

from parley.cli.output import ResultPrinter
from parley.protocol.messages.system import ApiRetry


@pytest.mark.parametrize(
    ("error", "status", "warning"),
    [
        ("server_error", None, "the model call failed (no complete response from the server); "),
        ("overloaded", 529, "the model call failed (overloaded, status 529); "),
    ],
)
def test_a_failed_call_says_what_failed_and_how_often_it_is_tried(
    capfd: pytest.CaptureFixture[str], error: str, status: int | None, warning: str
) -> None:
    failure = ApiRetry(attempt=2, max_retries=10, retry_delay_ms=1500, error_status=status, error=error)
    ResultPrinter(as_json=False, everything=False).send(failure)
    assert capfd.readouterr().err == f"{warning}retrying in 1.5 s (2 of 10)\n"
