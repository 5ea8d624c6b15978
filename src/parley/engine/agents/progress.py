"""Says what a running subagent does, for clients that want it: `summary` in `task_progress`.

The agent's model is asked outside its conversation, at intervals and only if something happened since. Nothing waits
for the answer, and a failure costs only the summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.engine.agents.task import AgentTask
from parley.engine.context.conversation import Conversation
from parley.engine.side.query import SideQuery, user_messages
from parley.errors import ModelError
from parley.protocol.base import Json, Message, sanitize
from parley.protocol.messages.system import TaskProgress

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
