"""A session on its way from one store to another: a line per entry, nothing lost.

    {"parley":"session","version":1,"info":{"id":…,"title":…}}
    {"seq":0,"kind":"user","at":…,"message":{…},"context":{…}}
    {"parley":"agent","id":…,"meta":{…}}
    {"seq":0,"kind":"user","at":…,"message":{…},"context":{…}}
    {"parley":"end","entries":2}

What stands behind a subagent's line was said by it. The last line tells a whole file from one that was cut off.
Files without subagents have version 1, and those with them version 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Json, Struct, spell
from parley.stores.base import Agent, Entry, Info, Store, copied
from parley.stores.entry_validation import oddity

VERSION = 2
IS_AGENT = b'{"parley":"agent",'


class Crew(Struct, frozen=True):
    """A subagent, and what it said."""

    agent: Agent
    entries: list[Entry]


class Parcel(Struct, frozen=True):
    info: Info
    entries: list[Entry]
    agents: list[Crew]


def packed(
    info: Info, entries: Iterable[Entry], agents: Sequence[tuple[Agent, Iterable[Entry]]] = ()
) -> Iterator[bytes]:
    """The lines of a session."""
    yield spell({"parley": "session", "version": VERSION if agents else 1, "info": info}) + b"\n"
    count = 0
    for entry in entries:
        count += 1
        yield spell(entry) + b"\n"
    for agent, said in agents:
        yield spell({"parley": "agent", "id": agent.id, "meta": agent.meta}) + b"\n"
        for entry in said:
            count += 1
            yield spell(entry) + b"\n"
    yield spell({"parley": "end", "entries": count}) + b"\n"


def unpacked(data: bytes) -> Parcel:
    """Raises SessionError unless it is a whole session."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    if len(lines) < 2:
        raise SessionError("this is no exported session: it has no beginning and end")
    parcel = Parcel(head(lines[0]), [], [])
    heap = parcel.entries
    for number, line in enumerate(lines[1:-1], 2):
        if line.startswith(IS_AGENT):
            parcel.agents.append(Crew(agent(line, number), []))
            heap = parcel.agents[-1].entries
        else:
            heap.append(read(line, number))
    heaps = [parcel.entries, *(crew.entries for crew in parcel.agents)]
    count = sum(map(len, heaps))
    if decoded(lines[-1], len(lines)) != {"parley": "end", "entries": count}:
        raise SessionError(f"the exported session is not whole: its end is missing behind {count} entries")
    if any([entry.seq for entry in heap] != sorted({entry.seq for entry in heap}) for heap in heaps):
        raise SessionError("the entries of the exported session are not in their order")
    if not parcel.entries:
        raise SessionError("the exported session has no entries")
    return parcel


def head(line: bytes) -> Info:
    """Raises SessionError."""
    found = decoded(line, 1)
    if found.get("parley") != "session":
        raise SessionError("this is no exported session: its first line does not say so")
    if found.get("version") not in range(1, VERSION + 1):
        raise SessionError(f"the exported session has version {found.get('version')}; this is {VERSION}")
    try:
        return msgspec.convert(found.get("info"), Info)
    except msgspec.ValidationError as flaw:
        raise SessionError(f"line 1 of the exported session: {flaw}") from None


def agent(line: bytes, number: int) -> Agent:
    """Raises SessionError."""
    try:
        return msgspec.json.decode(line, type=Agent)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as flaw:
        raise SessionError(f"line {number} of the exported session: {flaw}") from None


def read(line: bytes, number: int) -> Entry:
    """Raises SessionError."""
    try:
        entry = msgspec.json.decode(line, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as flaw:
        raise SessionError(f"line {number} of the exported session: {flaw}") from None
    if (odd := oddity(entry)) is not None:
        raise SessionError(f"line {number} of the exported session: {odd}")
    return entry


def decoded(line: bytes, number: int) -> Json:
    """Raises SessionError."""
    try:
        return msgspec.json.decode(line, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as flaw:
        raise SessionError(f"line {number} of the exported session: {flaw}") from None


def fill(store: Store, session_id: str, entries: Iterable[Entry], agents: Iterable[Crew] = ()) -> None:
    """Make a session of these entries, or none at all. Raises SessionError."""
    log = store.create(session_id)
    try:
        for entry in entries:
            log.append(entry)
        for crew in agents:
            with closing(store.agent_log(session_id, crew.agent.id, crew.agent.meta)) as own:
                for entry in copied(crew.entries, session_id):
                    own.append(entry)
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
