"""Encode entries as transcript lines in Claude Code's layout, and decode them.

Fields without an equivalent in the layout go into the field `parley` of a line, or into lines of type `parley`; other
readers skip both. Programs that count tokens add up `message.usage` of every line, so entries of ours with such a
field are stored under another name.

An answer is stored block by block while it streams, before each block is sent to the client. Its usage and stop reason
are known only at its end, and programs that count tokens read them from the messages. So a block of an unfinished
answer is first stored as a `parley` line: it is held. Its message line follows when the answer has ended: with the
`usage` entry, which has the final figures, or without it before the next entry. A block that is stored together with
the `usage` entry is not held; its line also says what was sent instead of the final figures.

    encoder = TranscriptEncoder(session_id, context)
    encoded = encoder.encode([entry])     # changes nothing yet, because the write may fail
    encoder.commit(encoded)               # the lines are written

`TranscriptDecoder` is the reverse. It yields each block once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from parley.protocol.base import Json, Struct
from parley.stores.base import USAGE, Entry

CONVERSATION = ("user", "assistant")
MIRRORED = "mirrored"
"""The field that marks a line as a copy for the client's own store."""
BOUNDARIES = ("system", "conversation_reset")
"""Entries that start a new chain: later lines do not lead back to the lines before."""
CHAINED = (*CONVERSATION, *BOUNDARIES)
COUNTED = frozenset({"usage", "message"})
"""The fields that token counters read from any line."""
FIGURES = ("usage", "stop_reason", "stop_sequence")
"""The fields of a message that are known at the end of an answer."""
DICT = frozenset({dict})
# Field names in the layout, and on the wire.
RENAMED = {
    "requestId": "request_id",
    "toolUseResult": "tool_use_result",
    "isMeta": "isSynthetic",
    "isApiErrorMessage": "is_api_error_message",
}
IMPLIED = frozenset({"type", "session_id", "timestamp", "parent_tool_use_id"})
# The fields of every line. All others belong to the entry's context.
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


class EntryContext(Struct, frozen=True, kw_only=True):
    """The fields that are the same in every line of a session."""

    cwd: str
    version: str
    entrypoint: str = "cli"
    git_branch: str = ""
    agent_id: str = ""
    """The subagent whose transcript it is; empty for the session's own."""


def encode_entry(entry: Entry, session_id: str, context: EntryContext, parent: str | None) -> Json:
    """Encode an entry. `parent` is the uuid of the line it follows."""
    if entry.kind == "title":
        title = str(entry.message.get("title"))
        # The other readers need exactly these fields.
        return {"type": "custom-title", "customTitle": title, "sessionId": session_id, "seq": entry.seq}
    if entry.kind in BOUNDARIES:
        return encode_boundary(entry, session_id, context, parent)
    if entry.kind not in CONVERSATION:
        return {"type": "parley", "sessionId": session_id, "timestamp": entry.at, **extra_fields(entry)}
    fields = dict(entry.message)
    line: Json = {
        "parentUuid": parent,
        "isSidechain": bool(context.agent_id),
        "type": entry.kind,
        "message": fields.pop("message"),
        "uuid": fields.pop("uuid"),
        "timestamp": entry.at,
        **location_fields(entry, session_id, context),
    }
    if context.agent_id:
        line["agentId"] = context.agent_id
    for theirs, ours in RENAMED.items():
        if ours in fields:
            line[theirs] = fields.pop(ours)
    if entry.kind == "assistant" and "requestId" not in line and "id" in line["message"]:
        # Not every server has request ids. Programs that count tokens need one, or count an answer once for each block.
        line["requestId"] = line["message"]["id"]
    extra = {key: value for key, value in fields.items() if key not in IMPLIED}
    if fields.get("parent_tool_use_id") is not None:
        extra["parent_tool_use_id"] = fields["parent_tool_use_id"]
    if fields.get("timestamp", entry.at) != entry.at:
        extra["timestamp"] = fields["timestamp"]
    return {**line, **entry.context, **({"parley": extra} if extra else {})}


def encode_unfinished(entry: Entry, session_id: str) -> Json:
    """Encode a block of an unfinished answer as a line that other programs do not read as a message.

    It has no `timestamp`, because the final line has it and timestamps must rise from line to line.
    """
    return {"type": "parley", "sessionId": session_id, "at": entry.at, **extra_fields(entry)}


def extra_fields(entry: Entry) -> Json:
    """The fields of a `parley` line."""
    is_counted = not COUNTED.isdisjoint(entry.message)
    body = {"kind": entry.kind, "seq": entry.seq, "entry" if is_counted else "message": entry.message}
    return {**body, "context": entry.context} if entry.context else body


