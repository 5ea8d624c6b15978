"""An entry as the layout of the original CLI spells it, and back.

What the layout has no place for goes into the field `parley` of a line, or into lines of the
type `parley`; its readers skip both. Programs that count tokens add up `message.usage` of whatever line has it, so
a message of ours that has one stands under another name.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.protocol.base import Json, Struct
from parley.stores.base import Entry

CONVERSATION = ("user", "assistant")
MIRRORED = "mirrored"
"""The field that marks a copy of a line, kept by a client."""
BEGINNINGS = ("system", "conversation_reset")
"""Entries that begin a new chain: what follows them does not go back to what was before."""
CHAINED = (*CONVERSATION, *BEGINNINGS)
COUNTED = frozenset({"usage", "message"})
"""What programs that count tokens look for in a message."""


class Context(Struct, frozen=True, kw_only=True):
    """What every line of a session says of its surroundings."""

    cwd: str
    version: str
    entrypoint: str = "cli"
    git_branch: str = ""
    agent_id: str = ""
    """Of the subagent whose transcript it is; empty for the session's own."""


def line(entry: Entry, session_id: str, context: Context, parent: str | None) -> Json:
    """An entry as the layout spells it. `parent` is the uuid of the line it follows."""
    if entry.kind == "title":
        title = str(entry.message.get("title"))
        # Readers of the layout look for exactly these fields.
        return {"type": "custom-title", "customTitle": title, "sessionId": session_id, "seq": entry.seq}
    if entry.kind in BEGINNINGS:
        return beginning(entry, session_id, context, parent)
    if entry.kind not in CONVERSATION:
        return {"type": "parley", "sessionId": session_id, "timestamp": entry.at, **aside(entry)}
    told = dict(entry.message)
    spelled: Json = {
        "parentUuid": parent,
        "isSidechain": bool(context.agent_id),
        "type": entry.kind,
        "message": told.pop("message"),
        "uuid": told.pop("uuid"),
        "timestamp": entry.at,
        **place(entry, session_id, context),
    }
    if context.agent_id:
        spelled["agentId"] = context.agent_id
    for theirs, ours in RENAMED.items():
        if ours in told:
            spelled[theirs] = told.pop(ours)
    left = {key: value for key, value in told.items() if key not in IMPLIED}
    if told.get("parent_tool_use_id") is not None:
        left["parent_tool_use_id"] = told["parent_tool_use_id"]
    if told.get("timestamp", entry.at) != entry.at:
        left["timestamp"] = told["timestamp"]
    return {**spelled, **entry.context, **({"parley": left} if left else {})}


def held(entry: Entry, session_id: str) -> Json:
    """A block of an answer that is not finished, as a line that no other program takes for a part of the conversation.

    It has no `timestamp`: the line that takes its place has it, and times rise from line to line.
    """
    return {"type": "parley", "sessionId": session_id, "at": entry.at, **aside(entry)}


def aside(entry: Entry) -> Json:
    """What a line of ours says of an entry."""
    is_counted = not COUNTED.isdisjoint(entry.message)
    body = {"kind": entry.kind, "seq": entry.seq, "entry" if is_counted else "message": entry.message}
    return {**body, "context": entry.context} if entry.context else body


def entry(json: Json, session_id: str, seq: int, *, of_agent: bool = False) -> Entry | None:
    """The entry of a line, numbered `seq` if it has no number; None for what is no entry of ours or of the original.

    `of_agent`: in the transcript of a subagent, whose lines stand beside the session's own conversation.
    """
    kind, own = json.get("type"), json.get("seq")
    at, seq = str(json.get("timestamp", "")), own if isinstance(own, int) else seq
    if kind in CONVERSATION:
        if "uuid" not in json and "sessionId" not in json:
            json = {**json, "uuid": f"{session_id}/{seq}"}  # a line of the wire, as others keep them in a folder
        return spoken(json, session_id, seq, at) if is_said(json, of_agent=of_agent) else None
    if kind == "parley":
        message, context = json.get("entry") or json.get("message") or {}, json.get("context") or {}
        at = at or str(json.get("at", ""))
        is_whole = isinstance(message, dict) and isinstance(context, dict)
        return Entry(seq=seq, kind=str(json.get("kind")), at=at, message=message, context=context) if is_whole else None
    if kind == "custom-title" and isinstance(own, int):  # ours: others do not number them
        return Entry(seq=seq, kind="title", at=at, message={"title": json.get("customTitle")})
    return began(json, session_id, seq, at) if kind == "system" else None


