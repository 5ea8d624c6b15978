"""The context window and the longest answer of a model that the user sets."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.session import SessionHarness

DONE = '[[turn]]\ntext = "Done."\n'


def limited(folder: Path, **entry: int) -> SessionHarness:
    return SessionHarness(folder, DONE, settings=json.dumps({"models": {"scripted:": entry}}))


async def test_limits_of_the_user_hold_in_requests_and_reports(tmp_path: Path) -> None:
    async with limited(tmp_path, contextWindow=12_345, maxOutputTokens=678) as harness:
        harness.prompt("go")
        result = await harness.receive("result")
        usage = await harness.request("get_context_usage")
        request = harness.session.conversation.build_request()

    [reported] = result["modelUsage"].values()
    assert (reported["contextWindow"], reported["maxOutputTokens"]) == (12_345, 678)
    assert usage["response"]["response"]["rawMaxTokens"] == 12_345
    assert request.max_tokens == 678


async def test_a_prompt_that_exceeds_the_window_is_not_sent(tmp_path: Path) -> None:
    async with limited(tmp_path, contextWindow=10) as harness:
        harness.prompt("x" * 41)
        result = await harness.receive("result")

    assert (result["terminal_reason"], result["is_error"]) == ("blocking_limit", True)
