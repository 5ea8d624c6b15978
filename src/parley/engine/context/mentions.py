"""Files that a prompt mentions: `@notes.md`, `@src/`, `@"with spaces.md"`, `@main.py#L10-20`.

The contents of a mentioned file go into the conversation before the text. They are read by a call of
Read, or of Glob for a folder, under the same permission rules as any call. A mention of a path that does
not exist is plain text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from parley.engine.context.system_prompt import is_replaced
from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.system import Informational
from parley.tools.catalog import find_traits

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation
    from parley.engine.turn.tool_executor import ToolOutcome


MENTION = re.compile(r'(?:^|(?<=[\s(]))@(?:"([^"\n]+)"|((?:\\ |[^\s`"\\])+))')
LINES = re.compile(r"(.+)#L(\d{1,9})(?:-L?(\d{1,9}))?")
MAX_MENTIONS = 20
"""Limit per prompt; the model reads the rest itself."""
HEADING = "Instructions from files near what you looked at. Follow them where they apply to the task."


class Mention(Struct, frozen=True):
    name: str
    first: int | None = None
    last: int | None = None


def find_mentions(texts: Iterable[str]) -> list[Mention]:
    """The mentions in order, without duplicates."""
    found: dict[Mention, None] = {}
    for text in texts:
        for match in MENTION.finditer(text):
            name = match[1] or match[2].replace("\\ ", " ").rstrip(".,;:!?)")
            lines = LINES.fullmatch(name)
            if lines is not None:
                found[Mention(lines[1], int(lines[2]), int(lines[3] or lines[2]))] = None
            elif name:
                found[Mention(name)] = None
    return list(found)[:MAX_MENTIONS]


async def attach_mentions(conversation: Conversation, texts: Iterable[str], *, required: bool = False) -> list[Json]:
    """The content blocks of all mentions. A file that cannot be read is reported and left out.

    If `required`, a path that does not exist is reported too.
    """
    blocks: list[Json] = []
    for mention in find_mentions(texts):
        path = resolve_mention(conversation, mention.name)
        kind = await conversation.config.workspace.processes.find_kind(path)
        if kind is None:
            if required and looks_like_path(mention.name):
                send_problem(conversation, mention, "there is no such file")
            continue
        blocks += await read_mention(conversation, mention, path, is_folder=kind == "folder")
    return blocks


def resolve_mention(conversation: Conversation, name: str) -> str:
    cwd = conversation.tool_context.state.cwd
    if name.startswith("~/"):
        home = conversation.config.workspace.environment.get("HOME") or os.path.expanduser("~")
        return os.path.normpath(os.path.join(home, name[2:]))
    return os.path.normpath(os.path.join(cwd, name))


def looks_like_path(name: str) -> bool:
    return "/" in name or "." in name


async def read_mention(conversation: Conversation, mention: Mention, path: str, *, is_folder: bool) -> list[Json]:
    workspace = conversation.config.workspace
    tool, what = ("Glob", "Files in") if is_folder else ("Read", "Contents of")
    if tool not in conversation.config.tools:
        return []
    input: Json = {"pattern": "*", "path": path} if is_folder else {"file_path": path}
    if mention.first is not None and mention.last is not None and not is_folder:
        input |= {"offset": mention.first, "limit": max(1, mention.last - mention.first + 1)}
    call = ToolUse({"type": "tool_use", "id": f"toolu_{workspace.new_id()}", "name": tool, "input": input})
    outcome = await conversation.tool_executor.run(call, conversation.mode)
    content = outcome.output.content
    if outcome.executed_input is None or outcome.output.is_error or outcome.stop_reason is not None:
        why = None if outcome.stop_reason is None else f"a hook stopped it: {outcome.stop_reason}"
        send_problem(conversation, mention, why or (content if isinstance(content, str) else "the file cannot be read"))
        return []
    head = f"{what} {path}, which is mentioned below as @{mention.name}:"
    contexts = [{"type": "text", "text": context} for context in outcome.contexts]
    if isinstance(content, str):
        return [{"type": "text", "text": f"{head}\n\n{content}"}, *contexts]
    return [{"type": "text", "text": head}, *content, *contexts]


def send_problem(conversation: Conversation, mention: Mention, reason: str) -> None:
    conversation.send(Informational(content=f"@{mention.name} was not included: {reason}", level="warning"))


def find_instructions(conversation: Conversation, call: ToolUse, outcome: ToolOutcome) -> list[str]:
    """The memory files for a successful call that the conversation does not have yet."""
    if outcome.executed_input is None or outcome.output.is_error:
        return []
    values = (call.input.get(field) for field in find_traits(call.name).path_fields)
    path = next((value for value in values if isinstance(value, str)), None)
    if path is None:
        return []
    if conversation.parent_tool_use_id is None and is_replaced(conversation.instructions):
        return []
    found = conversation.instructions.nested(path)
    new = [text for mark, text in found if not is_sent(conversation, mark)]
    return ["\n\n".join([HEADING, *new])] if new else []


async def report_instructions(conversation: Conversation, call: ToolUse, texts: list[str]) -> None:
    """Fire InstructionsLoaded for the memory files in the texts of `find_instructions`."""
    values = (call.input.get(field) for field in find_traits(call.name).path_fields)
    trigger = next((value for value in values if isinstance(value, str)), "")
    await conversation.hooks.events.nested_instructions(texts, trigger)


def is_sent(conversation: Conversation, mark: str) -> bool:
    return any(mark in text for text in conversation.journal.history.memory_texts)
