from __future__ import annotations

import re

import pytest

from parley.protocol.base import catalogue
from parley.protocol.schema import (
    NEVER_SENT,
    OF_DIALECTS,
    PROFILES,
    build_part,
    build_schema,
    list_profile,
    list_sent,
    name_message,
    to_typescript,
)

NAMES = {name_message(*key): cls for key, cls in catalogue().items()}


def test_the_messages_that_are_never_sent_say_so() -> None:
    found = {name for name, cls in NAMES.items() if re.search(r"never (sent|by the engine)", cls.__doc__ or "")}

    assert found == NEVER_SENT


def test_the_messages_of_dialects_say_so() -> None:
    found = {name for name, cls in NAMES.items() if re.match(r"(spec001|miriad|JSON-RPC)\b.*:", cls.__doc__ or "")}

    assert found == OF_DIALECTS


@pytest.mark.parametrize("name", PROFILES)
def test_every_message_of_a_profile_exists_and_is_sent(name: str) -> None:
    assert set(list_profile(PROFILES[name], list_sent())) <= set(list_sent())


def test_the_default_has_what_every_turn_needs_and_nothing_optional() -> None:
    found = set(list_profile(PROFILES["default"], list_sent()))

    assert {"system/init", "assistant", "user", "result", "control_request", "rate_limit_event"} <= found
    assert not {"stream_event", "transcript_mirror", "jsonrpc", "active_goal"} & found


def test_the_version_changes_with_the_definitions() -> None:
    document = build_schema()

    assert re.fullmatch(r"\d+\.\d+\.\d+\+[0-9a-f]{12}", document["version"])
    assert document["version"] == build_schema()["version"]


def test_a_part_has_what_it_refers_to_and_no_more() -> None:
    part = build_part(build_schema(), "Assistant")

    assert {"Assistant", "AssistantContent", "TextBlock"} <= set(part["$defs"])
    assert "Result" not in part["$defs"]


def test_types_are_written_as_typescript() -> None:
    text = to_typescript(build_part(build_schema(), "CompactBoundary"))

    assert 'subtype: "compact_boundary";' in text
    assert "export interface CompactBoundary {" in text
