"""Parsing rate limit headers."""

from __future__ import annotations

from typing import Any

import pytest

from parley.models.backends.anthropic import QUOTA_PREFIX, Anthropic, parse_quota
from parley.models.endpoint import ModelEndpoint
from parley.protocol.messages.notices import RateLimitInfo
from tests.helpers.http_server import loopback, stream, whole
from tests.helpers.models import asking, heard, refusal, user

SAID = {
    "status": "allowed",
    "reset": "1900000000",
    "representative-claim": "five_hour",
    "5h-utilization": "0.91",
    "5h-surpassed-threshold": "0.9",
    "overage-status": "rejected",
    "overage-disabled-reason": "org_level_disabled",
}
WARNING = RateLimitInfo(
    status="allowed_warning",
    resetsAt=1900000000,
    rateLimitType="five_hour",
    utilization=0.91,
    overageStatus="rejected",
    overageDisabledReason="org_level_disabled",
    isUsingOverage=False,
    surpassedThreshold=0.9,
)
REJECTED = RateLimitInfo(
    status="rejected",
    resetsAt=1900000000,
    rateLimitType="five_hour",
    overageStatus="rejected",
    overageDisabledReason="org_level_disabled",
    isUsingOverage=False,
)


def headers(**changes: str) -> dict[str, str]:
    return {QUOTA_PREFIX + name: value for name, value in {**SAID, **changes}.items()}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (headers(), WARNING),
        (headers(status="rejected"), REJECTED),
        ({QUOTA_PREFIX + "status": "allowed"}, RateLimitInfo(status="allowed", isUsingOverage=False)),
        (
            {QUOTA_PREFIX + "status": "allowed", QUOTA_PREFIX + "reset": "soon"},
            RateLimitInfo(status="allowed", isUsingOverage=False),
        ),
        ({"anthropic-ratelimit-requests-remaining": "5"}, None),
        ({}, None),
    ],
)
def test_the_headers_say_how_it_stands(said: dict[str, str], expected: RateLimitInfo | None) -> None:
    assert parse_quota(said) == expected


BEARER, PLAIN = ("authorization", "Bearer t"), ("x-api-key", "k")
START = b'data: {"type":"message_start","message":{},"quota":7,"raw":3}\n\n'


@pytest.mark.parametrize(("auth", "expected"), [(BEARER, WARNING), (PLAIN, None), (None, None)])
async def test_a_quota_is_that_of_a_bearer_token(auth: tuple[str, str] | None, expected: RateLimitInfo | None) -> None:
    async with loopback(stream(START, headers=headers())) as server:
        model = Anthropic(ModelEndpoint(base_url=server.url, auth=auth))
        [event] = await heard(model, asking(user("Hi")))
        await model.close()
        result = event.quota

    assert result == expected


@pytest.mark.parametrize(
    ("status", "auth", "expected"),
    [("rejected", BEARER, (REJECTED, False)), ("rejected", PLAIN, (None, False)), ("allowed", BEARER, (WARNING, True))],
)
async def test_a_quota_that_is_used_up_is_not_asked_again(status: str, auth: tuple[str, str], expected: Any) -> None:
    async with loopback(whole(429, b"{}", headers(status=status))) as server:
        model = Anthropic(ModelEndpoint(base_url=server.url, auth=auth))
        problem = await refusal(model, asking(user("Hi")))
        await model.close()
        result = problem["quota"], problem["retryable"]

    assert result == expected
