"""What every message is, and how a line becomes one.

A message is a frozen struct. Its class is filed under the `type` and `subtype` of
its lines by `@message`; that line is the whole registration. `decode` turns a line
into a message, `encode` turns it back:

    decode(b'{"type":"keep_alive"}')  ->  KeepAlive()
    encode(KeepAlive())               ->  b'{"type":"keep_alive"}'

The vocabulary is open. A line of a kind we do not know becomes `Unknown` and keeps
its bytes; a known message keeps the line it came from as well, so that fields we
do not know survive a relay (`line`). A known kind with a wrong field is `Refused`.

Not here: cutting bytes into lines (framing.py), who may say what (roles.py), other
spellings of the same messages (dialects/).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

Json = dict[str, Any]
"""A JSON object that we carry and do not interpret."""

Number = int | float
"""JSON has one kind of number; 5 must not come back as 5.0."""

NESTING_CAP = 256
"""Deeper lines are refused: nobody means them, and recursion has to end somewhere."""


class Message(Struct, frozen=True, kw_only=True, dict=True, tag_field="type"):
    """One line of the conversation."""

    @property
    def line(self) -> bytes | None:
        """The bytes this message was decoded from; None if it was made here."""
        return self.__dict__.get("line")


class Unknown(Message, frozen=True, kw_only=True, tag="unknown"):
    """A line of a kind we do not know. It is kept, never fatal."""

    kind: str
    subkind: str | None = None


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """A line we cannot take: no JSON, or a known kind with a wrong field."""

    reason: str
    kind: str | None = None
    request_id: str | int | None = None
    """Where the peer waits for an answer, the id to refuse it under."""
    answers: str | int | None = None
    """Where the line was an answer, the id of what we asked: nothing else will come for it."""
    uuid: str | None = None
    """Where the line was a prompt, the id that its result is to name."""
    session_id: str | None = None
    """Where the line was a prompt, what its client calls the session."""


class JsonBacked:
    """A value that travels as the JSON object it came as.

    msgspec hands such values to our hooks: `read` on the way in, `json` on the way
    out. So nothing of the object is lost, whatever we know of it.
    """

    __slots__ = ("json",)

    def __init__(self, json: Json) -> None:
        self.json = json

    @classmethod
    def read(cls, json: Any) -> Any:
        """The value for a JSON object. Raises msgspec.ValidationError if it cannot be one."""
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

M = TypeVar("M", bound=type[Message])


def message(cls: M) -> M:
    """File a message class under its type and, for system messages, its subtype."""
    kind = str(cls.__struct_config__.tag)
    subkind = None
    if kind == "system":
        defaults = dict(zip(cls.__struct_fields__[::-1], cls.__struct_defaults__[::-1], strict=False))
        subkind = str(defaults["subtype"])
    _catalogue[kind, subkind] = cls
    return cls


def message_of(kind: str) -> Callable[[M], M]:
    """File a message class whose lines have no `type`."""

    def file(cls: M) -> M:
        _catalogue[kind, None] = cls
        return cls

    return file


def catalogue() -> dict[tuple[str, str | None], type[Message]]:
    """All message classes by (type, subtype)."""
    return dict(_catalogue)


class _Head(Struct):
    """What decides the class of a line."""

    type: Any = UNSET
    subtype: Any = UNSET
    request_id: Any = UNSET
    jsonrpc: Any = UNSET


_head = msgspec.json.Decoder(_Head)


def decoder(kind: type) -> msgspec.json.Decoder[Any]:
    """The decoder of one class, made when it is first needed."""
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=dec_hook)
    return found


def decode(line: bytes) -> Message:
    """The message of a line: a class of the catalogue, Unknown or Refused. Never raises."""
    try:
        return _decode(line)
    except UnicodeDecodeError as exc:
        return Refused(reason=f"the line is not UTF-8: {exc.reason} at byte {exc.start}")
    except msgspec.ValidationError as exc:
        return Refused(reason=str(exc))
    except msgspec.DecodeError as exc:
        mended = replace_lone_surrogates(line)
        if mended is not None:
            return decode(mended)
        return Refused(reason=f"the line is not JSON: {exc}")
    except RecursionError:
        return Refused(reason=f"the line is nested deeper than {NESTING_CAP} levels")


def _decode(line: bytes) -> Message:
    if not line.isascii():
        line.decode()  # fields we skip must be UTF-8 too: the line may be passed on
    if is_too_deep(line):
        return Refused(reason=f"the line is nested deeper than {NESTING_CAP} levels")
    try:
        head = _head.decode(line)
    except msgspec.ValidationError:
        return Refused(reason="a line must be a JSON object")
    kind = head.type
    if kind is UNSET and head.jsonrpc is not UNSET:
        kind = "jsonrpc"
    if not isinstance(kind, str):
        return Refused(reason="the line has no `type`" if kind is UNSET else "`type` must be a string")
    subkind = head.subtype if isinstance(head.subtype, str) else None
    cls = _catalogue.get((kind, subkind)) or _catalogue.get((kind, None))
    if cls is None:
        # The whole line must be JSON, also where we look at its head only.
        msgspec.json.decode(line)
        return attach_raw(Unknown(kind=kind, subkind=subkind), line)
    try:
        return attach_raw(decoder(cls).decode(line), line)
    except msgspec.ValidationError as exc:
        # Other lines have a `request_id` as well, but nobody waits for an answer to them.
        asked = head.request_id if kind == "control_request" and type(head.request_id) in (str, int) else None
        about = read_identity(line) if kind == "user" else {}
        answers = read_answered_id(line) if kind == "control_response" else None
        return Refused(reason=f"{kind}: {exc}", kind=kind, request_id=asked, answers=answers, **about)


def read_identity(line: bytes) -> dict[str, str]:
    """What a prompt that cannot be taken says of itself, as far as it can be read."""
    try:
        found = msgspec.json.decode(line, type=dict)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {name: found[name] for name in ("uuid", "session_id") if isinstance(found.get(name), str) and found[name]}


def read_answered_id(line: bytes) -> str | int | None:
    """The id of the request that an answer is for which cannot be taken, as far as it can be read."""
    try:
        response = msgspec.json.decode(line, type=dict).get("response")
    except (msgspec.DecodeError, RecursionError):
        return None
    found = response.get("request_id") if isinstance(response, dict) else None
    return found if type(found) in (str, int) else None


def attach_raw(message: Message, line: bytes) -> Message:
    """The message, with the line it came from attached."""
    message.__dict__["line"] = line
    return message


def encode(message: Message) -> bytes:
    """The line of a message, without its line feed.

    A message that was decoded gives back its own line: a relay loses nothing.
    """
    line = message.line
    return line if line is not None else encode_json(message)


def encode_json(value: Any) -> bytes:
    """JSON for any message or value.

    The line and paragraph separators are escaped: some line readers split at them.
    """
    text = _encoder.encode(value)
    if b"\xe2\x80" in text:
        text = text.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return text


# An unclosed string runs to the end of the line: trying again at each quote would take quadratic time.
_STRING = rb'(?s)"(?:[^"\\]++|\\.)*+"?'


def is_too_deep(line: bytes) -> bool:
    """Whether a line nests deeper than the cap. Two counts in C settle it for almost every line."""
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

    JavaScript strings may hold half a character, and its JSON writer then sends one.
    """

    def replace(match: re.Match[bytes]) -> bytes:
        return b"\\ufffd" if match["lone"] else match[0]

    mended = re.sub(_ESCAPE, replace, line)
    return mended if mended != line else None


def convert(value: Any, kind: type[Any]) -> Any:
    """A plain JSON value as the given class. Raises msgspec.ValidationError."""
    return msgspec.convert(value, kind, dec_hook=dec_hook)


def to_builtins(value: Any) -> Any:
    """A message or struct as plain JSON values."""
    return msgspec.to_builtins(value, enc_hook=enc_hook)


__all__ = [
    "NESTING_CAP",
    "UNSET",
    "Json",
    "JsonBacked",
    "Message",
    "Number",
    "Refused",
    "Struct",
    "Unknown",
    "UnsetType",
    "catalogue",
    "convert",
    "decode",
    "decoder",
    "encode",
    "encode_json",
    "is_too_deep",
    "message",
    "message_of",
    "replace_lone_surrogates",
    "to_builtins",
]
