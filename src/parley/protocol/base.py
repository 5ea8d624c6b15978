"""Messages, and how a line becomes one.

A message is a frozen struct. `@message` registers its class under the `type` and `subtype` of its lines. `decode`
turns a line into a message, `encode` turns it back:

    decode(b'{"type":"keep_alive"}')  ->  KeepAlive()
    encode(KeepAlive())               ->  b'{"type":"keep_alive"}'

The set of messages is open. A line of an unknown kind becomes `Unknown` and keeps its bytes. A known message keeps its
line too (`line`), so that unknown fields survive when it is forwarded. A known kind with a wrong field is `Refused`.

See also: `framing.py` splits bytes into lines, `connection.py` says who may send what, `dialects/` has other encodings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.protocol.peek import peek

Json = dict[str, Any]
"""A JSON object that is passed through."""

Number = int | float
"""A JSON number. 5 must not become 5.0."""

NESTING_CAP = 256
"""Deeper lines are refused, to limit recursion."""


class Role(Enum):
    """The two ends of a connection."""

    ENGINE = "engine"
    HOST = "host"

    __hash__ = object.__hash__  # that of Enum is not in C, and every message needs it

    @property
    def peer(self) -> Role:
        return Role.HOST if self is Role.ENGINE else Role.ENGINE


BOTH = frozenset(Role)
ENGINE_ONLY = frozenset({Role.ENGINE})
HOST_ONLY = frozenset({Role.HOST})


class Message(Struct, frozen=True, kw_only=True, dict=True, tag_field="type"):
    """One line of the protocol."""

    senders: ClassVar[frozenset[Role]] = ENGINE_ONLY

    @property
    def line(self) -> bytes | None:
        """The line this message was decoded from; None if it was created here."""
        return self.__dict__.get("line")


class Unknown(Message, frozen=True, kw_only=True, tag="unknown"):
    """A line of an unknown kind. It is kept and is never fatal."""

    senders = BOTH
    kind: str
    subkind: str | None = None


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """A line that is not valid: not JSON, or a known kind with a wrong field."""

    senders = BOTH
    reason: str
    kind: str | None = None
    request_id: str | int | None = None
    """The id under which the peer waits for an error reply."""
    answers: str | int | None = None
    """If the line was a reply: the id of our request, which gets no other reply."""
    uuid: str | None = None
    """If the line was a prompt: its id, for the result."""
    session_id: str | None = None
    """If the line was a prompt: the client's session id."""


class JsonBacked:
    """A value that keeps the JSON object it was decoded from.

    msgspec calls our hooks for such values: `read` when decoding, `json` when encoding. So no field is lost.
    """

    __slots__ = ("json",)

    def __init__(self, json: Json) -> None:
        self.json = json

    @classmethod
    def read(cls, json: Any) -> Any:
        """The value of a JSON object. Raises msgspec.ValidationError if it is invalid."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.json == self.json

    def __hash__(self) -> int:
        return hash(msgspec.json.encode(self.json, order="deterministic"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.json!r})"


def dec_hook(kind: type, value: Any) -> Any:
    """msgspec's decoding hook."""
    if issubclass(kind, JsonBacked):
        return kind.read(value)
    raise NotImplementedError(f"cannot decode {kind}")


def enc_hook(value: Any) -> Any:
    """msgspec's encoding hook."""
    if isinstance(value, JsonBacked):
        return value.json
    raise NotImplementedError(f"cannot encode {type(value)}")


_encoder = msgspec.json.Encoder(enc_hook=enc_hook)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}
_catalogue: dict[tuple[str, str | None], type[Message]] = {}
OCCASIONAL = "parley.protocol.messages.occasional"
"""The module of system messages that are loaded when one is needed."""

M = TypeVar("M", bound=type[Message])


