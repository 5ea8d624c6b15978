"""Encode a conversation without encoding again what was encoded for the request before.

    encoder = PrefixEncoder()
    encode_object(fields, {"messages": encoder.encode(messages)})
    encode_object(fields, {"messages": encoder.encode([*messages, more])})      # encodes `more`, copies the rest

An item is recognised by its identity, so an item that was passed must not change. A few conversations are remembered,
because the agents of a session share a backend.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, count
from operator import is_not

import msgspec

from parley.protocol.base import Json

CONVERSATIONS = 4
"""How many are remembered. The one that was not used for the longest time is forgotten."""

Convert = Callable[[Json], list[Json]]
"""The items that are sent for an item; depends on nothing else."""


class EncodedPrefix:
    """The items of one conversation and their JSON, separated by commas."""

    def __init__(self) -> None:
        self.items: list[Json] = []
        self._ends = array("q")
        """Where the JSON of each item ends."""
        self._data = bytearray()

    def encode(self, items: Sequence[Json], convert: Convert | None) -> bytearray:
        kept = next(compress(count(), map(is_not, self.items, items)), min(len(self.items), len(items)))
        del self.items[kept:], self._ends[kept:]
        del self._data[self._ends[-1] if kept else 0 :]
        for item in items[kept:]:
            for converted in (item,) if convert is None else convert(item):
                if self._data:
                    self._data += b","
                self._data += msgspec.json.encode(converted)
            self.items.append(item)
            self._ends.append(len(self._data))
        return self._data


class PrefixEncoder:
    def __init__(self, convert: Convert | None = None) -> None:
        self._convert = convert
        self._prefixes: list[EncodedPrefix] = []
        """The last used first."""

    def encode(self, items: Sequence[Json]) -> bytearray:
        """The JSON of the items, separated by commas. Read-only, and valid until the next call."""
        if not items:
            return bytearray()
        prefix = self._find(items[0])
        self._prefixes.insert(0, prefix)
        del self._prefixes[CONVERSATIONS:]
        return prefix.encode(items, self._convert)

    def _find(self, first: Json) -> EncodedPrefix:
        """Take the conversation with this first item out of the list, or start one."""
        for number, prefix in enumerate(self._prefixes):
            if prefix.items[0] is first:
                return self._prefixes.pop(number)
        return EncodedPrefix()


def encode_object(fields: Json, lists: Mapping[str, bytearray]) -> bytes:
    """The JSON object with these fields. `lists` has the items of some of them, encoded; they are copied once."""
    pieces: list[bytes | bytearray] = []
    for name, value in fields.items():
        pieces += (b",", msgspec.json.encode(name), b":")
        pieces += (b"[", lists[name], b"]") if name in lists else (msgspec.json.encode(value),)
    pieces[0] = b"{"
    return b"".join([*pieces, b"}"])
