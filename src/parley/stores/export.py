"""Export and import sessions as JSON Lines, one line per entry, without loss.

    {"parley":"session","version":1,"info":{"id":…,"title":…}}
    {"seq":0,"kind":"user","at":…,"message":{…},"context":{…}}
    {"parley":"agent","id":…,"meta":{…}}
    {"seq":0,"kind":"user","at":…,"message":{…},"context":{…}}
    {"parley":"end","entries":2}

The entries after an `agent` line belong to that subagent. The last line shows that the file is complete.
Files without subagents have version 1; files with subagents have version 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Json, Struct, encode_json
from parley.stores.base import AgentInfo, Entry, Info, Store, copy_entries
from parley.stores.files.foreign_lines import find_problem

VERSION = 2
Decoded = TypeVar("Decoded")
IS_AGENT = b'{"parley":"agent",'


class AgentTranscript(Struct, frozen=True):
    """A subagent and its entries."""

    agent: AgentInfo
    entries: list[Entry]


class SessionExport(Struct, frozen=True):
    info: Info
    entries: list[Entry]
    agents: list[AgentTranscript]


def pack(
    info: Info, entries: Iterable[Entry], agents: Sequence[tuple[AgentInfo, Iterable[Entry]]] = ()
) -> Iterator[bytes]:
    """Yield the lines of an export."""
    yield encode_json({"parley": "session", "version": VERSION if agents else 1, "info": info}) + b"\n"
    count = 0
    for entry in entries:
        count += 1
        yield encode_json(entry) + b"\n"
    for agent, agent_entries in agents:
        yield encode_json({"parley": "agent", "id": agent.id, "meta": agent.meta}) + b"\n"
        for entry in agent_entries:
            count += 1
            yield encode_json(entry) + b"\n"
    yield encode_json({"parley": "end", "entries": count}) + b"\n"


def unpack(data: bytes) -> SessionExport:
    """Read a complete export. Raises SessionError."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    if len(lines) < 2:
        raise SessionError("not an exported session: expected a header line and an end line")
    export = SessionExport(read_header(lines[0]), [], [])
    log = export.entries
    for number, line in enumerate(lines[1:-1], 2):
        if line.startswith(IS_AGENT):
            export.agents.append(AgentTranscript(decode(line, number, AgentInfo), []))
            log = export.agents[-1].entries
        else:
            log.append(read_entry(line, number))
    logs = [export.entries, *(transcript.entries for transcript in export.agents)]
    count = sum(map(len, logs))
    if decode(lines[-1], len(lines), dict) != {"parley": "end", "entries": count}:
        raise SessionError(
            f"the exported session is incomplete: the end line after {count} entries is missing or wrong"
        )
    if any([entry.seq for entry in log] != sorted({entry.seq for entry in log}) for log in logs):
        raise SessionError("the exported session is invalid: its entries are not in ascending order")
    if not export.entries:
        raise SessionError("the exported session has no entries")
    return export


def read_header(line: bytes) -> Info:
    """Raises SessionError."""
    found: Json = decode(line, 1, dict)
    if found.get("parley") != "session":
        raise SessionError('not an exported session: line 1 has no `"parley": "session"`')
    if found.get("version") not in range(1, VERSION + 1):
        raise SessionError(
            f"the exported session has version {found.get('version')}; this program reads versions 1 to {VERSION}"
        )
    try:
        return msgspec.convert(found.get("info"), Info)
    except msgspec.ValidationError as exc:
        raise SessionError(f"line 1 of the exported session: {exc}") from None


def read_entry(line: bytes, number: int) -> Entry:
    """Raises SessionError."""
    entry = decode(line, number, Entry)
    if (problem := find_problem(entry)) is not None:
        raise SessionError(f"line {number} of the exported session: {problem}")
    return entry


def decode(line: bytes, number: int, kind: type[Decoded]) -> Decoded:
    """Raises SessionError."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise SessionError(f"line {number} of the exported session: {exc}") from None


def import_session(
    store: Store, session_id: str, entries: Iterable[Entry], agents: Iterable[AgentTranscript] = ()
) -> None:
    """Create a session from these entries; on an error, delete it again. Raises SessionError."""
    log = store.create(session_id)
    try:
        for entry in entries:
            log.append(entry)
        for transcript in agents:
            with closing(store.agent_log(session_id, transcript.agent.id, transcript.agent.meta)) as agent_log:
                for entry in copy_entries(transcript.entries, session_id):
                    agent_log.append(entry)
        log.sync()
    except BaseException:
        log.close()
        if store.exists(session_id):
            store.delete(session_id)
        raise
    log.close()


def set_labels(store: Store, session_id: str, title: str | None, tag: str | None) -> None:
    """Set title and tag of an imported session, where given."""
    info = store.info(session_id)
    if title and info is not None and info.title != title:
        store.rename(session_id, title)
    if tag and info is not None:
        store.tag(session_id, tag)
