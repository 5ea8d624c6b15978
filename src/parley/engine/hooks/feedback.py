"""What hooks say during a turn: context for its model, and whether it ends or continues.

Does nothing in a session without hooks. See also: `turn_hooks.py` for the events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.errors import ModelError
from parley.protocol.blocks import ToolUse
from parley.tools.base import ToolOutput

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation
    from parley.engine.turn.tool_executor import ToolOutcome


class HookFeedback:
    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._hooks = conversation.hooks
        self.contexts: list[str] = []
        """Context for the model that is not in the conversation yet."""
        self.prompt_contexts: list[str] = []
        """Context about the prompts of the turn; dropped if they are refused."""
        self.stop_reason: str | None = None
        """Why a hook ends the turn; None if none does."""
        self._done: list[tuple[ToolUse, ToolOutput]] = []
        """The calls of the last answer that have results."""
        self._stops = 0
        """How often hooks kept the turn from ending."""

    def append(self) -> None:
        """Append the collected context to the conversation. Raises SessionError."""
        self._conversation.append_contexts([*self.contexts, *self.prompt_contexts])
        self.contexts, self.prompt_contexts = [], []

    def add_result(self, call: ToolUse, outcome: ToolOutcome) -> None:
        """Record the result of a call."""
        if self._hooks.dispatcher is not None:
            self._done.append((call, outcome.output))
            self.contexts += outcome.contexts
            self._stop(outcome.stop_reason)

    async def end_batch(self) -> None:
        """Run the hooks after all calls of an answer, and append what they say."""
        dispatcher = self._hooks.dispatcher
        if dispatcher is None:
            return
        done, self._done = self._done, []
        ending = await dispatcher.turn_hooks.after_batch(done, self._conversation.tool_executor.agent)
        self.contexts += ending.contexts
        self._stop(ending.stop_reason)
        self.append()

    async def should_continue(self, text: str) -> bool:
        """Whether hooks make a model continue that has finished."""
        dispatcher = self._hooks.dispatcher
        if dispatcher is None or self.stop_reason is not None:
            return False
        conversation = self._conversation
        ending = await dispatcher.turn_hooks.before_stop(
            text, self._stops, conversation.tool_executor.agent, conversation.transcript_path
        )
        self._stop(ending.stop_reason)
        if ending.feedback is None:
            return False
        self._stops += 1
        self.contexts.append(ending.feedback)
        self.append()
        return True

    async def report_failure(self, error: ModelError) -> None:
        if self._hooks.dispatcher is not None and self._conversation.parent_tool_use_id is None:
            await self._hooks.dispatcher.turn_hooks.report_failure(error)

    def _stop(self, reason: str | None) -> None:
        if self.stop_reason is None:
            self.stop_reason = reason