def decode_entry(json: Json, session_id: str, seq: int, *, of_agent: bool = False) -> Entry | None:
    """Decode a line. It gets the number `seq` if it has none. Returns None for lines that are not entries.

    `of_agent`: the line is from the transcript of a subagent, where all messages are sidechain messages.
    """
    kind, stored_seq = json.get("type"), json.get("seq")
    at, seq = str(json.get("timestamp", "")), stored_seq if isinstance(stored_seq, int) else seq
    if kind in CONVERSATION:
        if "uuid" not in json and "sessionId" not in json:
            json = {
                **json,
                "uuid": f"{session_id}/{seq}",
            }  # a plain wire message, as other programs write to `messages.jsonl`
        return decode_conversation(json, session_id, seq, at) if is_conversation(json, of_agent=of_agent) else None
    if kind == "parley":
        message, context = json.get("entry") or json.get("message") or {}, json.get("context") or {}
        at = at or str(json.get("at", ""))
        is_whole = isinstance(message, dict) and isinstance(context, dict)
        return Entry(seq=seq, kind=str(json.get("kind")), at=at, message=message, context=context) if is_whole else None
    if kind == "custom-title" and isinstance(stored_seq, int):  # ours: other programs do not number titles
        return Entry(seq=seq, kind="title", at=at, message={"title": json.get("customTitle")})
    return decode_boundary(json, session_id, seq, at) if kind == "system" else None


def decode_conversation(json: Json, session_id: str, seq: int, at: str) -> Entry:
    """Decode a message. This is the hot path: most lines have only the common fields."""
    fields: Json = {"type": json["type"], "message": json["message"], "uuid": json["uuid"]}
    if not RENAMED.keys().isdisjoint(json):
        fields |= {ours: json[theirs] for theirs, ours in RENAMED.items() if theirs in json}
        if fields.get("request_id") == json["message"].get("id"):
            fields.pop("request_id", None)  # the id of the message, in place of one that the server did not give
    fields["session_id"], fields["timestamp"], fields["parent_tool_use_id"] = session_id, at, None
    if isinstance(extra := json.get("parley"), dict):
        fields |= extra
        if isinstance(sent := fields.pop("sent", None), dict):
            kept = {name: value for name, value in json["message"].items() if name in sent or name not in FIGURES}
            fields["message"] = {**kept, **sent}
    context = {} if OWN.issuperset(json) else {key: value for key, value in json.items() if key not in OWN}
    return Entry(seq=seq, kind=json["type"], at=at, message=fields, context=context)


def location_fields(entry: Entry, session_id: str, context: EntryContext) -> Json:
    """The fields that every message of the layout has."""
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
    """The parent of the line after this entry; None if the entry does not change it."""
    if entry.kind == "cut":
        return str(entry.message.get("after"))
    return str(entry.message["uuid"]) if entry.kind in CHAINED else None


def encode_boundary(entry: Entry, session_id: str, context: EntryContext, parent: str | None) -> Json:
    """Encode a boundary. It has no parent, only a logical one: the last line before it."""
    fields = entry.message
    metadata = fields.get("compact_metadata")
    return {
        "parentUuid": None,
        "logicalParentUuid": parent,
        "isSidechain": False,
        "type": "system",
        "subtype": fields.get("subtype") or entry.kind,
        "content": "Conversation compacted" if metadata else "Conversation cleared",
        "isMeta": False,
        "timestamp": entry.at,
        "uuid": fields["uuid"],
        "level": "info",
        **({"compactMetadata": rename_keys(metadata, camel)} if metadata else {}),
        **location_fields(entry, session_id, context),
        "parley": fields,
    }


def decode_boundary(json: Json, session_id: str, seq: int, at: str) -> Entry | None:
    """Decode a boundary, ours or Claude Code's; None for other system lines."""
    uuid = json.get("uuid")
    if json.get("isSidechain") or not isinstance(uuid, str):
        return None
    if isinstance(json.get("parley"), dict):
        fields = json["parley"]
        kind = "system" if json.get("subtype") == "compact_boundary" else str(json.get("subtype"))
        return Entry(seq=seq, kind=kind, at=at, message=fields) if kind in BOUNDARIES else None
    if json.get("subtype") != "compact_boundary":
        return None
    metadata = json.get("compactMetadata")
    fields = {
        "type": "system",
        "subtype": "compact_boundary",
        "compact_metadata": rename_keys(metadata, snake) if isinstance(metadata, dict) else {},
        "logical_parent_uuid": json.get("logicalParentUuid"),
        "session_id": session_id,
        "uuid": uuid,
    }
    return Entry(seq=seq, kind="system", at=at, message=fields)


def rename_keys(json: Json, convert: Callable[[str], str]) -> Json:
    """Return the object with its keys converted, also in nested objects."""
    return {
        convert(name): rename_keys(value, convert) if isinstance(value, dict) else value for name, value in json.items()
    }


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def is_conversation(json: Json, *, of_agent: bool) -> bool:
    """Whether a user or assistant line is valid and part of the transcript's main conversation."""
    if bool(json.get("isSidechain")) is not of_agent or not isinstance(json.get("uuid"), str):
        return False
    message = json.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, str) or (isinstance(content, list) and DICT.issuperset(map(type, content)))


