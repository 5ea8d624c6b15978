"""What is shown of a tool call beyond its line: changed lines of a file, work lists, images, output. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from parley.protocol.base import Json
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import reveal_line, reveal_text, shorten

MARKS = {"completed": "☑", "in_progress": "◐"}
"""The marks of a work list. Everything else is not started."""
CONTEXT_LINES = 3
MAX_COMPARED_LINES = 2_000
"""Comparing takes quadratic time at worst."""


def changed_lines(detail: Any) -> list[str]:
    """The lines that a call changed in a file, each with `+`, `-`, a blank or `@` before it."""
    if not isinstance(detail, dict):
        return []
    if detail.get("type") == "create" and isinstance(text := detail.get("content"), str):
        return [f"+{line}" for line in text.splitlines()]
    lines: list[str] = []
    for hunk in detail.get("structuredPatch") or ():
        if isinstance(hunk, dict) and isinstance(hunk.get("lines"), list):
            lines += [f"@ line {hunk.get('newStart', 1)}", *map(str, hunk["lines"])]
    return lines


def proposed_lines(given: Json) -> list[str]:
    """The same for the input of a call that has not run."""
    edits = given.get("edits") if isinstance(given.get("edits"), list) else [given]
    lines: list[str] = []
    for edit in edits or ():
        if isinstance(edit, dict) and isinstance(edit.get("new_string"), str):
            lines += compare(str(edit.get("old_string", "")), edit["new_string"])
    if not lines and isinstance(text := given.get("content"), str):
        return [f"+{line}" for line in text.splitlines()]
    return lines


def compare(old: str, new: str) -> list[str]:
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > MAX_COMPARED_LINES:
        return [*(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    return list(difflib.unified_diff(before, after, n=CONTEXT_LINES, lineterm=""))[2:]


def paint_diff(lines: Sequence[str], styles: Styles, width: int, max_lines: int | None) -> list[str]:
    """A diff in colours, indented below its call; the rest of a long one is counted."""
    shown = [line for line in lines if not line.startswith("@@")]
    kept = shown if max_lines is None or len(shown) <= max_lines else shown[: max_lines - 1]
    painted = [f"    {paint_line(line, styles, max(1, width - 4))}" for line in kept]
    if len(kept) < len(shown):
        painted.append(styles.dim(f"    … {len(shown) - len(kept)} more lines"))
    return painted


def paint_line(line: str, styles: Styles, width: int) -> str:
    text = shorten(reveal_text(line).replace("\t", "    ").replace("\n", "\\n"), width)
    paint = {"+": styles.added, "-": styles.removed, "@": styles.dim}.get(line[:1])
    return text if paint is None else paint(text)


class WorkList:
    """The todos or tasks of the session, as the calls of the model change them."""

    def __init__(self) -> None:
        self._items: dict[str, tuple[str, str]] = {}
        """Text and status by id."""

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
        if isinstance(task := detail.get("task"), dict) and "subject" in given:
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
