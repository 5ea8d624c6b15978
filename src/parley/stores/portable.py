"""A session on its way from one store to another: a line per entry, nothing lost.

    {"parley":"session","version":1,"info":{"id":…,"title":…}}
    {"seq":0,"kind":"user","at":…,"message":{…},"context":{…}}
    {"parley":"end","entries":1}

The last line tells a whole file from one that was cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Json, Struct, spell
from parley.stores.base import Entry, Info, Store

VERSION = 1


class Parcel(Struct, frozen=True):
    info: Info
    entries: list[Entry]


def packed(info: Info, entries: Iterable[Entry]) -> Iterator[bytes]:
    """The lines of a session."""
    yield spell({"parley": "session", "version": VERSION, "info": info}) + b"\n"
    count = 0
    for entry in entries:
        count += 1
        yield spell(entry) + b"\n"
    yield spell({"parley": "end", "entries": count}) + b"\n"


def unpacked(data: bytes) -> Parcel:
    """Raises SessionError unless it is a whole session."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    if len(lines) < 2:
        raise SessionError("this is no exported session: it has no beginning and end")
    info = head(lines[0])
    entries = [read(line, number) for number, line in enumerate(lines[1:-1], 2)]
    if decoded(lines[-1], len(lines)) != {"parley": "end", "entries": len(entries)}:
        raise SessionError(f"the exported session is not whole: its end is missing behind {len(entries)} entries")
    if [entry.seq for entry in entries] != sorted({entry.seq for entry in entries}):
        raise SessionError("the entries of the exported session are not in their order")
    return Parcel(info, entries)


def head(line: bytes) -> Info:
    """Raises SessionError."""
    found = decoded(line, 1)
    if found.get("parley") != "session":
        raise SessionError("this is no exported session: its first line does not say so")
    if found.get("version") != VERSION:
        raise SessionError(f"the exported session has version {found.get('version')}; this is {VERSION}")
    try:
        return msgspec.convert(found.get("info"), Info)
    except msgspec.ValidationError as flaw:
        raise SessionError(f"line 1 of the exported session: {flaw}") from None


def read(line: bytes, number: int) -> Entry:
    """Raises SessionError."""
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as flaw:
        raise SessionError(f"line {number} of the exported session: {flaw}") from None


def decoded(line: bytes, number: int) -> Json:
    """Raises SessionError."""
    try:
        return msgspec.json.decode(line, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as flaw:
        raise SessionError(f"line {number} of the exported session: {flaw}") from None


def fill(store: Store, session_id: str, entries: Iterable[Entry]) -> None:
    """Make a session of these entries, or none at all. Raises SessionError."""
    log = store.create(session_id)
    try:
        for entry in entries:
            log.append(entry)
        log.sync()
    except BaseException:
        log.close()
        if store.exists(session_id):
            store.delete(session_id)
        raise
    log.close()


def adorn(store: Store, session_id: str, title: str | None, tag: str | None) -> None:
    """Give a session what the other had."""
    info = store.info(session_id)
    if title and info is not None and info.title != title:
        store.rename(session_id, title)
    if tag and info is not None:
        store.tag(session_id, tag)
