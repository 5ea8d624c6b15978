"""Files that a prompt mentions: `@notes.md`, `@src/`, `@"with spaces.md"`, `@main.py#L10-20`.

What is behind a mention goes into the conversation before the text. It is read by a call of
Read, or Glob for a folder, under permission like any other: rules hold, and whoever must be
asked is asked. A mention of nothing that is there is text.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.system import Informational

if TYPE_CHECKING:
    from parley.engine.session.session import Session

MENTION = re.compile(r'(?:^|(?<=[\s(]))@(?:"([^"\n]+)"|((?:\\ |[^\s`"\\])+))')
LINES = re.compile(r"(.+)#L(\d{1,9})(?:-L?(\d{1,9}))?")
MOST = 20
"""Mentions of one prompt; more are left to the model."""


class Mention(Struct, frozen=True):
    name: str
    first: int | None = None
    last: int | None = None


def mentions(texts: Iterable[str]) -> list[Mention]:
    """What is mentioned, each once and in its order."""
    found: dict[Mention, None] = {}
    for text in texts:
        for match in MENTION.finditer(text):
            name = match[1] or match[2].replace("\\ ", " ").rstrip(".,;:!?)")
            lines = LINES.fullmatch(name)
            if lines is not None:
                found[Mention(lines[1], int(lines[2]), int(lines[3] or lines[2]))] = None
            elif name:
                found[Mention(name)] = None
    return list(found)[:MOST]


async def attached(session: Session, texts: Iterable[str], *, must_be_there: bool = False) -> list[Json]:
    """The blocks for what is mentioned. What cannot be had is told, and the rest goes on."""
    blocks: list[Json] = []
    for mention in mentions(texts):
        path = located(session, mention.name)
        if not await asyncio.to_thread(os.path.lexists, path):
            if must_be_there and looks_like_a_path(mention.name):
                tell(session, mention, "there is no such file")
            continue
        blocks += await read(session, mention, path)
    return blocks


def located(session: Session, name: str) -> str:
    cwd = session.setup.tool_context.cwd
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(name) if name.startswith("~/") else name))


def looks_like_a_path(name: str) -> bool:
    return "/" in name or "." in name


async def read(session: Session, mention: Mention, path: str) -> list[Json]:
    context = session.setup.tool_context
    is_folder = await asyncio.to_thread(os.path.isdir, path)
    tool, what = ("Glob", "Files in") if is_folder else ("Read", "Contents of")
    if tool not in session.setup.tools:
        return []
    input: Json = {"pattern": "*", "path": path} if is_folder else {"file_path": path}
    if mention.first is not None and mention.last is not None and not is_folder:
        input |= {"offset": mention.first, "limit": max(1, mention.last - mention.first + 1)}
    call = ToolUse({"type": "tool_use", "id": f"toolu_{context.new_id()}", "name": tool, "input": input})
    called = await session.caller.run(call, lambda: session.mode)
    content = called.result.content
    if called.ran is None or called.result.is_error or called.stopped is not None:
        why = None if called.stopped is None else f"a hook ended it: {called.stopped}"
        tell(session, mention, why or (content if isinstance(content, str) else "it cannot be read"))
        return []
    head = f"{what} {path}, which is mentioned below as @{mention.name}:"
    said = [{"type": "text", "text": context} for context in called.contexts]
    if isinstance(content, str):
        return [{"type": "text", "text": f"{head}\n\n{content}"}, *said]
    return [{"type": "text", "text": head}, *content, *said]


def tell(session: Session, mention: Mention, why: str) -> None:
    session.tell(Informational(content=f"@{mention.name} was not included: {why}", level="warning"))
