"""What a line is, without decoding the rest of it.

    head = peek(b'{"uuid":"u-1","message":{...},"type":"assistant"}')
    head.type, head.uuid      ->  "assistant", "u-1"

Neither the order of the keys nor white space matters. Of repeated keys the last one counts, as for `decode`. A field
with a value of a wrong type is absent.
"""

# No `from __future__ import annotations`: msgspec evaluates string annotations one by one.
from contextlib import suppress
from typing import Any

import msgspec


class HeadPart(msgspec.Struct, frozen=True):
    """The `request` of a control request, or the `response` of a reply."""

    subtype: str | None = None
    request_id: str | int | None = None


NOTHING = HeadPart()


class Head(msgspec.Struct, frozen=True):
    """The fields of a line by which it is routed."""

    type: str | None = None
    subtype: str | None = None
    request_id: str | int | None = None
    request: HeadPart = NOTHING
    response: HeadPart = NOTHING
    uuid: str | None = None
    session_id: str | None = None
    status: str | None = None
    state: str | None = None
    command_uuid: str | None = None
    user_message_uuids: list[str] | None = None
    jsonrpc: Any = msgspec.UNSET


_decode = msgspec.json.Decoder(Head).decode


def peek(line: bytes) -> Head:
    """The head of a line. Raises msgspec.DecodeError if it is not a JSON object."""
    try:
        return _decode(line)
    except msgspec.ValidationError:
        head: Head = _read_valid(line, Head)
        return head
    except (UnicodeDecodeError, RecursionError) as exc:
        raise msgspec.DecodeError(str(exc)) from None


def _read_valid(data: bytes | msgspec.Raw, cls: Any) -> Any:
    """The struct of an object that has only the valid ones of its fields."""
    try:
        given = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (UnicodeDecodeError, RecursionError) as exc:
        raise msgspec.DecodeError(str(exc)) from None
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        value = given.get(field.name)
        if value is None:
            continue
        with suppress(msgspec.ValidationError, UnicodeDecodeError, RecursionError):
            if field.type is HeadPart:
                found[field.name] = _read_valid(value, HeadPart)
            else:
                found[field.name] = msgspec.json.decode(value, type=field.type)
    return cls(**found)
