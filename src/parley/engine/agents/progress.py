"""Says what a running subagent does, for clients that want it: `summary` in `task_progress`.

The agent's model is asked outside its conversation, at intervals and only if something happened since. Nothing waits
for the answer, and a failure costs only the summary.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec

from parley.engine.agents.task import AgentTask
from parley.engine.context.conversation import Conversation
from parley.engine.session.parts import ClientDeclarations
from parley.engine.side.query import SideQuery, user_messages
from parley.errors import ModelError
from parley.protocol.base import UNSET, Json, Message, sanitize
from parley.protocol.blocks import Text, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.dialects import AnswerComplete
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.system import ApiRetry, PermissionDenied, TaskProgress
from parley.tools.agent import AgentInput

MAX_LINES = 12
MAX_LINE_CHARS = 400
MAX_SUMMARY_CHARS = 120
QUESTION = """\
Below are the task of an agent and its last steps. What is it doing right now?
Answer with that alone, in three to eight words and the present tense, such as: Reading the tests of the parser

<task>
{task}
</task>
<steps>
{steps}
</steps>"""
REQUESTED = {True: "background", False: "foreground", None: "unset"}
AGENT = "Agent"
"""The tool whose calls start agents."""


class ProgressSummaries:
    def __init__(
        self,
        task: AgentTask,
        conversation: Conversation,
        side_query: SideQuery,
        send: Callable[[Message], None],
    ) -> None:
        self._task = task
        self._conversation = conversation
        self._side_query = side_query
        self._send = send

    async def run(self) -> None:
        """Send summaries until cancelled."""
        conversation, seen, interval = self._conversation, 0, self._conversation.limits.summary_seconds
        while True:
            await asyncio.sleep(interval)
            entries = len(conversation.journal.history.list_entries())
            if entries == seen:
                continue
            seen = entries
            try:
                text = await self._summarize()
            except ModelError as exc:
                conversation.config.warn(f"the progress of agent {self._task.id} cannot be summarized: {exc}")
                continue
            if text:
                self._send_progress(text)

    async def _summarize(self) -> str:
        """Raises ModelError."""
        question = QUESTION.format(task=self._task.call.prompt[:MAX_LINE_CHARS], steps=self._last_steps())
        blocks = await self._side_query.converse(self._conversation.model, "", user_messages(question), [])
        text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text")
        line: str = sanitize(" ".join(text.split()).strip("\"'"))
        return line[:MAX_SUMMARY_CHARS]

    def _last_steps(self) -> str:
        messages = self._conversation.journal.history.render()
        lines = [line for message in messages[1:] for line in describe_blocks(message)]
        return "\n".join(lines[-MAX_LINES:]) or "(none yet)"

    def _send_progress(self, text: str) -> None:
        task = self._task
        self._send(
            TaskProgress(
                task_id=task.id,
                run_id=task.run_id,
                tool_use_id=task.tool_use_id,
                description=task.description,
                subagent_type=task.call.subagent_type,
                usage=task.usage(),
                summary=text,
            )
        )


def describe_blocks(message: Json) -> list[str]:
    """One short line for each text and tool call of a message."""
    lines = []
    for block in message["content"]:
        if block.get("type") == "text" and message["role"] == "assistant":
            lines.append(f"it says: {block['text']}")
        elif block.get("type") == "tool_use":
            lines.append(f"it calls {block['name']} {block.get('input')}")
    return [" ".join(line.split())[:MAX_LINE_CHARS] for line in lines]


class AgentStats:
    def __init__(self) -> None:
        self._requested = Counter(dict.fromkeys(REQUESTED.values(), 0))
        self._by_type: Counter[str] = Counter()
        self._in_background = self._max_depth = self._nested = self._completed = self._failed = 0
        self.killed = {"parent": 0, "user": 0, "system": 0}
        self.refused = {"depth_limit": 0, "concurrency_limit": 0, "budget": 0}

    def record_start(self, call: AgentInput, task: AgentTask) -> None:
        self._requested[REQUESTED[call.run_in_background]] += 1
        self._by_type[call.subagent_type] += 1
        self._in_background += task.in_background
        self._max_depth = max(self._max_depth, task.depth)
        self._nested += task.depth > 1

    def record_end(self, failed: bool) -> None:
        self._failed += failed
        self._completed += not failed

    def json(self) -> Json:
        return {
            "spawned": sum(self._requested.values()),
            "requested": dict(self._requested),
            "started_in_background": self._in_background,
            "max_depth": self._max_depth,
            "spawned_by_subagents": self._nested,
            "completed": self._completed,
            "failed": self._failed,
            "killed": dict(self.killed),
            "refused": dict(self.refused),
            "by_type": dict(self._by_type),
        }


class SubagentForwarder:
    def __init__(
        self,
        send: Callable[[Message], None],
        task: AgentTask,
        declared: ClientDeclarations,
        new_uuid: Callable[[], str],
    ) -> None:
        self._send = send
        self._new_uuid = new_uuid
        self._task = task
        self._declared = declared
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
            if any(isinstance(block, ToolUse) for block in blocks) or self._declared.forwards_text:
                return True
            return self._task.in_background and any(isinstance(block, Text) for block in blocks)
        if isinstance(message, User):
            content = message.message.content
            if isinstance(content, list) and any(isinstance(block, ToolResult) for block in content):
                return True
            return message.isSynthetic is not True and (not self._task.in_background or self._declared.forwards_text)
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
