"""Memory files in folders below the working directory: sent when the model reads or writes a file there.

They are appended after the results of the calls, and again only if compaction removed them. A conversation
whose instructions have no memory files gets none of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from parley.engine.context.system_prompt import is_replaced
from parley.protocol.base import Json
from parley.protocol.blocks import ToolUse

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation
    from parley.engine.turn.tool_executor import ToolOutcome

PATH_FIELDS = {"Read": "file_path", "Edit": "file_path", "Write": "file_path", "NotebookEdit": "notebook_path"}
HEADING = "Instructions from files near what you looked at. Follow them where they apply to the task."


def find_instructions(conversation: Conversation, call: ToolUse, outcome: ToolOutcome) -> list[str]:
    """The memory files for a successful call that the conversation does not have yet."""
    path = call.input.get(PATH_FIELDS.get(call.name, "")) if outcome.executed_input is not None else None
    if not isinstance(path, str) or outcome.output.is_error:
        return []
    if conversation.parent_tool_use_id is None and is_replaced(conversation.instructions):
        return []
    found = conversation.instructions.nested(path)
    new = [text for mark, text in found if not is_sent(conversation, mark)]
    return ["\n\n".join([HEADING, *new])] if new else []


def is_sent(conversation: Conversation, mark: str) -> bool:
    return any(mark in text for text in texts(conversation.journal.history.render()))


def texts(messages: list[Json]) -> Iterator[str]:
    for message in messages:
        for block in message["content"] if message["role"] == "user" else ():
            if block.get("type") == "text":
                yield str(block["text"])
