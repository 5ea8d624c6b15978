"""Lines of a stdio server: everything readable is read."""

from __future__ import annotations

from typing import Any

import pytest

from parley.mcp.stdio import parse_messages


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (rb'{"id": 1, "result": "cut \ud83d"}', [{"id": 1, "result": "cut �"}]),
        (b'{"id": 1, "result": "caf\xe9 \\ud83d\\ude00"}', [{"id": 1, "result": "caf� 😀"}]),
        (b'[{"id": 1}, 7, {"id": 2}]', [{"id": 1}, {"id": 2}]),
        (b"Debugging is fun!", []),
        (b"\xff\xfe\x00", []),
        (b"[" * 100_000, []),
        (b"null", []),
    ],
)
def test_half_a_character_loses_no_answer_and_what_is_not_a_message_is_skipped(line: bytes, said: list[Any]) -> None:
    assert parse_messages(line) == said
