"""Which lines of a transcript are no part of its conversation any more.

Each line names the line it follows. Whoever goes back in a conversation and says something else
begins a branch; the branch that the last line stands on counts. Calls that ran side by side look
like branches and are none: each result follows its own call, and the answer follows one of them.
A boundary, behind which the conversation begins anew, names no parent but its logical one. Lines that it preserves
stand after its summary from then on, though they were written before it: the original continues on the last of them.

    dropped = abandoned(lines)      # the uuids of the lines that do not count

The engine's own cuts are no branches here: the log says what they leave out (session_open.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from parley.protocol.base import UNSET, Struct, UnsetType


class Part(Struct, frozen=True):
    tool_use_id: str | None = None


class Inner(Struct, frozen=True):
    id: str | None = None
    content: str | list[Part] = ""


class Segment(Struct, frozen=True, rename="camel"):
    """The lines that a boundary preserves: they follow `anchor_uuid`, which is its summary."""

    anchor_uuid: str | None = None
    tail_uuid: str | None = None


class Metadata(Struct, frozen=True, rename="camel"):
    preserved_segment: Segment | None = None


class Link(Struct, frozen=True, rename="camel"):
    """What of a line says where it belongs."""

    type: str = ""
    uuid: str | None = None
    parent_uuid: str | None | UnsetType = UNSET
    """Null at a beginning; titles and the like have none, and stand in no chain."""
    logical_parent_uuid: str | None = None
    is_sidechain: bool = False
    kind: str = ""
    compact_metadata: Metadata | None = None

    @property
    def preserved(self) -> Segment | None:
        return self.compact_metadata.preserved_segment if self.compact_metadata is not None else None

    @property
    def follows(self) -> str | None:
        return self.parent_uuid or self.logical_parent_uuid or None

    @property
    def is_chained(self) -> bool:
        return self.uuid is not None and self.parent_uuid is not UNSET and not self.is_sidechain


class Said(Struct, frozen=True):
    message: Inner | None = None


UUID = b',"uuid":"'
FOLLOWER = b'{"parentUuid":"%b","isSidechain":false,'
"""How a line begins that follows another."""
NOBODY = b"\n\n"
"""How no line begins."""
LINK = msgspec.json.Decoder(Link)
SAID = msgspec.json.Decoder(Said)


class Node(Struct, frozen=True):
    uuid: str
    follows: str | None
    message_id: str | None
    """Of an answer of the model, whose blocks are a line each."""
    is_result: bool
    """Whether the line is the result of a call."""


def links(lines: Iterable[bytes]) -> Iterator[tuple[Link, bytes]]:
    """The lines that stand in a chain, and the engine's cuts. What is no line of a transcript is skipped."""
    for line in lines:
        try:
            link = LINK.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if link.is_chained or (link.type == "parley" and link.kind == "cut"):
            yield link, line


def is_straight(lines: Iterable[bytes]) -> bool:
    """Whether each line follows the one before it: nearly every transcript is like that.

    Most lines show it by how they begin, and need not be decoded. A line that is wrongly taken for the last
    one makes the transcript look branched, never straight.
    """
    last: bytes | None = None
    follower = NOBODY
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
        follower = NOBODY if last is None or was_cut else FOLLOWER % last
    return True


def abandoned(lines: Iterable[bytes]) -> frozenset[str]:
    """The uuids of the lines on branches that do not count."""
    nodes = {node.uuid: node for node in tree(lines)}
    if not nodes:
        return frozenset()
    kept = chain(nodes, next(reversed(nodes)))
    kept |= side_by_side(nodes, kept)
    return frozenset(nodes.keys() - kept)


def tree(lines: Iterable[bytes]) -> Iterator[Node]:
    """Every line with its parent. A parent that is not there, or was cut off by us, is the line before."""
    known: set[str] = set()
    last: str | None = None
    was_cut = False
    moved: dict[str, str] = {}
    """What stands for a preserved line: the summary after which it is said again."""
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
        message = said(line)
        content = message.content if message is not None else ""
        yield Node(
            uuid=link.uuid,
            follows=follows,
            message_id=message.id if message is not None and link.type == "assistant" else None,
            is_result=isinstance(content, list) and any(part.tool_use_id for part in content),
        )
        known.add(link.uuid)
        last, was_cut = link.uuid, False


def said(line: bytes) -> Inner | None:
    try:
        return SAID.decode(line).message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def chain(nodes: dict[str, Node], leaf: str) -> set[str]:
    """A line and all before it."""
    kept: set[str] = set()
    at: str | None = leaf
    while at is not None and at not in kept:
        kept.add(at)
        at = nodes[at].follows
    return kept


def side_by_side(nodes: dict[str, Node], kept: set[str]) -> set[str]:
    """The other blocks of answers whose calls were run, and the results of all their calls."""
    went_on = {
        nodes[node.follows].message_id
        for node in nodes.values()
        if node.is_result and node.uuid in kept and node.follows is not None
    }
    blocks = {node.uuid for node in nodes.values() if node.message_id is not None and node.message_id in went_on}
    results = {node.uuid for node in nodes.values() if node.is_result and node.follows in blocks}
    return blocks | results
