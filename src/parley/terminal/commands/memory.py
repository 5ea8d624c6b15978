"""`/memory`: the instructions that every session here gets, in files named CLAUDE.md."""

from __future__ import annotations

import os

from parley.terminal.base import Row, View
from parley.terminal.commands.overview import is_local
from parley.terminal.rendering.text import reveal_line, reveal_text, wrap

MAX_SHOWN_BYTES = 20_000


async def open_memory(view: View, argument: str) -> None:
    """Opens the file in an editor; one of a session on another machine is only shown."""
    files = await view.client.get_memory_files()
    rows = [
        Row(str(one["path"]), str(one.get("label") or one["path"]), describe_file(one), "●" if one["exists"] else "○")
        for one in files
    ]
    if not rows:
        view.print([view.styles.dim("The session reads no memory files.")])
        return
    title = "Memory files (● exists, ○ does not exist yet)"
    picked = await view.choose(title, rows, search=False)
    if picked is None:
        return
    if not is_local(view):
        found = await view.client.read_file(picked.key, MAX_SHOWN_BYTES)
        view.print(wrap(reveal_text(str(found.get("contents", ""))), view.width))
        return
    os.makedirs(os.path.dirname(picked.key), exist_ok=True)
    await view.edit(picked.key)
    view.print(wrap(describe_edit(picked.key), view.width))


def describe_edit(path: str) -> str:
    """What became of a file after the editor was closed."""
    if not os.path.exists(path):
        return "The editor wrote no file."
    return f"Sessions that start from now on read {reveal_line(path)}."


def describe_file(file: dict[str, object]) -> str:
    return f"{file['path']}{'' if file['exists'] else ' (new)'}"
