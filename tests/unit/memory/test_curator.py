"""What a curator reads of a log, and the tree at a glance."""

from __future__ import annotations

from typing import Any

from parley.memory.base import KnowledgeEntry, LogMessage, order_entries, outline, split_pieces
from parley.memory.curator import excerpt_lines
from parley.protocol.base import Json
from parley.stores.base import Entry as LogEntry


def record(seq: int, kind: str, content: Any, **context: Any) -> LogEntry:
    message: Json = {"type": kind, "uuid": f"u{seq}", "message": {"role": kind, "content": content}}
    return LogEntry(seq=seq, kind=kind, at="2026-11-16T03:00:00.000Z", message=message, context=context)


def line(seq: int, text: str) -> LogMessage:
    return LogMessage(seq=seq, kind="user", at="2026-11-16T03:00:00.000Z", uuid=f"u{seq}", text=text)


def entry(slug: str, parent: str | None = None) -> KnowledgeEntry:
    return KnowledgeEntry(slug=slug, version=1, parent=parent, title=slug.upper(), body="b", at="", author="person")


def test_what_was_said_and_done_is_read_in_short_and_summaries_are_not() -> None:
    calls = [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": " I look. "},
        {"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": "x" * 400}},
    ]
    result = [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "y" * 700}]}]
    log = [
        record(0, "user", "Hello."),
        record(1, "assistant", calls),
        record(2, "user", result),
        record(3, "user", "In short.", isCompactSummary=True),
        record(4, "user", [{"type": "image", "source": {}}]),
        LogEntry(seq=5, kind="permission", at="", message={}),
        LogEntry(seq=6, kind="user", at="", message={"uuid": "odd"}),
    ]

    read = list(excerpt_lines(log))

    assert [each.seq for each in read] == [0, 1, 2, 4]
    assert read[0] == line(0, "Hello.")
    assert read[1].text.startswith('I look.\n[calls Read with {"file_path":"xxx')
    assert read[1].text.endswith("x… (416 characters)]")
    assert read[2].text == f"[result: {'y' * 600}… (700 characters)]"
    assert read[3].text == "[image]"


def test_pieces_are_cut_between_items() -> None:
    several = ["x" * 100] * 5

    assert [len(piece) for piece in split_pieces(several, len, 200)] == [2, 2, 1]
    assert [len(piece) for piece in split_pieces(several, len, 1)] == [1] * 5
    assert list(split_pieces(list[str](), len, 1)) == []


def test_the_tree_at_a_glance_is_indented_and_bounded() -> None:
    known = [entry("a"), entry("b", "a"), entry("c", "b"), entry("d"), entry("e", "gone")]

    assert outline(known).splitlines() == ["- a: A", "  - b: B", "    - c: C", "- d: D", "- e: E"]
    assert outline(known, 25).splitlines() == ["- a: A", "- d: D", "- e: E", "… and 2 more"]
    assert outline([]) == ""
    assert [depth for depth, _ in order_entries(known)] == [0, 1, 2, 0, 0]
