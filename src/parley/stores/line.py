"""An entry as the layout of the original CLI spells it, and back.

What the layout has no place for goes into the field `parley` of a line, or into lines of the
type `parley`; its readers skip both.
"""

from __future__ import annotations

from parley.protocol.base import Json, Struct
from parley.stores.base import Entry

CONVERSATION = ("user", "assistant")
MIRRORED = "mirrored"
"""The field that marks a copy of a line, kept by a client."""


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
    if entry.kind not in CONVERSATION:
        body = {"kind": entry.kind, "seq": entry.seq, "message": entry.message}
        more = {"context": entry.context} if entry.context else {}
        return {"type": "parley", "sessionId": session_id, "timestamp": entry.at, **body, **more}
    told = dict(entry.message)
    spelled: Json = {
        "parentUuid": parent,
        "isSidechain": bool(context.agent_id),
        "type": entry.kind,
        "message": told.pop("message"),
        "uuid": told.pop("uuid"),
        "timestamp": entry.at,
        "userType": "external",
        "entrypoint": context.entrypoint,
        "cwd": context.cwd,
        "sessionId": session_id,
        "version": context.version,
        "gitBranch": context.git_branch,
        "seq": entry.seq,
    }
    if context.agent_id:
        spelled["agentId"] = context.agent_id
    for theirs, ours in RENAMED.items():
        if ours in told:
            spelled[theirs] = told.pop(ours)
    left = {key: value for key, value in told.items() if key not in IMPLIED}
    if told.get("parent_tool_use_id") is not None:
        left["parent_tool_use_id"] = told["parent_tool_use_id"]
    return {**spelled, **entry.context, **({"parley": left} if left else {})}


def entry(json: Json, session_id: str, seq: int) -> Entry | None:
    """The entry of a line, numbered `seq` if it has no number; None for what is no entry of ours or of the original."""
    at = str(json.get("timestamp", ""))
    seq = json["seq"] if isinstance(json.get("seq"), int) else seq
    if json.get("type") == "parley":
        message, context = json.get("message") or {}, json.get("context") or {}
        return Entry(seq=seq, kind=str(json.get("kind")), at=at, message=message, context=context)
    if json.get("type") == "custom-title" and isinstance(json.get("seq"), int):  # ours: others do not number them
        return Entry(seq=seq, kind="title", at=at, message={"title": json.get("customTitle")})
    if not is_said(json):
        return None
    told: Json = {"type": json["type"], "message": json["message"], "uuid": json["uuid"]}
    if not RENAMED.keys().isdisjoint(json):
        told |= {ours: json[theirs] for theirs, ours in RENAMED.items() if theirs in json}
    told["session_id"], told["timestamp"], told["parent_tool_use_id"] = session_id, at, None
    if left := json.get("parley"):
        told |= left
    # Most lines have nothing else, and there are many lines.
    context = {} if OWN.issuperset(json) else {key: value for key, value in json.items() if key not in OWN}
    return Entry(seq=seq, kind=json["type"], at=at, message=told, context=context)


DICT = frozenset({dict})


def next_parent(entry: Entry) -> str | None:
    """What the line behind an entry follows; None if the entry does not change that."""
    if entry.kind == "cut":
        return str(entry.message.get("after"))
    return str(entry.message["uuid"]) if entry.kind in CONVERSATION else None


def is_said(json: Json) -> bool:
    """Whether a line is part of the session's own conversation, and whole."""
    if json.get("type") not in CONVERSATION or json.get("isSidechain") or not isinstance(json.get("uuid"), str):
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
        "parley",
        "check",
        MIRRORED,
        *RENAMED,
    }
)
