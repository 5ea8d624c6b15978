"""Ids and times come in from outside."""

from __future__ import annotations

import re

import pytest

from parley.engine.clock import Clock, format_iso, random_uuids
from parley.protocol.base import Message
from parley.protocol.messages.notices import KeepAlive
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Status

FIXED = Clock(new_uuid=lambda: "u1", seconds=lambda: 1_767_323_045.75, monotonic=lambda: 5.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (0.5, "1970-01-01T00:00:00.500Z"),
        (0.9999, "1970-01-01T00:00:00.999Z"),
        (951_782_399.25, "2000-02-28T23:59:59.250Z"),
        (1_767_323_045.0, "2026-01-02T03:04:05.000Z"),
    ],
)
def test_a_time_is_utc_with_milliseconds(seconds: float, text: str) -> None:
    assert format_iso(seconds) == text


def test_now_is_what_the_clock_says() -> None:
    assert FIXED.now() == "2026-01-02T03:04:05.750Z"


@pytest.mark.parametrize(
    ("message", "stamped"),
    [
        (Status(status=None), Status(status=None, session_id="s1", uuid="u1")),
        (Status(status=None, uuid="own"), Status(status=None, session_id="s1", uuid="own")),
        (Status(status=None, session_id="own"), Status(status=None, session_id="own", uuid="u1")),
        (Result(subtype="success"), Result(subtype="success", session_id="s1", uuid="u1")),
        (KeepAlive(), KeepAlive()),
    ],
)
def test_a_message_gets_the_ids_it_lacks_and_has_fields_for(message: Message, stamped: Message) -> None:
    assert FIXED.stamp_message(message, "s1") == stamped


def test_a_message_that_lacks_nothing_stays_the_same_object() -> None:
    message = Status(status=None, session_id="s", uuid="u")

    assert FIXED.stamp_message(message, "s1") is message


def test_a_random_id_is_a_version_4_uuid_and_never_the_same() -> None:
    version_4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    new_uuid = random_uuids()
    made = {new_uuid() for _ in range(1000)}

    assert len(made) == 1000
    assert [each for each in made if not version_4.fullmatch(each)] == []
