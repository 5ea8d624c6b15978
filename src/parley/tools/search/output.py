"""Format the hits of a search, page by page.

A page is a number of lines or files from an offset, limited to what the model can use. If there are more, it ends
with how to get them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

import msgspec

from parley.protocol.base import Json, Struct
from parley.tools.base import ToolOutput

PAGE_CHARS = 30_000
NUMBERED = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


class OutputPage(Struct, frozen=True):
    offset: int
    limit: int | None
    """None for as much as fits."""

    @property
    def last_line(self) -> int:
        """The last line a page can reach, as every line has at least its newline."""
        return self.offset + (PAGE_CHARS if self.limit is None else self.limit)

    def cut(self, lines: Iterator[str] | list[str]) -> tuple[list[str], bool]:
        """The lines of the page, and whether there are more."""
        rest = islice(lines, self.offset, None)
        kept: list[str] = []
        room = PAGE_CHARS
        for line in rest:
            room -= len(line) + 1
            if len(kept) == self.limit or (room < 0 and kept):
                return kept, True
            kept.append(line)
        return kept, False

    def continuation(self, shown: int, total: int | None) -> str:
        """How to get the next page."""
        first, last = self.offset + 1, self.offset + shown
        of = "" if total is None else f" of {total}"
        return f"(Showing {first}-{last}{of}. Continue with offset {last}.)"

    def applied(self, shown: int, more: bool) -> Json:
        limited = {"appliedLimit": shown} if more else {}
        return {**limited, "appliedOffset": self.offset} if self.offset else limited


def files(paths: list[str], page: OutputPage, complete: bool) -> ToolOutput:
    shown, more = page.cut(paths)
    total = len(paths)
    detail = {"mode": "files_with_matches", "filenames": shown, "numFiles": len(shown), "totalFiles": total}
    text = [f"Found {count_text(total, 'file')}", *shown] if shown else [no_matches("files", page, total, complete)]
    if not complete and shown:
        text[0] = f"Found more than {count_text(total, 'file')}"
    if more:
        text.append(page.continuation(len(shown), total if complete else None))
    return ToolOutput(content="\n".join(text), detail=detail | page.applied(len(shown), more))


def counts(found: list[tuple[str, int]], page: OutputPage, complete: bool) -> ToolOutput:
    shown, more = page.cut(f"{path}:{number}" for path, number in found)
    matches, total = sum(number for _, number in found), len(found)
    content = "\n".join(shown)
    detail = {"mode": "count", "numFiles": total, "filenames": [], "content": content, "numMatches": matches}
    if not shown:
        return ToolOutput(content=no_matches("matches", page, total, complete), detail=detail | page.applied(0, False))
    text = f"{content}\n\nFound {count_text(matches, 'total occurrence')} across {count_text(total, 'file')}."
    if not complete:
        text += " There are more."
    if more:
        text += f"\n{page.continuation(len(shown), total if complete else None)}"
    return ToolOutput(content=text, detail=detail | page.applied(len(shown), more))


def content(
    found: list[tuple[str, list[bytes]]], page: OutputPage, complete: bool, *, numbered: bool, gaps: bool
) -> ToolOutput:
    total = sum(len(parts) for _, parts in found) + (max(0, len(found) - 1) if gaps else 0)
    shown, more = page.cut(lines(found, numbered=numbered, gaps=gaps))
    more = more or not complete
    text = "\n".join(shown)
    detail: Json = {"mode": "content", "numFiles": 0, "filenames": [], "content": text, "numLines": len(shown)}
    if complete:
        detail["totalLines"] = total
    if not shown:
        return ToolOutput(content=no_matches("matches", page, total, complete), detail=detail | page.applied(0, False))
    if more:
        text += f"\n\n{page.continuation(len(shown), total if complete else None)}"
    return ToolOutput(content=text, detail=detail | page.applied(len(shown), more))


def lines(found: list[tuple[str, list[bytes]]], *, numbered: bool, gaps: bool) -> Iterator[str]:
    """`path:12:a match` and `path-13-a line near it`, with `--` between lines that are not adjacent."""
    for at, (path, parts) in enumerate(found):
        if at and gaps:
            yield "--"
        for part in parts:
            split = NUMBERED.fullmatch(part)
            if split is None:
                yield "--" if part == b"--" else f"{path}: {part.decode(errors='replace')}"
                continue
            mark = split[2].decode()
            number = f"{split[1].decode()}{mark}" if numbered else ""
            yield f"{path}{mark}{number}{split[3].decode(errors='replace').rstrip(chr(13))}"


def mark_incomplete(result: ToolOutput, why: str) -> ToolOutput:
    """The result of a stopped search."""
    return msgspec.structs.replace(
        result, content=f"{result.content}\n({why})", detail={**result.detail, "timedOut": True}
    )


def no_matches(what: str, page: OutputPage, total: int, complete: bool) -> str:
    if not total:
        return f"No {what} found"
    if not complete:
        return f"The search was stopped before offset {page.offset}. Give a narrower path, glob, type or pattern."
    return f"Nothing at offset {page.offset}: there are only {total}."


def count_text(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
