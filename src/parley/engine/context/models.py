"""The models of a session: which one is called, those that are open, and questions outside the conversation.

    ask_small()   a question to the small model (WebFetch)
    ask()         a question to any model (prompt hooks)
    consult()     a question to the session's own model with tools of its backend (WebSearch)
    converse()    one step of a conversation with any model and tools (memory consolidation)

The history does not contain these questions. Their usage is recorded under the model's name, not under the usage of the
turn. They are not retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial

from parley._threads import run_in_thread
from parley.engine.clock import SessionIdentity
from parley.engine.context.system_prompt import mark_messages, mark_prefix, system_blocks
from parley.engine.ledger import Ledger
from parley.engine.repair.answer import AnswerRepair
from parley.errors import BudgetSpent, ModelError, UsageError
from parley.models.accumulator import MessageAccumulator
from parley.models.base import Model, ModelRequest
from parley.models.catalog import ModelInfo, ModelRef, model_info
from parley.observer import NULL_OBSERVER, Observer
from parley.protocol.base import Json

LONG_TOKENS = 6_000
"""A shorter conversation fits into nearly every window."""


class ModelPool:
    """The open models of a session, shared by all its agents. Opens each at its first use."""

    def __init__(
        self,
        open_model: Callable[[ModelRef], Model],
        observer: Observer = NULL_OBSERVER,
        discover: Callable[[ModelRef], None] = lambda choice: None,
    ) -> None:
        """`discover` asks a server of the user for the limits of a model; it blocks."""
        self._open = open_model
        self._observer = observer
        self._discover = discover
        self._opened: dict[ModelRef, Model] = {}
        self._discoveries: dict[ModelRef, asyncio.Task[None]] = {}

    def open(self, choice: ModelRef) -> Model:
        """Raises UsageError or ModelError."""
        if choice not in self._opened:
            self._opened[choice] = self._trace(choice, self._open(choice))
        return self._opened[choice]

    def _trace(self, choice: ModelRef, model: Model) -> Model:
        if not self._observer.is_enabled:
            return model
        from parley.engine.context.model_tracing import TracedModel

        return TracedModel(model, choice.backend.provider or choice.adapter, self._observer)

    def discover(self, choice: ModelRef, conversation_tokens: Callable[[], int]) -> None:
        """Begin to ask for the limits of a model on a user's server, once a conversation is so long that they matter.

        It has answered, so it is loaded.
        """
        if choice.backend.adapts_info and choice not in self._discoveries and conversation_tokens() >= LONG_TOKENS:
            self._discoveries[choice] = asyncio.create_task(run_in_thread(partial(self._discover, choice)))

    async def close(self) -> None:
        for task in self._discoveries.values():
            task.cancel()
        await asyncio.gather(*self._discoveries.values(), return_exceptions=True)
        for model in self._opened.values():
            await model.close()


class ModelSelection:
    """The model of a conversation. Which one is called can depend on the permission mode."""

    def __init__(self, chosen: ModelRef, mode: Callable[[], str] = lambda: "default") -> None:
        self.chosen = chosen
        """The model that was asked for."""
        self.mode = mode
        """The permission mode, which can change."""

    @property
    def current(self) -> ModelRef:
        """The model to call now."""
        return self.chosen.in_mode(self.mode())


TIMEOUT_SECONDS = 120
MAX_TOKENS = 8_192


async def call_model(
    models: ModelPool, ledger: Ledger, choice: ModelRef, request: ModelRequest, *, is_background: bool = False
) -> MessageAccumulator:
    """One call whose usage is recorded under the model's name, however it ends. Raises ModelError, BudgetSpent."""
    accumulator = MessageAccumulator()
    repair = AnswerRepair(None, lambda call: False, str)
    async with ledger.call(is_background=is_background):
        started_at = ledger.clock()
        try:
            async with aclosing(models.open(choice).stream(request)) as events:
                async for sent in events:
                    for event in repair.feed(sent):
                        accumulator.feed(event)
        finally:
            if accumulator.started:
                seconds = ledger.clock() - started_at
                ledger.record_call(choice.display_name, accumulator.final_usage, seconds, is_side_query=True)
    return accumulator


class SideQuery:
    def __init__(
        self,
        models: ModelPool,
        selection: ModelSelection,
        small: ModelRef,
        ledger: Ledger,
        identity: SessionIdentity,
        *,
        get_info: Callable[[ModelRef], ModelInfo] = lambda choice: model_info(choice.name),
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """`selection` has the session's own model. `small` is used if that is on the API."""
        self._models = models
        self._selection = selection
        self._small = small
        self._ledger = ledger
        self._identity = identity
        self._get_info = get_info
        self._timeout_seconds = timeout_seconds

    async def ask_small(self, prompt: str) -> str:
        """The answer of the small model, or of the session's own on other backends. Raises ModelError."""
        own = self._selection.current
        return await self.ask(self._small if own.is_messages_api else own, prompt)

    async def ask(self, choice: ModelRef, prompt: str) -> str:
        """The answer of a model. Raises ModelError."""
        blocks = await self._call_model(choice, self._build_request(choice, user_messages(prompt)))
        text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text").strip()
        if not text:
            raise ModelError("the model's answer has no text")
        return text

    async def consult(self, prompt: str, tools: list[Json]) -> list[Json]:
        """The blocks of an answer for which the backend can use its own tools. Raises ModelError."""
        own = self._selection.current
        if not own.is_messages_api:
            raise ModelError(f"the model {own.display_name} has no server-side tools")
        return await self._call_model(own, self._build_request(own, user_messages(prompt), tools))

    async def converse(self, choice: ModelRef, system: str, messages: list[Json], tools: list[Json]) -> list[Json]:
        """The blocks of one answer, as a background call that does not delay others. Raises ModelError."""
        request = self._build_request(choice, mark_messages(messages), tools, system)
        return await self._call_model(choice, request, is_background=True)

    async def _call_model(self, choice: ModelRef, request: ModelRequest, *, is_background: bool = False) -> list[Json]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = await call_model(self._models, self._ledger, choice, request, is_background=is_background)
        except BudgetSpent as exc:
            raise ModelError(str(exc), kind="budget_exhausted") from None
        except UsageError as exc:  # the model cannot be used in this session
            raise ModelError(str(exc)) from None
        except TimeoutError:
            raise ModelError("the model did not answer in time", kind="timeout_error", retryable=True) from None
        if not answer.finished:
            raise ModelError("the model's stream ended early", kind="connection_failed", retryable=True)
        return [block.json for block in answer.blocks]

    def _build_request(
        self, choice: ModelRef, messages: list[Json], tools: list[Json] | None = None, system: str = ""
    ) -> ModelRequest:
        tools, blocks = mark_prefix(tools or [], system_blocks(system)) if system else (tools or [], [])
        return ModelRequest(
            model=choice.request_name,
            system=blocks,
            messages=messages,
            tools=tools,
            max_tokens=min(MAX_TOKENS, self._get_info(choice).max_output_tokens),
            session_id=self._identity.id,
        )


def user_messages(prompt: str) -> list[Json]:
    return [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
