"""Memory files in folders below the working directory: sent when the model reads or writes a file there.

They are appended after the results of the calls, and again only if compaction removed them. A conversation
whose instructions have no memory files gets none of these.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parley.engine.context.system_prompt import is_replaced
from parley.protocol.blocks import ToolUse
from parley.tools.catalog import find_traits

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation
    from parley.engine.hooks.dispatcher import HookDispatcher
    from parley.engine.turn.tool_executor import ToolOutcome

MARK = r"^Contents of (/.*):$"
"""The line before the text of a memory file."""
HEADING = "Instructions from files near what you looked at. Follow them where they apply to the task."


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


async def report_instructions(dispatcher: HookDispatcher, call: ToolUse, texts: list[str]) -> None:
    """Fire InstructionsLoaded for the memory files in the texts of `find_instructions`."""
    if not dispatcher.has_hooks("InstructionsLoaded"):
        return
    paths = [path for text in texts for path in re.findall(MARK, text, re.MULTILINE)]
    files = [(path, "Local" if path.endswith(".local.md") else "Project") for path in paths]
    values = (call.input.get(field) for field in find_traits(call.name).path_fields)
    trigger = next((value for value in values if isinstance(value, str)), "")
    await dispatcher.session_hooks.instructions_loaded(files, "nested_traversal", trigger_file_path=trigger)


def is_sent(conversation: Conversation, mark: str) -> bool:
    return any(mark in text for text in conversation.journal.history.memory_texts)