def spoken(json: Json, session_id: str, seq: int, at: str) -> Entry:
    """A line of the conversation. There are many of them, and most have nothing but what every line has."""
    told: Json = {"type": json["type"], "message": json["message"], "uuid": json["uuid"]}
    if not RENAMED.keys().isdisjoint(json):
        told |= {ours: json[theirs] for theirs, ours in RENAMED.items() if theirs in json}
    told["session_id"], told["timestamp"], told["parent_tool_use_id"] = session_id, at, None
    if isinstance(left := json.get("parley"), dict):
        told |= left
    context = {} if OWN.issuperset(json) else {key: value for key, value in json.items() if key not in OWN}
    return Entry(seq=seq, kind=json["type"], at=at, message=told, context=context)


DICT = frozenset({dict})


def place(entry: Entry, session_id: str, context: Context) -> Json:
    """Where and by whom it was said, as every line of the layout has it."""
    return {
        "userType": "external",
        "entrypoint": context.entrypoint,
        "cwd": context.cwd,
        "sessionId": session_id,
        "version": context.version,
        "gitBranch": context.git_branch,
        "seq": entry.seq,
    }


def next_parent(entry: Entry) -> str | None:
    """What the line behind an entry follows; None if the entry does not change that."""
    if entry.kind == "cut":
        return str(entry.message.get("after"))
    return str(entry.message["uuid"]) if entry.kind in CHAINED else None


def beginning(entry: Entry, session_id: str, context: Context, parent: str | None) -> Json:
    """A boundary as the layout has it: no line is its parent, but it knows which was the last before it."""
    told = entry.message
    metadata = told.get("compact_metadata")
    return {
        "parentUuid": None,
        "logicalParentUuid": parent,
        "isSidechain": False,
        "type": "system",
        "subtype": told.get("subtype") or entry.kind,
        "content": "Conversation compacted" if metadata else "Conversation cleared",
        "isMeta": False,
        "timestamp": entry.at,
        "uuid": told["uuid"],
        "level": "info",
        **({"compactMetadata": respelled(metadata, camel)} if metadata else {}),
        **place(entry, session_id, context),
        "parley": told,
    }


def began(json: Json, session_id: str, seq: int, at: str) -> Entry | None:
    """The boundary of a line, ours or the original's; None for other system lines."""
    uuid = json.get("uuid")
    if json.get("isSidechain") or not isinstance(uuid, str):
        return None
    if isinstance(json.get("parley"), dict):
        told = json["parley"]
        kind = "system" if json.get("subtype") == "compact_boundary" else str(json.get("subtype"))
        return Entry(seq=seq, kind=kind, at=at, message=told) if kind in BEGINNINGS else None
    if json.get("subtype") != "compact_boundary":
        return None
    metadata = json.get("compactMetadata")
    told = {
        "type": "system",
        "subtype": "compact_boundary",
        "compact_metadata": respelled(metadata, snake) if isinstance(metadata, dict) else {},
        "logical_parent_uuid": json.get("logicalParentUuid"),
        "session_id": session_id,
        "uuid": uuid,
    }
    return Entry(seq=seq, kind="system", at=at, message=told)


def respelled(json: Json, spelling: Callable[[str], str]) -> Json:
    """The same object with its names in another spelling."""
    return {
        spelling(name): respelled(value, spelling) if isinstance(value, dict) else value for name, value in json.items()
    }


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def is_said(json: Json, *, of_agent: bool) -> bool:
    """Whether a line of user or assistant is part of the transcript's own conversation, and whole."""
    if bool(json.get("isSidechain")) is not of_agent or not isinstance(json.get("uuid"), str):
        return False
    message = json.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, str) or (isinstance(content, list) and DICT.issuperset(map(type, content)))


# The layout's names of fields, and the wire's.
RENAMED = {
    "requestId": "request_id",
    "toolUseResult": "tool_use_result",
    "isMeta": "isSynthetic",
    "isApiErrorMessage": "is_api_error_message",
}
IMPLIED = frozenset({"type", "session_id", "timestamp", "parent_tool_use_id"})
# What every line has; the rest is an entry's context.
OWN = frozenset(
    {
        "parentUuid",
        "isSidechain",
        "type",
        "message",
        "uuid",
        "timestamp",
        "userType",
        "entrypoint",
        "cwd",
        "sessionId",
        "version",
        "gitBranch",
        "seq",
        "agentId",
        "parley",
        "own",
        "check",
        "sum",
        MIRRORED,
        *RENAMED,
    }
)
