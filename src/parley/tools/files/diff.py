"""Hunks of changed lines with three lines of context: the `structuredPatch` of a result.

    rewritten(old, new)      a file written anew
    edited(body, changes)    some places of it changed

Only the lines around a change are compared, so the size of the file does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import AnyStr

from parley.protocol.base import Json, Struct
from parley.tools.files.access import as_text

CONTEXT_LINES = 3
COMPARED_LINES = 2_000
"""Comparing takes quadratic time at worst; texts that differ over more lines make one coarse hunk."""
SHOWN_BYTES = 200_000
"""Clients cannot show more. Further hunks are omitted."""
CHUNK_BYTES = 1 << 16
NO_NEWLINE = "\\ No newline at end of file"

Opcode = tuple[str, int, int, int, int]
"""As difflib has it: a kind, and the lines of the old and of the new text."""


class TextChange(Struct, frozen=True):
    """Bytes from `start` to `end` become `text`."""

    start: int
    end: int
    text: bytes


def diff_texts(old: bytes, new: bytes) -> list[Json]:
    """The hunks between two texts; none if there are too many to show."""
    start = alike(old, new)
    same = alike(old, new, from_end=True, limit=min(len(old), len(new)) - start)
    return diff_edits(old, [TextChange(start, len(old) - same, new[start : len(new) - same])] if old != new else [])


def alike(one: AnyStr, other: AnyStr, *, from_end: bool = False, limit: int | None = None) -> int:
    """The length of the common prefix, or suffix; at most `limit`."""
    most = min(len(one), len(other)) if limit is None else limit
    known = 0
    step = CHUNK_BYTES
    while known < most:
        size = min(step, most - known)
        if piece(one, known, size, from_end) == piece(other, known, size, from_end):
            known += size
        elif size == 1:
            break
        else:
            step = size // 2
    return known


def piece(text: AnyStr, known: int, size: int, from_end: bool) -> AnyStr:
    if from_end:
        return text[len(text) - known - size : len(text) - known]
    return text[known : known + size]


def diff_edits(body: bytes, changes: Iterable[TextChange]) -> list[Json]:
    """The hunks of changes in their order, as far as they can be shown."""
    found: list[Json] = []
    room = SHOWN_BYTES
    counted_to, number, shift = 0, 1, 0
    for first, last, inside in windows(body, changes):
        number += body.count(b"\n", counted_to, first)
        counted_to = first
        new = replaced(body, inside, first, last)
        room -= last - first + len(new)
        if room < 0:
            break
        before, after = lines(body[first:last]), lines(new)
        found += hunks(before, after, number, number + shift)
        shift += len(after) - len(before)
    return found


def windows(body: bytes, changes: Iterable[TextChange]) -> Iterator[tuple[int, int, list[TextChange]]]:
    """The changes with their context. Changes whose context overlaps share a window."""
    first, last, inside = 0, 0, list[TextChange]()
    for change in changes:
        start = line_start(body, change.start, CONTEXT_LINES)
        end = line_end(body, change.end, CONTEXT_LINES)
        if inside and start > last:
            yield first, last, inside
            inside = []
        if not inside:
            first = start
        inside.append(change)
        last = end
    if inside:
        yield first, last, inside


def replaced(body: bytes, changes: Iterable[TextChange], first: int = 0, last: int | None = None) -> bytes:
    """The bytes from `first` to `last` with the changes made."""
    # Views, because slices of a large file would be copies of it.
    whole = memoryview(body)
    pieces: list[bytes | memoryview] = []
    for change in changes:
        pieces += (whole[first : change.start], change.text)
        first = change.end
    return b"".join((*pieces, whole[first:last]))


def line_start(body: bytes, position: int, lines_above: int) -> int:
    start = body.rfind(b"\n", 0, position) + 1
    for _ in range(lines_above):
        if start == 0:
            break
        start = body.rfind(b"\n", 0, start - 1) + 1
    return start


def line_end(body: bytes, position: int, lines_below: int) -> int:
    """The position after the line feed, if there is one."""
    for _ in range(lines_below + 1):
        position = body.find(b"\n", position) + 1
        if position == 0:
            return len(body)
    return position


def lines(body: bytes) -> list[str]:
    """The lines with their line feeds, which only the last may lack. CR LF counts as LF."""
    text = as_text(body).replace("\r\n", "\n")
    *whole, rest = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]


def hunks(before: list[str], after: list[str], old_start: int, new_start: int) -> Iterator[Json]:
    """The differences between two lists of lines, whose first lines have the given numbers."""
    for group in groups(before, after):
        (_, old_first, _, new_first, _), (_, _, old_last, _, new_last) = group[0], group[-1]
        shown: list[str] = []
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                shown += sign_lines(" ", before[i1:i2])
            else:
                shown += sign_lines("-", before[i1:i2]) + sign_lines("+", after[j1:j2])
        yield {
            "oldStart": old_start + old_first,
            "oldLines": old_last - old_first,
            "newStart": new_start + new_first,
            "newLines": new_last - new_first,
            "lines": shown,
        }


def sign_lines(sign: str, some: list[str]) -> list[str]:
    shown = [sign + line.removesuffix("\n") for line in some]
    return [*shown, NO_NEWLINE] if some and not some[-1].endswith("\n") else shown


def groups(before: list[str], after: list[str]) -> Iterator[list[Opcode]]:
    """The differences, those that are near each other together, with the lines around them."""
    group: list[Opcode] = []
    for kind, i1, i2, j1, j2 in opcodes(before, after):
        equal = min(i2 - i1, CONTEXT_LINES)
        if kind == "equal" and (not group or i2 - i1 > 2 * CONTEXT_LINES):
            if group:
                yield [*group, (kind, i1, i1 + equal, j1, j1 + equal)]
            group = [(kind, i2 - equal, i2, j2 - equal, j2)]
        else:
            group.append((kind, i1, i2, j1, j2))
    if any(kind != "equal" for kind, *_ in group):
        kind, i1, i2, j1, j2 = group[-1]
        equal = min(i2 - i1, CONTEXT_LINES)
        yield [*group[:-1], (kind, i1, i1 + equal, j1, j1 + equal)] if kind == "equal" else group


def opcodes(before: list[str], after: list[str]) -> list[Opcode]:
    """What became of which lines. Only what lies between the common beginning and the common end is compared."""
    head = common(before, after)
    tail = common(before[head:][::-1], after[head:][::-1])
    old_end, new_end = len(before) - tail, len(after) - tail
    found: list[Opcode] = [("equal", 0, head, 0, head)] if head else []
    if max(old_end, new_end) > head:
        for kind, i1, i2, j1, j2 in compare_lines(before[head:old_end], after[head:new_end]):
            found.append((kind, i1 + head, i2 + head, j1 + head, j2 + head))
    if tail:
        found.append(("equal", old_end, len(before), new_end, len(after)))
    return found


def compare_lines(before: list[str], after: list[str]) -> list[Opcode]:
    from difflib import SequenceMatcher

    if len(before) + len(after) > COMPARED_LINES:
        return [("replace", 0, len(before), 0, len(after))]
    return list(SequenceMatcher(None, before, after, autojunk=False).get_opcodes())


def common(one: list[str], other: list[str]) -> int:
    """The number of common lines at the start."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
