"""The lines of a conversation without secrets, as people see them.

Secrets are the values of variables and fields with names such as `ANTHROPIC_API_KEY` or `headers`, and text that
looks like a key. A key that a model writes in several stream events is found, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from parley.models.redaction import REDACTED, Redactor, find_secrets
from parley.stores.wire_recording import Record

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
        self._redactor.redact_streams(
            (repr(record[4].get("parent_tool_use_id")), record[4].get("event"), line.get("event"))
            for record, line in zip(records, lines, strict=True)
            if isinstance(record[4], dict) and record[4].get("type") == line.get("type") == "stream_event"
        )
        return [(*record[:4], line) for record, line in zip(records, lines, strict=True)]

    def _redact_line(self, line: Any) -> Any:
        try:
            return self._redactor.redact_value(hide_named(line))
        except RecursionError:
            return {"type": "gateway", "subtype": "not_shown", "reason": "the line is nested too deeply"}


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
