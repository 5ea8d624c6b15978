"""What a turn hears from hooks: context for its model, and whether it is to end or to go on.

Light, and of no effect where nobody listens; what the hooks are asked is in turn_hooks.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.errors import ModelError
from parley.protocol.blocks import ToolUse
from parley.tools.base import Result

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation
    from parley.engine.turn.tool_outcome import Called


class Hearing:
    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._listeners = conversation.listeners
        self.contexts: list[str] = []
        """What hooks have to say to the model, until it can be said."""
        self.about_prompts: list[str] = []
        """The same about the prompts of the turn: where they do not come in, it has no use."""
        self.stopped: str | None = None
        """Why a hook wants the turn to end, if one does."""
        self._done: list[tuple[ToolUse, Result]] = []
        """The calls of the last answer that have their results."""
        self._stops = 0
        """How often hooks have kept the turn from ending."""

    def keep(self) -> None:
        """Put what was heard into the conversation. Raises SessionError."""
        self._conversation.keep_contexts([*self.contexts, *self.about_prompts])
        self.contexts, self.about_prompts = [], []

    def note(self, call: ToolUse, called: Called) -> None:
        """A call has its result."""
        if self._listeners.live is not None:
            self._done.append((call, called.result))
            self.contexts += called.contexts
            self._stop(called.stopped)

    async def end_batch(self) -> None:
        """All calls of an answer have their results: now is the time to speak to the model."""
        live = self._listeners.live
        if live is None:
            return
        done, self._done = self._done, []
        ending = await live.turns.after_batch(done, self._conversation.caller.agent)
        self.contexts += ending.contexts
        self._stop(ending.stopped)
        self.keep()

    async def goes_on(self, text: str) -> bool:
        """Whether hooks want more of a model that asks for nothing more."""
        live = self._listeners.live
        if live is None or self.stopped is not None:
            return False
        talk = self._conversation
        ending = await live.turns.may_end(text, self._stops, talk.caller.agent, talk.transcript_path)
        self._stop(ending.stopped)
        if ending.feedback is None:
            return False
        self._stops += 1
        self.contexts.append(ending.feedback)
        self.keep()
        return True

    async def tell_failure(self, flaw: ModelError) -> None:
        if self._listeners.live is not None and self._conversation.parent_tool_use_id is None:
            await self._listeners.live.turns.tell_failure(flaw)

    def _stop(self, why: str | None) -> None:
        if self.stopped is None:
            self.stopped = why
