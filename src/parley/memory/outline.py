"""An overview of the tree: slugs and titles, each below its parent. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parley.memory.base import KnowledgeEntry

MOST_CHARS = 6_000


def outline(entries: Sequence[KnowledgeEntry], most_chars: int = MOST_CHARS) -> str:
    """As many entries as fit, those near the root first, and the number of the others."""
    rows = order_entries(entries)
    shown, room = set[str](), most_chars
    for depth, entry in sorted(rows, key=lambda row: row[0]):
        room -= len(format_row(depth, entry)) + 1
        if room < 0:
            break
        shown.add(entry.slug)
    lines = [format_row(depth, entry) for depth, entry in rows if entry.slug in shown]
    left = len(rows) - len(lines)
    return "\n".join([*lines, *([f"… and {left} more"] if left else [])])


def order_entries(entries: Sequence[KnowledgeEntry]) -> list[tuple[int, KnowledgeEntry]]:
    """Entries with their depth, each below its parent; those without a known parent come last."""
    rows = list(walk_children(entries, None, 0))
    placed = {entry.slug for _, entry in rows}
    return rows + [(0, entry) for entry in entries if entry.slug not in placed]


def walk_children(
    entries: Sequence[KnowledgeEntry], parent: str | None, depth: int
) -> Iterator[tuple[int, KnowledgeEntry]]:
    for entry in entries:
        if entry.parent == parent:
            yield depth, entry
            yield from walk_children(entries, entry.slug, depth + 1)


def format_row(depth: int, entry: KnowledgeEntry) -> str:
    return f"{'  ' * depth}- {entry.slug}: {entry.title}"