def message(cls: M) -> M:
    """Register a message class under its type and, for system messages, its subtype."""
    kind = str(cls.__struct_config__.tag)
    subkind = None
    if kind == "system":
        defaults = dict(zip(cls.__struct_fields__[::-1], cls.__struct_defaults__[::-1], strict=False))
        subkind = str(defaults["subtype"])
    _catalogue[kind, subkind] = cls
    return cls


def message_of(kind: str) -> Callable[[M], M]:
    """Register a message class whose lines have no `type`."""

    def register(cls: M) -> M:
        _catalogue[kind, None] = cls
        return cls

    return register


def find_message(kind: str, subkind: str | None) -> type[Message] | None:
    """The class of a type and a subtype; None if it is unknown."""
    return _catalogue.get((kind, subkind)) or _catalogue.get((kind, None))


def catalogue() -> dict[tuple[str, str | None], type[Message]]:
    """All message classes by (type, subtype)."""
    import_module(OCCASIONAL)  # registers its classes
    return dict(_catalogue)


def decoder(kind: type) -> msgspec.json.Decoder[Any]:
    """The decoder of a class, created on first use."""
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=dec_hook)
    return found


def decode(line: bytes) -> Message:
    """The message of a line: a registered class, Unknown or Refused. Never raises."""
    try:
        if not line.isascii():
            line.decode()  # skipped fields must be UTF-8 too, because the line may be forwarded
        if is_too_deep(line):
            return Refused(reason=f"the line is nested deeper than {NESTING_CAP} levels")
        try:
            head = peek(line)
        except msgspec.ValidationError:
            return Refused(reason="a line must be a JSON object")
        kind, subkind = head.type, head.subtype
        if kind is None and "type" in msgspec.json.decode(line, type=dict[str, Raw]):
            return Refused(reason="`type` must be a string")
        if kind is None:
            if head.jsonrpc is UNSET:
                return Refused(reason="the line has no `type`")
            kind = "jsonrpc"
        cls = find_message(kind, subkind)
        if cls is None and kind == "system":
            import_module(OCCASIONAL)
            cls = find_message(kind, subkind)
        if cls is None:
            # The whole line must be valid JSON, although only its head is used.
            msgspec.json.decode(line)
            return attach_raw(Unknown(kind=kind, subkind=subkind), line)
        try:
            return attach_raw(decoder(cls).decode(line), line)
        except msgspec.ValidationError as exc:
            # Other lines have a `request_id` too, but no peer waits for a reply to them.
            request_id = head.request_id if kind == "control_request" else None
            uuid, session_id = (head.uuid or None, head.session_id or None) if kind == "user" else (None, None)
            answers = head.response.request_id if kind == "control_response" else None
            return Refused(
                reason=f"{kind}: {exc}",
                kind=kind,
                request_id=request_id,
                answers=answers,
                uuid=uuid,
                session_id=session_id,
            )
    except UnicodeDecodeError as exc:
        return Refused(reason=f"the line is not UTF-8: {exc.reason} at byte {exc.start}")
    except msgspec.ValidationError as exc:
        return Refused(reason=str(exc))
    except msgspec.DecodeError as exc:
        repaired = replace_lone_surrogates(line)
        if repaired is not None:
            return decode(repaired)
        return Refused(reason=f"the line is not JSON: {exc}")
    except RecursionError:
        return Refused(reason=f"the line is nested deeper than {NESTING_CAP} levels")


def attach_raw(message: Message, line: bytes) -> Message:
    """The message with its line attached."""
    message.__dict__["line"] = line
    return message


def encode(message: Message) -> bytes:
    """The line of a message, without the line feed.

    A decoded message returns its original line, so that forwarding loses nothing.
    """
    line = message.line
    return line if line is not None else encode_json(message)


def encode_json(value: Any) -> bytes:
    """Encode a message or value as JSON.

    The line and paragraph separators are escaped, because some line readers split at them.
    """
    return escape_separators(_encoder.encode(value))


