"""A line about the quota: told when it is news, and to those who can bear it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.http_server import Answer, loopback, stream, whole
from tests.helpers.session import Json, SessionHarness

PREFIX = "anthropic-ratelimit-unified-"
EVENTS = (
    b'data: {"type":"message_start","message":{"id":"msg_%d","model":"m","usage":{"output_tokens":1}}}\n\n'
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi."}}\n\n'
    b'data: {"type":"content_block_stop","index":0}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}\n\n'
    b'data: {"type":"message_stop"}\n\n'
)


async def told(folder: Path, *answers: Answer, **environment: str) -> list[Json]:
    """The lines of so many turns, without the systems' own."""

    async with loopback(*answers) as server:
        harness = SessionHarness(folder, "", model="sonnet")
        gateway = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_AUTH_TOKEN": "t"}
        harness.environment = {**harness.environment, **gateway, **environment}
        async with harness:
            for _ in answers:
                harness.prompt("go")
                await harness.receive("result")
        return [line for line in harness.lines if line["type"] != "system"]


def answer(number: int, status: str) -> Answer:
    return stream(EVENTS % number, headers={PREFIX + "status": status, PREFIX + "reset": "1900000000"})


async def test_the_state_of_the_quota_is_reported_after_the_answer_and_again_when_it_changes(tmp_path: Path) -> None:
    lines = await told(tmp_path, answer(1, "allowed"), answer(2, "allowed"), answer(3, "allowed_warning"))

    assert [line["type"] for line in lines] == [
        "assistant",
        "rate_limit_event",
        "result",
        "assistant",
        "result",
        "assistant",
        "rate_limit_event",
        "result",
    ]
    assert lines[1]["rate_limit_info"] == {"status": "allowed", "resetsAt": 1900000000, "isUsingOverage": False}


async def test_a_quota_that_is_used_up_is_reported_before_the_failure(tmp_path: Path) -> None:
    refused = whole(429, b'{"error":{"type":"rate_limit_error","message":"limit"}}', {PREFIX + "status": "rejected"})
    lines = await told(tmp_path, refused)

    assert [line["type"] for line in lines] == ["rate_limit_event", "assistant", "result"]
    assert (lines[-1]["is_error"], lines[-1]["api_error_status"]) == (True, 429)


@pytest.mark.parametrize(
    "environment",
    [
        {"CLAUDE_CODE_ENTRYPOINT": "sdk-py", "CLAUDE_AGENT_SDK_VERSION": "0.1.20"},
        {"ANTHROPIC_API_KEY": "k"},
    ],
)
async def test_a_client_without_support_or_quota_receives_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    lines = await told(tmp_path, answer(1, "allowed"), **environment)

    assert [line["type"] for line in lines] == ["assistant", "result"]
