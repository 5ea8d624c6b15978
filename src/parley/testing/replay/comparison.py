"""Whether a line of a conversation equals a recorded one, and where it differs. Pure.

Ids, times and durations differ between two runs. Times and durations are not compared. An id may be another one, but
must be the same wherever the recording has the same: an answer with a wrong id is a difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from parley.protocol.base import Json

ID_KEYS = frozenset(
    ("uuid", "session_id", "sessionId", "request_id", "id", "tool_use_id", "parent_tool_use_id", "prompt_id", "task_id")
) | frozenset(("api_message_id", "toolUseID", "agent_id", "parentUuid", "messageId", "user_message_id"))
UNCOMPARED_KEYS = frozenset(["timestamp", "started_at", "resetsAt", "transcript_path", "messaging_socket_path", "pid"])
VARYING = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b(?:toolu|msg|req)_[0-9A-Za-z]{8,}\b"
    r"|\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b"
    r"|\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\b\d\d:\d\d:\d\d(?:\.\d+)?\b"
)
"""Ids and times inside a text."""
QUOTED = re.compile(rb'(?:"(\w+)"\s*:\s*)?"([^"\\\x80-\xff]+)"')
"""A text in JSON without escapes, with its key."""
SHORTEST_ID = 16
"""A text of this length is an id also where its key does not say so."""
REDACTED = "[redacted]"
SHOWN_CHARS = 80


class IdMap:
    """Which id stands for which recorded one."""

    def __init__(self) -> None:
        self._actual: dict[str, str] = {}
        self._new: dict[str, str] = {}
        """From a comparison that is not finished."""

    def fix(self, value: Any) -> None:
        """Keep the ids of a message that was sent as it was recorded: the other side must use the same."""
        if isinstance(value, dict):
            for key, item in value.items():
                if key in ID_KEYS and isinstance(item, str):
                    self._actual.setdefault(item, item)
                self.fix(item)
        elif isinstance(value, list):
            for item in value:
                self.fix(item)

    def pair(self, recorded: str, actual: str) -> bool:
        """Whether this id may stand for the recorded one. The first one that comes does."""
        known = self._actual.get(recorded)
        return (self._new.setdefault(recorded, actual) if known is None else known) == actual

    def end_comparison(self, *, equal: bool) -> None:
        """Keep the ids of an equal message, forget those of another."""
        if equal:
            self._actual.update(self._new)
        self._new.clear()

    def apply(self, data: bytes) -> bytes:
        """A recorded line with the ids of this run."""
        return QUOTED.sub(self._replace, data)

    def _replace(self, found: re.Match[bytes]) -> bytes:
        key, value = found[1], found[2].decode()
        if (key is None or key.decode() not in ID_KEYS) and len(value) < SHORTEST_ID:
            return found[0]
        actual = self._actual.get(value, value)
        return found[0] if actual == value else found[0].replace(b'"%s"' % found[2], msgspec.json.encode(actual))


def read_message(data: bytes) -> Any:
    """The message of a line; its text if the line is not JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return data.decode(errors="replace")


def kind_of(message: Any) -> str:
    """What a message is, in a few words: `control_request can_use_tool`."""
    if not isinstance(message, dict):
        return "text"
    kind = str(message.get("type"))
    if kind == "control_request":
        return f"{kind} {(message.get('request') or {}).get('subtype')}"
    if kind == "stream_event":
        return f"{kind} {(message.get('event') or {}).get('type')}"
    return f"{kind} {message['subtype']}" if isinstance(message.get("subtype"), str) else kind


def answered_id(message: Any) -> str | None:
    """The id of the request that a control response answers."""
    if isinstance(message, dict) and message.get("type") == "control_response":
        return str((message.get("response") or {}).get("request_id"))
    return None


def find_difference(recorded: Any, actual: Any, ids: IdMap, places: Mapping[str, str], where: str = "$") -> str | None:
    """The first difference in words; None if there is none. Ids that are new are added to the map.

    `places` maps recorded directories to those of this run.
    """
    if isinstance(recorded, dict) and isinstance(actual, dict):
        return _find_in_objects(recorded, actual, ids, places, where)
    if isinstance(recorded, list) and isinstance(actual, list):
        pairs = zip(recorded, actual, strict=False)
        inner = (find_difference(one, two, ids, places, f"{where}[{at}]") for at, (one, two) in enumerate(pairs))
        if (found := next((each for each in inner if each), None)) is not None:
            return found
        if len(recorded) != len(actual):
            return f"{where}: recorded {len(recorded)} items, found {len(actual)}"
        return None
    if isinstance(recorded, str) and isinstance(actual, str):
        same = normalize(recorded, places) == VARYING.sub("<id>", actual)
        return None if same or is_redacted(recorded, actual) else _describe(where, recorded, actual)
    same = recorded == actual and isinstance(recorded, bool) == isinstance(actual, bool)
    return None if same else _describe(where, recorded, actual)


def _find_in_objects(recorded: Json, actual: Json, ids: IdMap, places: Mapping[str, str], where: str) -> str | None:
    for key in dict.fromkeys([*recorded, *actual]):
        one, two, path = recorded.get(key), actual.get(key), f"{where}.{key}"
        if key in UNCOMPARED_KEYS or (key.endswith("_ms") and type(one) in (int, float) and type(two) in (int, float)):
            continue
        if key in ID_KEYS and isinstance(one, str) and isinstance(two, str):
            if not ids.pair(one, two):
                return f"{_describe(path, one, two)}; the recorded id was another one before"
            continue
        if key not in recorded or key not in actual:
            return _describe(path, recorded.get(key, "nothing"), actual.get(key, "nothing"))
        if (found := find_difference(one, two, ids, places, path)) is not None:
            return found
    return None


def normalize(text: str, places: Mapping[str, str]) -> str:
    """A recorded text with the directories of this run, and without ids and times."""
    for old, new in places.items():
        text = text.replace(old, new)
    return VARYING.sub("<id>", text)


def is_redacted(recorded: str, actual: str) -> bool:
    """Whether a recorded text with removed secrets fits."""
    parts = recorded.split(REDACTED)
    return len(parts) > 1 and re.fullmatch(".*".join(map(re.escape, parts)), actual, re.DOTALL) is not None


def _describe(where: str, recorded: Any, actual: Any) -> str:
    return f"{where}: recorded {show(recorded)}, found {show(actual)}"


def show(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)} characters)"
