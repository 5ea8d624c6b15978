"""The tree at a glance: slugs and titles, each below its parent. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parley.memory.base import KnowledgeEntry

MOST_CHARS = 6_000


def outline(entries: Sequence[KnowledgeEntry], most_chars: int = MOST_CHARS) -> str:
    """As many as fit, those near the root first; how many are left out."""
    rows = order_entries(entries)
    kept, room = set[str](), most_chars
    for depth, entry in sorted(rows, key=lambda row: row[0]):
        room -= len(format_row(depth, entry)) + 1
        if room < 0:
            break
        kept.add(entry.slug)
    told = [format_row(depth, entry) for depth, entry in rows if entry.slug in kept]
    left = len(rows) - len(told)
    return "\n".join([*told, *([f"… and {left} more"] if left else [])])


def order_entries(entries: Sequence[KnowledgeEntry]) -> list[tuple[int, KnowledgeEntry]]:
    """Each below its parent, with its depth; those whose parent is not among them come last."""
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
