"""Which subagent messages are forwarded to the client, and how they are attributed.

As in recordings of Claude Code: tool calls and results always; text of background agents always, of others
if the client requests it; the prompt of a foreground agent. Thinking is forwarded only with text.
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
from parley.protocol.messages.system import ApiRetry, PermissionDenied

AGENT = "Agent"
"""The tool whose calls start agents."""


class SubagentForwarder:
    def __init__(
        self,
        send: Callable[[Message], None],
        task: AgentTask,
        *,
        forwards_text: Callable[[], bool],
        new_uuid: Callable[[], str],
    ) -> None:
        self._send = send
        self._new_uuid = new_uuid
        self._task = task
        self._forwards_text = forwards_text
        self._is_muted = False

    def mute(self) -> None:
        """Forward nothing more: the client was told that the agent ended."""
        self._is_muted = True

    def forward(self, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Assistant):
                self._append_output(message)
            if isinstance(message, ApiRetry) and not self._is_muted:
                self._send(self._describe_retry(message))
            if not self._is_muted and self._is_forwarded(message):
                self._send(self._attribute(message))

    def _describe_retry(self, retry: ApiRetry) -> ToolProgress:
        """The progress of the call that started the agent: its model call failed and will be retried."""
        task = self._task
        return ToolProgress(
            tool_use_id=task.tool_use_id,
            tool_name=AGENT,
            parent_tool_use_id=None,
            elapsed_time_seconds=task.usage().duration_ms / 1000,
            task_id=task.id,
            subagent_type=task.call.subagent_type,
            subagent_retry={
                "agent_id": task.id,
                "attempt": retry.attempt,
                "max_retries": retry.max_retries,
                "retry_delay_ms": retry.retry_delay_ms,
                "error_status": retry.error_status,
                "error_category": retry.error,
            },
            session_id=retry.session_id,
            uuid=self._new_uuid(),
        )

    def _append_output(self, message: Assistant) -> None:
        """Write the agent's text to its output file."""
        for block in message.message.content:
            if isinstance(block, Text):
                self._task.record.take(block.text.encode() + b"\n")

    def _is_forwarded(self, message: Message) -> bool:
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
        # Dialects that buffer an answer until it is complete buffer that of the session, not of an agent.
        return not isinstance(message, AnswerComplete)

    def _attribute(self, message: Message) -> Message:
        task = self._task
        if isinstance(message, Assistant):
            return msgspec.structs.replace(message, **self._attribution())
        if isinstance(message, User):
            return msgspec.structs.replace(message, tool_use_result=UNSET, **self._attribution())
        if isinstance(message, PermissionDenied):
            return msgspec.structs.replace(message, agent_id=task.id)
        if isinstance(message, ToolProgress):
            kind, place = task.call.subagent_type, task.tool_use_id
            return msgspec.structs.replace(message, parent_tool_use_id=place, subagent_type=kind, task_id=task.id)
        return message

    def _attribution(self) -> dict[str, str]:
        task = self._task
        return {"agent_id": task.id, "subagent_type": task.call.subagent_type, "task_description": task.description}
