"""What other programs write to a transcript: which lines are part of the conversation, and which entries are valid.

    abandoned = find_abandoned(lines)      # the uuids of the lines on inactive branches
    problem = find_problem(entry)          # None if it is valid

Each line names its parent. When the user goes back and sends another prompt, a branch starts; only the branch of the
last line is active. Parallel tool calls look like branches but are not: each result follows its own call, and the
answer follows one of the results. A compact boundary has a logical parent only. The lines that it preserves come
after its summary from then on, although they were written earlier: Claude Code continues from the last of them.
The engine's own cuts are not branches: `cut` entries in the log say what they leave out (session_open.py).

The engine's own entries are valid. A foreign entry that cannot be sent to a model, or cannot be folded into the
session's state, would break every later turn, so it is not loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from parley.protocol import blocks
from parley.protocol.base import UNSET, Json, Struct, UnsetType
from parley.stores.base import Entry
from parley.stores.files.entry_codec import OWN


class ResultPart(Struct, frozen=True):
    tool_use_id: str | None = None


class LinkMessage(Struct, frozen=True):
    id: str | None = None
    content: str | list[ResultPart] = ""


class PreservedSegment(Struct, frozen=True, rename="camel"):
    """The lines that a boundary preserves. They follow `anchor_uuid`, the summary."""

    anchor_uuid: str | None = None
    tail_uuid: str | None = None


class CompactMetadata(Struct, frozen=True, rename="camel"):
    preserved_segment: PreservedSegment | None = None


class ChainLink(Struct, frozen=True, rename="camel"):
    """The fields of a line that determine its position in the conversation."""

    type: str = ""
    uuid: str | None = None
    parent_uuid: str | None | UnsetType = UNSET
    """Null for the first line. Titles and similar lines have no such field and are not part of the chain."""
    logical_parent_uuid: str | None = None
    is_sidechain: bool = False
    kind: str = ""
    compact_metadata: CompactMetadata | None = None

    @property
    def preserved(self) -> PreservedSegment | None:
        return self.compact_metadata.preserved_segment if self.compact_metadata is not None else None

    @property
    def follows(self) -> str | None:
        return self.parent_uuid or self.logical_parent_uuid or None

    @property
    def is_chained(self) -> bool:
        return self.uuid is not None and self.parent_uuid is not UNSET and not self.is_sidechain


class AnswerParts(Struct, frozen=True):
    message: LinkMessage | None = None


UUID = b',"uuid":"'
FOLLOWER_PREFIX = b'{"parentUuid":"%b","isSidechain":false,'
"""The start of a line that follows another."""
NO_PREFIX = b"\n\n"
"""A prefix that no line has."""
LINK = msgspec.json.Decoder(ChainLink)
ANSWER = msgspec.json.Decoder(AnswerParts)


class Node(Struct, frozen=True):
    uuid: str
    follows: str | None
    message_id: str | None
    """The id of a model response, which has one line per content block."""
    is_result: bool
    """Whether the line is a tool result."""


def links(lines: Iterable[bytes]) -> Iterator[tuple[ChainLink, bytes]]:
    """Yield the chained lines and the engine's cuts. Unreadable lines are skipped."""
    for line in lines:
        try:
            link = LINK.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if link.is_chained or (link.type == "parley" and link.kind == "cut"):
            yield link, line


def is_straight(lines: Iterable[bytes]) -> bool:
    """Whether each line follows the one before it, as in nearly every transcript.

    Most lines show this by their first bytes and are not decoded. If the uuid of a line is misread, the transcript
    looks branched, never straight.
    """
    last: bytes | None = None
    follower = NO_PREFIX
    was_cut = True
    for line in lines:
        if line.startswith(follower) and line.count(UUID) == 1:
            begin = line.index(UUID) + len(UUID)
            last = line[begin : line.find(b'"', begin)]
        else:
            for link, _ in links((line,)):
                if link.uuid is not None and not was_cut and link.follows != (last and last.decode(errors="replace")):
                    return False
                was_cut = link.uuid is None
                last = link.uuid.encode() if link.uuid is not None else last
        follower = NO_PREFIX if last is None or was_cut else FOLLOWER_PREFIX % last
    return True


def find_abandoned(lines: Iterable[bytes]) -> frozenset[str]:
    """The uuids of the lines on inactive branches."""
    nodes = {node.uuid: node for node in build_tree(lines)}
    if not nodes:
        return frozenset()
    active = chain_to(nodes, next(reversed(nodes)))
    active |= siblings_of(nodes, active)
    return frozenset(nodes.keys() - active)


