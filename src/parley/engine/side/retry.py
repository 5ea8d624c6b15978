"""A model call outside the conversation with the same retries as the calls of a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from parley.engine.side.query import call_model
from parley.engine.turn import model_call, outcome
from parley.errors import ModelError
from parley.models.base import ModelRequest
from parley.models.catalog import ModelRef
from parley.protocol.base import Message
from parley.protocol.blocks import Text, ToolUse

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation

NO_WORDS = "no_summary"
"""The kind of a ModelError: the answer has no usable text."""
REFUSALS = (400, 413, 422)
"""HTTP statuses with which a backend rejects a request."""


async def call_with_retry(
    conversation: Conversation, request: ModelRequest, choice: ModelRef, send: Callable[[Message], None]
) -> str:
    """The text of the answer. Raises ModelError, BudgetSpent."""
    failures, since, now = 0, 0.0, conversation.clock.monotonic
    while True:
        try:
            return await call_once(conversation, request, choice)
        except ModelError as exc:
            failures += 1
            since = since if failures > 1 else now()
            most = conversation.options.max_retries
            delay = model_call.delay_seconds(exc, failures, most, conversation.config.random(), now() - since)
            if delay is None:
                raise
            send(model_call.retry_message(exc, failures, most, delay))
            await conversation.clock.sleep(delay)


async def call_once(conversation: Conversation, request: ModelRequest, choice: ModelRef) -> str:
    """One attempt. Raises ModelError, BudgetSpent."""
    accumulator = await call_model(conversation.models, conversation.ledger, choice, request)
    if not accumulator.is_complete:
        raise ModelError("the model's stream ended early", kind="connection_failed", retryable=True)
    text = "\n\n".join(block.text for block in accumulator.blocks if isinstance(block, Text)).strip()
    if not text:
        raise ModelError("the model's answer has no text", kind=NO_WORDS)
    if accumulator.stop_reason == model_call.REFUSAL or any(isinstance(block, ToolUse) for block in accumulator.blocks):
        # Text before a tool call or with a refusal is not a summary.
        raise ModelError("the model did not return what was requested", kind=NO_WORDS)
    return text


def is_about_length(error: ModelError) -> bool:
    """Whether a shorter or reworded request can succeed."""
    return outcome.is_too_large(error) or error.kind == NO_WORDS


def is_about_request(error: ModelError) -> bool:
    """Whether the backend rejected this request, so that a different one can succeed."""
    return is_about_length(error) or error.status in REFUSALS
