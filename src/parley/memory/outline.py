"""The tree at a glance: slugs and titles, each below its parent. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parley.memory.base import Entry

MOST_CHARS = 6_000


def outline(entries: Sequence[Entry], most_chars: int = MOST_CHARS) -> str:
    """As many as fit, those near the root first; how many are left out."""
    rows = ordered(entries)
    kept, room = set[str](), most_chars
    for depth, entry in sorted(rows, key=lambda row: row[0]):
        room -= len(row_text(depth, entry)) + 1
        if room < 0:
            break
        kept.add(entry.slug)
    told = [row_text(depth, entry) for depth, entry in rows if entry.slug in kept]
    left = len(rows) - len(told)
    return "\n".join([*told, *([f"… and {left} more"] if left else [])])


def ordered(entries: Sequence[Entry]) -> list[tuple[int, Entry]]:
    """Each below its parent, with its depth; those whose parent is not among them come last."""
    rows = list(indented(entries, None, 0))
    placed = {entry.slug for _, entry in rows}
    return rows + [(0, entry) for entry in entries if entry.slug not in placed]


def indented(entries: Sequence[Entry], parent: str | None, depth: int) -> Iterator[tuple[int, Entry]]:
    for entry in entries:
        if entry.parent == parent:
            yield depth, entry
            yield from indented(entries, entry.slug, depth + 1)


def row_text(depth: int, entry: Entry) -> str:
    return f"{'  ' * depth}- {entry.slug}: {entry.title}"
