"""Parse rate limit headers. Pure.

Servers with bearer tokens (gateways) may send `anthropic-ratelimit-unified-*`. With a plain API key Claude Code
ignores these headers, and so do we.
"""

from __future__ import annotations

from collections.abc import Mapping

from parley.protocol.base import UNSET, Number, UnsetType
from parley.protocol.messages.notices import RateLimitInfo

PREFIX = "anthropic-ratelimit-unified-"
WINDOWS = {
    "five_hour": "5h",
    "seven_day": "7d",
    "seven_day_opus": "7d_opus",
    "seven_day_sonnet": "7d_sonnet",
    "overage": "overage",
}
"""The header prefix of each window."""


def parse_quota(headers: Mapping[str, str]) -> RateLimitInfo | None:
    """The rate limit status; None if there are no such headers."""
    status = headers.get(f"{PREFIX}status")
    if not status:
        return None
    claim = headers.get(f"{PREFIX}representative-claim")
    window = f"{PREFIX}{WINDOWS.get(claim or '', claim)}"
    threshold = parse_number(headers.get(f"{window}-surpassed-threshold"))
    if status == "allowed" and threshold is not UNSET:
        status = "allowed_warning"
    is_warning = status == "allowed_warning"
    return RateLimitInfo(
        status=status,
        resetsAt=parse_number(headers.get(f"{PREFIX}reset")),
        rateLimitType=claim or UNSET,
        utilization=parse_number(headers.get(f"{window}-utilization")) if is_warning else UNSET,
        overageStatus=headers.get(f"{PREFIX}overage-status") or UNSET,
        overageResetsAt=parse_number(headers.get(f"{PREFIX}overage-reset")),
        overageDisabledReason=headers.get(f"{PREFIX}overage-disabled-reason") or UNSET,
        isUsingOverage=headers.get(f"{PREFIX}overage-in-use") == "true",
        surpassedThreshold=threshold if is_warning else UNSET,
    )


def parse_number(text: str | None) -> Number | UnsetType:
    try:
        value = float(text) if text else None
    except ValueError:
        return UNSET
    if value is None:
        return UNSET
    return int(value) if value.is_integer() else value