def build_tree(lines: Iterable[bytes]) -> Iterator[Node]:
    """Yield every line with its parent. If the parent is missing or was cut, the previous line is the parent."""
    known: set[str] = set()
    last: str | None = None
    was_cut = False
    moved: dict[str, str] = {}
    """The new parent of lines that follow a preserved line: the summary it was moved after."""
    for link, line in links(lines):
        if link.uuid is None:
            was_cut = True
            continue
        follows = link.follows
        if (summary := moved.get(follows or "")) in known:
            follows = summary
        if (segment := link.preserved) is not None and segment.tail_uuid and segment.anchor_uuid:
            moved[segment.tail_uuid] = segment.anchor_uuid
        if was_cut or (follows is not None and follows not in known):
            follows = last
        message = read_parts(line)
        content = message.content if message is not None else ""
        yield Node(
            uuid=link.uuid,
            follows=follows,
            message_id=message.id if message is not None and link.type == "assistant" else None,
            is_result=isinstance(content, list) and any(part.tool_use_id for part in content),
        )
        known.add(link.uuid)
        last, was_cut = link.uuid, False


def read_parts(line: bytes) -> LinkMessage | None:
    try:
        return ANSWER.decode(line).message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def chain_to(nodes: dict[str, Node], leaf: str) -> set[str]:
    """A line and all its ancestors."""
    active: set[str] = set()
    at: str | None = leaf
    while at is not None and at not in active:
        active.add(at)
        at = nodes[at].follows
    return active


def siblings_of(nodes: dict[str, Node], active: set[str]) -> set[str]:
    """The other blocks of active answers whose calls ran, and the results of all their calls."""
    answered = {
        nodes[node.follows].message_id
        for node in nodes.values()
        if node.is_result and node.uuid in active and node.follows is not None
    }
    blocks = {node.uuid for node in nodes.values() if node.message_id is not None and node.message_id in answered}
    results = {node.uuid for node in nodes.values() if node.is_result and node.follows in blocks}
    return blocks | results


# Whether an entry is valid.


def find_problem(entry: Entry) -> str | None:
    """What is wrong with an entry; None if it is valid."""
    try:
        if entry.seq < 0:
            raise msgspec.ValidationError(f"`seq` is {entry.seq}, expected 0 or more")
        if not OWN.isdisjoint(entry.context):
            raise msgspec.ValidationError("`context` contains reserved field names")
        # Other kinds are never shown or sent; the code that folds them skips invalid values.
        if (check := CHECKS.get(entry.kind)) is not None:
            check(entry.message)
    except msgspec.ValidationError as exc:
        return str(exc)
    return None


def check_conversation(message: Json) -> None:
    """Raises msgspec.ValidationError."""
    require(message, "uuid", str)
    inner = require(message, "message", dict)
    content = require(inner, "content", str, list)
    if not isinstance(inner.get("id"), str | None):
        raise msgspec.ValidationError("`message.id` must be a string")
    for block in content if isinstance(content, list) else ():
        within = blocks.read(block)
        if isinstance(within, blocks.ToolResult) and isinstance(within.content, list):
            for part in within.content:
                blocks.read(part)


def check_boundary(message: Json) -> None:
    """Raises msgspec.ValidationError."""
    require(message, "uuid", str)
    metadata = optional(message, "compact_metadata", dict) or {}
    optional(metadata, "preserved_segment", dict)
    kept = optional(metadata, "preserved_messages", dict) or {}
    for names in (optional(kept, "uuids", list), optional(kept, "all_uuids", list)):
        if not all(isinstance(uuid, str) for uuid in names or ()):
            raise msgspec.ValidationError("`preserved_messages` must list uuids as strings")
    optional(metadata, "cumulative_dropped_tokens", int)
    optional(metadata, "distilled", list)


def require(json: Json, name: str, *types: type[Any]) -> Any:
    if not isinstance(json.get(name), types):
        raise msgspec.ValidationError(f"`{name}` is missing or has the wrong type")
    return json[name]


def optional(json: Json, name: str, kind: type[Any]) -> Any:
    return None if json.get(name) is None else require(json, name, kind)


CHECKS: dict[str, Callable[[Json], Any]] = {
    "user": check_conversation,
    "assistant": check_conversation,
    "system": check_boundary,
    "conversation_reset": check_boundary,
    "title": lambda message: require(message, "title", str),
}