# The lines of an answer.


class EncodedLines(Struct, frozen=True):
    """The lines to write, and the state of the encoder after that."""

    lines: list[Json]
    parent: str | None
    blocks: list[Entry]
    """The blocks to hold from now on."""
    keeps_held: bool
    """Whether those that were held before are still held. They are not listed, because an answer may have many."""


class TranscriptEncoder:
    """Encodes the entries of one transcript, in order."""

    def __init__(self, session_id: str, context: EntryContext) -> None:
        self._session_id = session_id
        self._context = context
        self.parent: str | None = None
        """The uuid of the line that the next message follows."""
        self.blocks: list[Entry] = []
        """The held blocks of the current answer."""

    def encode(self, entries: Sequence[Entry]) -> EncodedLines:
        """The lines of entries that are written together."""
        lines: list[Json] = []
        parent, held, new = self.parent, self.blocks, list[Entry]()
        for entry in entries:
            if is_unfinished(entry):
                if answer_id(entry) != answer_id((held or new or (entry,))[0]):
                    parent = self._add_messages(lines, [*held, *new], parent)
                    held, new = [], []
                new.append(entry)
            else:
                final = entry.message if entry.kind == USAGE else {}
                finished = [with_final_figures(block, final) for block in held]
                finished += [with_final_figures(block, final, keeps_sent=True) for block in new]
                parent = self._add_messages(lines, [*finished, entry], parent)
                held, new = [], []
        lines += [encode_unfinished(block, self._session_id) for block in new]
        return EncodedLines(lines, parent, new, keeps_held=held is self.blocks)

    def release(self) -> EncodedLines:
        """The message lines of the held blocks, for an answer that gets no `usage` entry."""
        lines: list[Json] = []
        return EncodedLines(lines, self._add_messages(lines, self.blocks, self.parent), [], keeps_held=False)

    def commit(self, encoded: EncodedLines) -> None:
        self.parent = encoded.parent
        if encoded.keeps_held:
            self.blocks += encoded.blocks
        else:
            self.blocks = encoded.blocks

    def _add_messages(self, lines: list[Json], entries: Iterable[Entry], parent: str | None) -> str | None:
        """Add the lines of entries that follow `parent`. Returns the uuid that the next message follows."""
        for entry in entries:
            lines.append(encode_entry(entry, self._session_id, self._context, parent))
            parent = next_parent(entry) or parent
        return parent


class TranscriptDecoder:
    """Decodes a transcript line by line, and matches the message lines of an answer with its held blocks."""

    def __init__(self) -> None:
        self.parent: str | None = None
        self.blocks: deque[Entry] = deque()
        """The held blocks whose message lines were not read yet."""

    def feed(self, found: Entry, *, is_held: bool) -> list[Entry]:
        """Return the entries that this line completes."""
        if is_held:
            self.blocks.append(found)
            return []
        self.parent = next_parent(found) or self.parent
        first = self.blocks[0] if self.blocks else None
        if first is None or found.kind != first.kind or found.seq != first.seq:
            before, self.blocks = self.blocks, deque()
            return [*before, found]
        block = self.blocks.popleft()
        # The held block is the one that was sent, unless a copy has ids of its own.
        return [block if block.message.get("uuid") == found.message.get("uuid") else found]

    def skip(self, uuid: str) -> list[Entry]:
        """Like `feed`, for a chained line that is not an entry, such as an attachment."""
        before, self.blocks, self.parent = list(self.blocks), deque(), uuid
        return before


def is_unfinished(entry: Entry) -> bool:
    """Whether an entry is a block of an answer that may continue."""
    if entry.kind != "assistant" or entry.message.get("is_api_error_message"):
        return False
    return inner_message(entry).get("stop_reason") is None and answer_id(entry) is not None


def answer_id(entry: Entry) -> object:
    return inner_message(entry).get("id")


def inner_message(entry: Entry) -> Json:
    found = entry.message.get("message")
    return found if isinstance(found, dict) else {}


def with_final_figures(block: Entry, final: Json, *, keeps_sent: bool = False) -> Entry:
    """A block with the final usage and stop reason of its answer, if these are of its answer.

    With `keeps_sent`, it keeps what was sent instead, in the field `sent`.
    """
    inner = inner_message(block)
    if inner.get("id") != final.get("id"):
        return block
    figures = {name: final[name] for name in FIGURES if name in final}
    sent = {"sent": {name: inner[name] for name in FIGURES if name in inner}} if keeps_sent else {}
    return replace(block, message={**block.message, "message": {**inner, **figures}, **sent})


def with_all_figures(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, with the final figures in each block of an answer."""
    found = list(entries)
    figures = {entry.message.get("id"): entry.message for entry in found if entry.kind == USAGE}
    return [
        with_final_figures(entry, figures.get(answer_id(entry), {})) if is_unfinished(entry) else entry
        for entry in found
    ]