def encode_lines(messages: Sequence[Message]) -> bytes:
    """The lines of messages that were created here, each with its line feed."""
    return escape_separators(_encoder.encode_lines(messages))


def escape_separators(text: bytes) -> bytes:
    if not text.isascii() and b"\xe2\x80" in text:
        text = text.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return text


# An unclosed string runs to the end of the line. Retrying at each quote would take quadratic time.
_STRING = rb'(?s)"(?:[^"\\]++|\\.)*+"?'


def is_too_deep(line: bytes) -> bool:
    """Whether a line nests deeper than the cap. For almost every line two counts are enough."""
    if line.count(b"[") + line.count(b"{") <= NESTING_CAP:
        return False
    depth = 0
    for byte in re.sub(_STRING, b"", line):
        if byte in b"[{":
            depth += 1
            if depth > NESTING_CAP:
                return True
        elif byte in b"]}":
            depth -= 1
    return False


_ESCAPE = (
    rb"(?s)\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def replace_lone_surrogates(line: bytes) -> bytes | None:
    """The line with lone surrogate escapes replaced by U+FFFD; None if there are none.

    JavaScript strings may contain half a surrogate pair, and JSON.stringify sends it.
    """

    def replace(match: re.Match[bytes]) -> bytes:
        return b"\\ufffd" if match["lone"] else match[0]

    repaired = re.sub(_ESCAPE, replace, line)
    return repaired if repaired != line else None


_UNSTORABLE = "[\0\ud800-\udfff]"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def sanitize(value: Any) -> Any:
    """A JSON value whose texts every reader of the log and every backend can take.

    NUL, which databases and terminals refuse, and lone surrogates become U+FFFD. Invalid UTF-8 is replaced when it is
    read.
    """
    if isinstance(value, str):
        if value.isascii() and "\0" not in value:
            return value
        return re.sub(_UNSTORABLE, _REPLACEMENT, value) if re.search(_UNSTORABLE, value) else value
    if isinstance(value, dict):
        return {sanitize(key): sanitize(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize(item) for item in value]
    return value


class _DuplicateKey(Exception):
    """The message is the key."""


def find_duplicate_key(data: bytes | str) -> str | None:
    """Describe the first duplicate key of a JSON text that was already decoded; None if all are unique.

    Decoders use the last one. A reader that uses the first (a proxy, a log, a person) sees a different decision than
    the one that takes effect, so a line that carries a decision must not have any.
    """
    import json  # most sessions do not need it

    text = data if isinstance(data, str) else data.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
    try:
        # Numbers stay strings: long ones would raise an error, and their values do not matter here.
        json.loads(text, object_pairs_hook=_check_keys, parse_int=str, parse_float=str)
    except _DuplicateKey as exc:
        return f"duplicate key {str(exc)!r:.100}"
    except (ValueError, RecursionError) as exc:
        return f"the keys cannot be checked: {exc}"
    return None


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKey(key)
            seen.add(key)


def convert(value: Any, kind: type[Any]) -> Any:
    """Convert a plain JSON value to a class. Raises msgspec.ValidationError."""
    return msgspec.convert(value, kind, dec_hook=dec_hook)


def to_builtins(value: Any) -> Any:
    """A message or struct as plain JSON values."""
    return msgspec.to_builtins(value, enc_hook=enc_hook)


__all__ = [
    "BOTH",
    "ENGINE_ONLY",
    "HOST_ONLY",
    "NESTING_CAP",
    "UNSET",
    "Json",
    "JsonBacked",
    "Message",
    "Number",
    "Refused",
    "Role",
    "Struct",
    "Unknown",
    "UnsetType",
    "catalogue",
    "convert",
    "decode",
    "decoder",
    "encode",
    "encode_json",
    "encode_lines",
    "find_duplicate_key",
    "is_too_deep",
    "message",
    "message_of",
    "replace_lone_surrogates",
    "sanitize",
    "to_builtins",
]
