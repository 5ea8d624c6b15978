"""Which lines of a subagent the host hears, and what they say of whom they come from.

As recorded: calls and their results always; texts of an agent in the background, and of
others only where the host wants them; the prompt of an agent whose caller waits. Thinking is
told only where the host wants texts.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from parley.engine.agents.task import AgentTask
from parley.protocol.base import UNSET, Message
from parley.protocol.blocks import Text, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.dialects import AnswerComplete
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.system import PermissionDenied

DOING = {
    "Bash": ("Running", "description", "command"),
    "Read": ("Reading", "file_path"),
    "Edit": ("Editing", "file_path"),
    "Write": ("Writing", "file_path"),
    "NotebookEdit": ("Editing", "notebook_path"),
    "Grep": ("Searching for", "pattern"),
    "Glob": ("Finding", "pattern"),
    "WebFetch": ("Fetching", "url"),
    "WebSearch": ("Searching the web for", "query"),
    "Agent": ("Delegating", "description"),
    "Task": ("Delegating", "description"),
}
MOST_CHARS = 200


def activity(call: ToolUse) -> str:
    """What an agent is doing, in a few words."""
    verb, *fields = DOING.get(call.name, ("Using",))
    told = next((call.input[field] for field in fields if isinstance(call.input.get(field), str)), call.name)
    return f"{verb} {told}"[:MOST_CHARS]


class Voice:
    def __init__(self, tell: Callable[[Message], None], task: AgentTask, *, forwards_text: Callable[[], bool]) -> None:
        self._tell = tell
        self._task = task
        self._forwards_text = forwards_text
        self._is_muted = False

    def mute(self) -> None:
        """It was told that the agent is gone: nothing of it comes behind."""
        self._is_muted = True

    def say(self, message: Message) -> None:
        if isinstance(message, Assistant):
            self._keep_text(message)
        if not self._is_muted and self._is_told(message):
            self._tell(self._signed(message))

    def _keep_text(self, message: Assistant) -> None:
        """What it says is its output."""
        for block in message.message.content:
            if isinstance(block, Text):
                self._task.record.take(block.text.encode() + b"\n")

    def _is_told(self, message: Message) -> bool:
        if isinstance(message, Assistant):
            blocks = message.message.content
            if any(isinstance(block, ToolUse) for block in blocks) or self._forwards_text():
                return True
            return self._task.in_background and any(isinstance(block, Text) for block in blocks)
        if isinstance(message, User):
            content = message.message.content
            if isinstance(content, list) and any(isinstance(block, ToolResult) for block in content):
                return True
            return message.isSynthetic is not True and (not self._task.in_background or self._forwards_text())
        # Dialects that hold an answer until it is complete hold that of the session, not an agent's.
        return not isinstance(message, AnswerComplete)

    def _signed(self, message: Message) -> Message:
        task = self._task
        if isinstance(message, Assistant):
            return msgspec.structs.replace(message, **self._signature())
        if isinstance(message, User):
            return msgspec.structs.replace(message, tool_use_result=UNSET, **self._signature())
        if isinstance(message, PermissionDenied):
            return msgspec.structs.replace(message, agent_id=task.id)
        if isinstance(message, ToolProgress):
            kind, place = task.call.subagent_type, task.tool_use_id
            return msgspec.structs.replace(message, parent_tool_use_id=place, subagent_type=kind, task_id=task.id)
        return message

    def _signature(self) -> dict[str, str]:
        task = self._task
        return {"agent_id": task.id, "subagent_type": task.call.subagent_type, "task_description": task.description}
