"""What is shown of a tool call beyond its line: changed lines of a file, work lists, images, output. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

from parley.protocol.base import Json
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import reveal_line, reveal_text, shorten

MARKS = {"completed": "☑", "in_progress": "◐"}
"""The marks of a work list. Everything else is not started."""
EXTRA_MODULES = ("rich", "markdown_it")
HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
CONTEXT_LINES = 3
MAX_COMPARED_LINES = 2_000
"""Comparing takes quadratic time at worst."""


def changed_lines(detail: Any) -> list[str]:
    """The lines that a call changed in a file, as a unified diff without file names."""
    if not isinstance(detail, dict):
        return []
    if detail.get("type") == "create" and isinstance(text := detail.get("content"), str):
        return ["@@ -0 +1 @@", *(f"+{line}" for line in split_lines(text))]
    lines: list[str] = []
    for hunk in detail.get("structuredPatch") or ():
        if isinstance(hunk, dict) and isinstance(hunk.get("lines"), list):
            lines += [f"@@ -{hunk.get('oldStart', 1)} +{hunk.get('newStart', 1)} @@", *map(str, hunk["lines"])]
    return lines


def proposed_lines(given: Json, before: str | None = None) -> list[str]:
    """The same for the input of a call that has not run. Without the text of the file, lines have no numbers."""
    edits = given.get("edits") if isinstance(given.get("edits"), list) else [given]
    pairs = [
        (str(edit.get("old_string", "")), edit["new_string"], -1 if edit.get("replace_all") else 1)
        for edit in edits or ()
        if isinstance(edit, dict) and isinstance(edit.get("new_string"), str)
    ]
    if not pairs:
        text = given.get("content")
        return compare(before or "", text) if isinstance(text, str) else []
    after = before
    for old, new, count in pairs:
        after = None if after is None or old not in after else after.replace(old, new, count)
    if before is not None and after is not None:
        return compare(before, after)
    return [line for old, new, _ in pairs for line in compare(old, new) if not HUNK.match(line)]


def split_lines(text: str) -> list[str]:
    """The lines as editors count them: only `\\n` ends one."""
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else lines


def compare(old: str, new: str) -> list[str]:
    """A unified diff of two texts, which are equal at the start and the end for the most part."""
    before, after = split_lines(old), split_lines(new)
    first, last = 0, 0
    while first < min(len(before), len(after)) and before[first] == after[first]:
        first += 1
    while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
        last += 1
    first, last = max(0, first - CONTEXT_LINES), max(0, last - CONTEXT_LINES)
    before, after = before[first : len(before) - last], after[first : len(after) - last]
    if len(before) + len(after) > MAX_COMPARED_LINES:
        return [f"@@ -{first + 1} +{first + 1} @@", *(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    lines = list(difflib.unified_diff(before, after, n=CONTEXT_LINES, lineterm=""))[2:]
    return [HUNK.sub(lambda found: f"@@ -{int(found[1]) + first} +{int(found[2]) + first} @@", line) for line in lines]


def number_lines(lines: Iterable[str]) -> Iterator[tuple[int | None, str]]:
    """Each line of a diff with its number: that of the old file for a removed line. A gap has no text."""
    old: int | None = None
    new, is_first = 0, True
    for line in lines:
        if (found := HUNK.match(line)) is not None:
            if not is_first:
                yield None, ""
            old, new = int(found[1]), int(found[2])
        elif old is None:
            yield None, line
        elif line.startswith("-"):
            yield old, line
            old += 1
        else:
            yield new, line
            new, old = new + 1, old + (not line.startswith("+"))
        is_first = False


def paint_diff(lines: Iterable[str], styles: Styles, width: int, max_lines: int | None, path: str = "") -> list[str]:
    """A diff in colours, indented below its call; the rest of a long one is counted. `path` names the language."""
    rows = list(number_lines(lines))
    kept = rows if max_lines is None or len(rows) <= max_lines else rows[: max_lines - 1]
    cells = max((len(str(number)) for number, _ in kept if number is not None), default=-1) + 1
    painted = []
    for number, line in kept:
        start = " " * cells if number is None else f"{number:>{cells - 1}} "
        text = paint_line(line, styles, max(1, width - 4 - cells), path) if line else styles.dim("⋯")
        painted.append(f"    {styles.dim(start) if start else ''}{text}")
    if len(kept) < len(rows):
        painted.append(styles.dim(f"    … {len(rows) - len(kept)} more lines"))
    return painted


def paint_line(line: str, styles: Styles, width: int, path: str = "") -> str:
    """Removed lines have one colour; in the others, code has its own after the sign."""
    text = shorten(reveal_text(line).replace("\t", "    ").replace("\n", "\\n"), width)
    if text.startswith("-"):
        return styles.removed(text)
    sign, code = text[:1], text[1:]
    if styles.has_color and path and has_extra():
        from parley.terminal.rendering.highlight import find_lexer, highlight  # slow to import

        lexer = find_lexer(path=path)
        painted = None if lexer is None else highlight(code, lexer, styles)
        if painted is not None:
            return (styles.added(sign) if sign == "+" else sign) + painted
    return styles.added(text) if sign == "+" else text


@cache
def has_extra() -> bool:
    """Whether what formats answers is installed. Found without importing it, which another thread may be doing."""
    return all(find_spec(name) is not None for name in EXTRA_MODULES)


class WorkList:
    """The todos or tasks of the session, as the calls of the model change them."""

    def __init__(self) -> None:
        self._items: dict[str, tuple[str, str]] = {}
        """Text and status by id."""

    def clear(self) -> None:
        self._items.clear()

    def update(self, given: Json, detail: Any) -> bool:
        """Take the input and the result of a call; False if it did not change the list."""
        detail = detail if isinstance(detail, dict) else {}
        if isinstance(todos := detail.get("newTodos", given.get("todos")), list):
            self._items = {
                str(index): (str(todo.get("content", "")), str(todo.get("status", "")))
                for index, todo in enumerate(todos)
                if isinstance(todo, dict)
            }
            return True
        if isinstance(task := detail.get("task"), dict) and "subject" in (given or task):
            self._items[str(task.get("id"))] = (str(task.get("subject", "")), str(task.get("status", "pending")))
            return True
        known = self._items.get(str(detail.get("taskId")))
        if known is not None and isinstance(change := detail.get("statusChange"), dict):
            self._items[str(detail["taskId"])] = (str(given.get("subject") or known[0]), str(change.get("to")))
            if change.get("to") == "deleted":
                del self._items[str(detail["taskId"])]
            return True
        return False

    def lines(self, styles: Styles, width: int) -> list[str]:
        lines = []
        for text, status in self._items.values():
            line = f"  {MARKS.get(status, '☐')} {shorten(reveal_line(text), max(1, width - 4))}"
            paint = {"completed": styles.dim, "in_progress": styles.bold}.get(status)
            lines.append(line if paint is None else paint(line))
        return lines


def name_images(content: object) -> list[str]:
    """A line for each image of a result or prompt, which a terminal cannot show."""
    found = []
    for block in content if isinstance(content, list) else ():
        source = block.get("source") if isinstance(block, dict) else None
        if isinstance(source, dict) and block.get("type") in ("image", "document"):
            data = source.get("data")
            size = f", {len(data) * 3 // 4:,} bytes" if isinstance(data, str) else ""
            found.append(f"[{block['type']}: {reveal_line(str(source.get('media_type', 'unknown type')))}{size}]")
    return found


def output_text(content: object) -> str:
    """The text of a result, with its images named."""
    if isinstance(content, str):
        return content
    texts = [
        str(block["text"]) for block in (content if isinstance(content, list) else ()) if isinstance(block, dict)
        and isinstance(block.get("text"), str)
    ]  # fmt: skip
    return "\n".join([*texts, *name_images(content)])
