"""Secrets in the lines between a session and its engine."""

from __future__ import annotations

from typing import Any

import pytest

from parley.stores.wire_recording import Direction, Record
from parley.stores.wire_redaction import WireRedactor, names_secret

KEY = "sk-abcdefghijklmnopqrstuvwxyz"


def redact(*lines: Any) -> list[Any]:
    records: list[Record] = [(number, 0.0, Direction.OUT, 1, line) for number, line in enumerate(lines, 1)]
    return [line for *_, line in WireRedactor({"DB_PASSWORD": "open-sesame"}).redact(records)]


def delta(text: str, index: int = 0, parent: str | None = None) -> Any:
    event = {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "event": event, "parent_tool_use_id": parent}


@pytest.mark.parametrize(
    "name", ["ANTHROPIC_API_KEY", "apiKey", "access_token", "clientSecret", "password", "headers", "Authorization"]
)
def test_names_of_secrets(name: str) -> None:
    assert names_secret(name)
    assert redact({name: {"x": ["a secret"]}}) == [{name: {"x": ["[redacted]"]}}]


@pytest.mark.parametrize("name", ["key", "apiKeySource", "input_tokens", "keyboard", "tokenizer", "", "-", "名前"])
def test_names_of_other_things(name: str) -> None:
    assert not names_secret(name)
    assert redact({name: "text"}) == [{name: "text"}]


def test_numbers_and_empty_texts_stay() -> None:
    line = {"max_token": 3, "password": "", "token": None, "secret": True}
    assert redact(line) == [line]


def test_a_secret_in_several_events_of_a_block_is_found() -> None:
    pieces = [KEY[at : at + 4] for at in range(0, len(KEY), 4)]
    other = delta("open-", index=1)
    shown = redact(delta("a "), *map(delta, pieces), other, delta(" b"), delta("sesame", index=1))
    texts = [line["event"]["delta"]["text"] for line in shown]
    assert "".join(text for line, text in zip(shown, texts, strict=True) if line["event"]["index"] == 0) == (
        "a [redacted] b"
    )
    assert [text for line, text in zip(shown, texts, strict=True) if line["event"]["index"] == 1] == ["[redacted]", ""]


def test_blocks_of_different_agents_and_messages_are_not_joined() -> None:
    stop = {"type": "stream_event", "event": {"type": "content_block_stop", "index": 0}}
    lines = [delta("open-"), delta("sesame", parent="toolu_1"), stop, delta("sesame")]
    assert redact(*lines) == lines


def test_a_line_that_is_nested_too_deeply_is_not_shown() -> None:
    line: Any = KEY
    for _ in range(5000):
        line = [line]
    assert redact({"type": "user", "message": line})[0]["subtype"] == "not_shown"


@pytest.mark.parametrize("line", [None, [], 3, "x", {"type": "stream_event"}, {"type": "stream_event", "event": []}])
def test_odd_lines_pass(line: Any) -> None:
    assert redact(line) == [line]


def test_the_end_of_a_secret_is_found_if_its_beginning_alone_looks_like_one() -> None:
    shown = redact(delta(f"a {KEY}"), delta("0123456789"), delta(" b"))
    assert [line["event"]["delta"]["text"] for line in shown] == ["a [redacted]", "", " b"]
