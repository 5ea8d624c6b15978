"""Encode a conversation without encoding again what was encoded for the request before.

    encoder = PrefixEncoder()
    encode_object(fields, {"messages": [encoder.encode(messages)]})
    encode_object(fields, {"messages": [encoder.encode([*messages, more])]})      # encodes `more`, copies nothing

An item is recognised by its identity, so an item that was passed must not change. Items that are known to be the same
(`SettledMessages`) are not looked at. A few conversations are remembered,
because the agents of a session share a backend.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress, count
from operator import is_not

import msgspec

from parley.models.base import SettledMessages
from parley.protocol.base import Json

CONVERSATIONS = 4
"""How many are remembered. The one that was not used for the longest time is forgotten."""

Pieces = Sequence[bytes | memoryview]
"""Data in several parts, which are sent one after the other and never joined, because one of them may be large."""
Convert = Callable[[Json], list[Json]]
"""The items that are sent for an item; depends on nothing else."""
Collect = Callable[[Json], Iterable[str]]
"""The names in an item, for example the ids of its tool calls."""


class EncodedPrefix:
    """The items of one conversation and their JSON, separated by commas."""

    def __init__(self) -> None:
        self.items: list[Json] = []
        self._ends = array("q")
        """Where the JSON of each item ends."""
        self._data = bytearray()
        self.names: dict[str, int] = {}
        """The names in the items, each with the number of the first item that has it; the numbers rise."""
        self._origin: object = None
        self._settled = 0
        """Of the last items, if they are SettledMessages."""

    def encode(self, items: Sequence[Json], convert: Convert | None, collect: Collect | None) -> memoryview:
        kept = self._count_kept(items)
        del self.items[kept:], self._ends[kept:]
        self._cut(self._ends[-1] if kept else 0)
        while self.names and next(reversed(self.names.values())) >= kept:
            self.names.popitem()
        for item in items[kept:]:
            for converted in (item,) if convert is None else convert(item):
                if self._data:
                    self._data += b","
                self._data += msgspec.json.encode(converted)
            for name in () if collect is None else collect(item):
                self.names.setdefault(name, len(self.items))
            self.items.append(item)
            self._ends.append(len(self._data))
        return memoryview(self._data)

    def _count_kept(self, items: Sequence[Json]) -> int:
        """How many items are those of the last call."""
        same = 0
        if isinstance(items, SettledMessages):
            same = min(self._settled, items.settled) if items.origin is self._origin else 0
            self._origin, self._settled = items.origin, items.settled
        else:
            self._origin, self._settled = None, 0
        differs = map(is_not, self.items[same:], items[same:])
        return next(compress(count(same), differs), min(len(self.items), len(items)))

    def _cut(self, end: int) -> None:
        """Drop the data after a place. A request that was not sent yet keeps the data as they are."""
        try:
            self._data.append(0)
            del self._data[end:]
        except BufferError:
            self._data = self._data[:end]


class PrefixEncoder:
    def __init__(self, convert: Convert | None = None, collect: Collect | None = None) -> None:
        self._convert = convert
        self._collect = collect
        self._prefixes: list[EncodedPrefix] = []
        """The last used first."""

    def encode(self, items: Sequence[Json]) -> memoryview:
        """The JSON of the items, separated by commas. Read-only; while it exists, the next call copies."""
        if not items:
            return memoryview(b"")
        prefix = self._find(items[0])
        self._prefixes.insert(0, prefix)
        del self._prefixes[CONVERSATIONS:]
        return prefix.encode(items, self._convert, self._collect)

    def list_names(self) -> frozenset[str]:
        """The names in the items of the last call."""
        return frozenset(self._prefixes[0].names) if self._prefixes else frozenset()

    def _find(self, first: Json) -> EncodedPrefix:
        """Take the conversation with this first item out of the list, or start one."""
        for number, prefix in enumerate(self._prefixes):
            if prefix.items[0] is first:
                return self._prefixes.pop(number)
        return EncodedPrefix()


def encode_object(fields: Json, lists: Mapping[str, Pieces]) -> Pieces:
    """The JSON object with these fields. `lists` has the items of some of them, encoded."""
    pieces: list[bytes | memoryview] = []
    separator, short = b"{", dict[str, object]()
    for name, value in fields.items():
        if name not in lists:
            short[name] = value
            continue
        if short:
            pieces.append(separator + msgspec.json.encode(short)[1:-1])
            separator, short = b",", {}
        opening = b"%b%b:[" % (separator, msgspec.json.encode(name))
        for items in lists[name]:
            if items:
                pieces += (opening, items)
                opening = b","
        pieces.append(b"]" if opening == b"," else opening + b"]")
        separator = b","
    return [*pieces, separator + msgspec.json.encode(short)[1:] if short or not pieces else b"}"]
