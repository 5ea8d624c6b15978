"""The lines of a conversation without secrets, as people see them.

Secrets are the values of variables and fields with names such as `ANTHROPIC_API_KEY` or `headers`, and text that
looks like a key. A key that a model writes in several stream events is found, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from parley.inspector.recording import Record
from parley.models.redaction import REDACTED, Redactor, find_secrets

PIECES = ("text", "thinking", "partial_json")
"""The fields of a delta that are pieces of a longer text."""
WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")
SECRET_WORDS = frozenset({"key", "token", "secret", "password", "passwd", "passphrase", "credential"}) | frozenset(
    {"credentials", "headers", "authorization", "apikey"}
)


class WireRedactor:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._redactor = Redactor(find_secrets(environment))

    def redact_text(self, text: str) -> str:
        return self._redactor.redact_text(text)

    def redact(self, records: Sequence[Record]) -> list[Record]:
        lines = [self._redact_line(line) for *_, line in records]
        texts: dict[tuple[Any, Any], list[tuple[Any, str]]] = {}
        for line in lines:
            self._collect(line, texts)
        for pieces in texts.values():
            self._hide_pieces(pieces)
        return [(*record[:4], line) for record, line in zip(records, lines, strict=True)]

    def _redact_line(self, line: Any) -> Any:
        try:
            return self._redactor.redact_value(hide_named(line))
        except RecursionError:
            return {"type": "gateway", "subtype": "not_shown", "reason": "the line is nested too deeply"}

    def _collect(self, line: Any, texts: dict[tuple[Any, Any], list[tuple[Any, str]]]) -> None:
        """Add the piece of a stream event to the text of its block; a block that ends is done."""
        event = line.get("event") if isinstance(line, dict) and line.get("type") == "stream_event" else None
        if not isinstance(event, dict):
            return
        block = line.get("parent_tool_use_id"), event.get("index")
        if event.get("type") == "content_block_stop":
            self._hide_pieces(texts.pop(block, []))
        delta = event.get("delta")
        for field in PIECES:
            if isinstance(delta, dict) and isinstance(delta.get(field), str):
                texts.setdefault(block, []).append((delta, field))

    def _hide_pieces(self, pieces: list[tuple[Any, str]]) -> None:
        cut = self._redactor.redact_pieces([delta[field] for delta, field in pieces])
        for (delta, field), text in zip(pieces, cut, strict=True):
            delta[field] = text


def hide_named(value: Any, *, is_secret: bool = False) -> Any:
    """The same JSON without the texts under names of secrets."""
    if isinstance(value, str):
        return REDACTED if is_secret and value else value
    if isinstance(value, list):
        return [hide_named(item, is_secret=is_secret) for item in value]
    if isinstance(value, dict):
        return {key: hide_named(item, is_secret=is_secret or names_secret(key)) for key, item in value.items()}
    return value


def names_secret(key: str) -> bool:
    """Whether a field or variable has a secret, by the last word of its name. `key` alone can be anything."""
    words = WORD.findall(key)
    return bool(words) and words[-1].lower() in SECRET_WORDS and (len(words) > 1 or words[0].lower() != "key")


def clean_command(words: Sequence[str], redact: Callable[[str], str]) -> Iterable[str]:
    """The words of a command without secrets: values of flags such as `--api-key`, and in JSON such as `--settings`."""
    is_secret = False
    for word in words:
        name, joined, _ = word.partition("=")
        if is_secret and not word.startswith("-"):
            yield REDACTED
        elif joined and word.startswith("-"):
            value = word.removeprefix(f"{name}=")
            yield f"{name}={REDACTED}" if names_secret(name) else f"{name}={redact(clean_json(value))}"
        else:
            yield redact(clean_json(word))
        is_secret = word.startswith("-") and not joined and names_secret(word)


def clean_json(word: str) -> str:
    if not word.startswith("{"):
        return word
    try:
        return msgspec.json.encode(hide_named(msgspec.json.decode(word))).decode()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return word
