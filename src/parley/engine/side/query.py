"""A model call beside the conversation: a tool asks, the history does not hear of it.

Three kinds: a question to the small model (WebFetch has a page read), one to the session's own
model with tools of its backend (WebSearch), and a talk with any model and tools of its own, of
which each step is one call (whoever looks after a memory). What they use is booked under
the model's name, not under the turn's own usage. They are not tried again: the tool has
another way, or tells the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from parley.engine.accounting.ledger import Ledger
from parley.engine.context.history import marked
from parley.engine.context.system_prompt import system_blocks
from parley.errors import BudgetSpent, ModelError
from parley.models.accumulator import Growing
from parley.models.base import Model, ModelRequest
from parley.models.catalog import Choice, facts, resolve
from parley.protocol.base import Json
from parley.tools.base import Context

if TYPE_CHECKING:
    from parley.engine.session.session import Session

LONGEST_SECONDS = 120
MOST_TOKENS = 8_192


class Errand:
    def __init__(
        self,
        *,
        open_model: Callable[[Choice], Model],
        current: Callable[[], Choice],
        small: Choice,
        ledger: Ledger,
        clock: Callable[[], float],
        session_id: str,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._open_model = open_model
        self._current = current
        """The session's own model, which may change."""
        self._small = small
        self._ledger = ledger
        self._clock = clock
        self._session_id = session_id
        self._longest_seconds = longest_seconds

    async def ask_small(self, prompt: str) -> str:
        """The small model's answer; a session that is not on the API asks its own model. Raises ModelError."""
        own = self._current()
        choice = self._small if own.adapter == "anthropic" else own
        blocks = await self._ask(choice, self._request(choice, asking(prompt)))
        text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text").strip()
        if not text:
            raise ModelError("the model answered without a word")
        return text

    async def consult(self, prompt: str, tools: list[Json]) -> list[Json]:
        """The blocks of an answer for which the backend itself may use tools. Raises ModelError."""
        own = self._current()
        if own.adapter != "anthropic":
            raise ModelError(f"the model {own.shown} has no tools of its own")
        return await self._ask(own, self._request(own, asking(prompt), tools))

    async def converse(self, choice: Choice, system: str, messages: list[Json], tools: list[Json]) -> list[Json]:
        """The blocks of one answer. Nobody waits for it, so it holds up no other call. Raises ModelError."""
        request = self._request(choice, marked(messages), tools, system)
        return await self._ask(choice, request, gives_way=True)

    async def _ask(self, choice: Choice, request: ModelRequest, *, gives_way: bool = False) -> list[Json]:
        growing = Growing()
        try:
            async with self._ledger.call(gives_way=gives_way):
                begun = self._clock()
                try:
                    await self._read(choice, request, growing)
                finally:
                    if growing.started:
                        self._ledger.count(choice.shown, growing.final_usage, self._clock() - begun, beside=True)
        except BudgetSpent as flaw:
            raise ModelError(str(flaw), kind="budget_exhausted") from None
        except TimeoutError:
            raise ModelError("the model did not answer in time", kind="timeout_error", retryable=True) from None
        if not growing.finished:
            raise ModelError("the model's stream broke off", kind="connection_failed", retryable=True)
        return [block.json for block in growing.blocks]

    async def _read(self, choice: Choice, request: ModelRequest, growing: Growing) -> None:
        async with asyncio.timeout(self._longest_seconds):
            stream = self._open_model(choice).stream(request)
            async with aclosing(stream) as events:
                async for event in events:
                    growing.feed(event)

    def _request(
        self, choice: Choice, messages: list[Json], tools: list[Json] | None = None, system: str = ""
    ) -> ModelRequest:
        return ModelRequest(
            model=choice.name if choice.adapter == "anthropic" else choice.shown,
            system=system_blocks(system),
            messages=messages,
            tools=tools or [],
            max_tokens=min(MOST_TOKENS, facts(choice.name).max_output_tokens),
            session_id=self._session_id,
        )


def asking(prompt: str) -> list[Json]:
    return [{"role": "user", "content": [{"type": "text", "text": prompt}]}]


def lend(session: Session, context: Context) -> Errand:
    """Give the tools what only a session has."""
    errand = Errand(
        open_model=session.access.open,
        current=lambda: session.conversation.model,
        small=resolve(session.setup.small_model),
        ledger=session.ledger,
        clock=session.stamp.monotonic,
        session_id=session.id,
    )
    context.ask_small_model = context.ask_small_model or errand.ask_small
    context.consult = errand.consult
    context.set_mode = session.permission_mode.change
    context.hides = session.setup.permits.hides
    context.strict_reads = facts(session.conversation.model.name).reads_first
    return errand
