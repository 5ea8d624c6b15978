"""A model call beside the conversation that is tried again where that may help, as the calls of a turn are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from parley.engine.turn import outcome, retry
from parley.errors import ModelError
from parley.models.accumulator import Growing
from parley.models.base import ModelRequest
from parley.models.catalog import Choice
from parley.protocol.base import Message
from parley.protocol.blocks import Text, ToolUse
from parley.protocol.messages.system import ApiRetry

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation

NO_WORDS = "no_summary"
"""The kind of a ModelError: the model answered, and without the words it was asked for."""
REFUSAL = "refusal"
REFUSALS = (400, 413, 422)
"""What a backend answers that has something against the request as it is."""


async def insist(talk: Conversation, request: ModelRequest, choice: Choice, tell: Callable[[Message], None]) -> str:
    """What the model says. Raises ModelError, BudgetSpent."""
    failures, since, now = 0, 0.0, talk.stamp.monotonic
    while True:
        try:
            return await ask(talk, request, choice)
        except ModelError as flaw:
            failures += 1
            since = since if failures > 1 else now()
            delay = retry.delay_seconds(flaw, failures, talk.limits.max_retries, talk.setup.dice(), now() - since)
            if delay is None:
                raise
            line = ApiRetry(
                attempt=failures,
                max_retries=retry.most_retries(flaw, talk.limits.max_retries),
                retry_delay_ms=round(delay * 1000),
                error_status=flaw.status,
                error=outcome.error_name(flaw),
            )
            tell(line)
            await talk.stamp.pause(delay)


async def ask(talk: Conversation, request: ModelRequest, choice: Choice) -> str:
    """Once. Raises ModelError, BudgetSpent."""
    growing, clock = Growing(), talk.stamp.monotonic
    async with talk.ledger.call():
        begun = clock()
        try:
            async with aclosing(talk.open_model(choice).stream(request)) as events:
                async for event in events:
                    growing.feed(event)
        finally:
            if growing.started:
                talk.ledger.count(choice.shown, growing.final_usage, clock() - begun, beside=True)
    if not growing.complete:
        raise ModelError("the model's stream broke off", kind="connection_failed", retryable=True)
    said = "\n\n".join(block.text for block in growing.blocks if isinstance(block, Text)).strip()
    if not said:
        raise ModelError("the model answered without a word", kind=NO_WORDS)
    if growing.stop_reason == REFUSAL or any(isinstance(block, ToolUse) for block in growing.blocks):
        # What was said before a call, or in place of an answer, stands for nothing.
        raise ModelError("the model did not do what it was asked for", kind=NO_WORDS)
    return said


def is_about_length(flaw: ModelError) -> bool:
    """Whether a shorter request may help, or one that is put in other words."""
    return outcome.is_too_much(flaw) or flaw.kind == NO_WORDS


def is_about_request(flaw: ModelError) -> bool:
    """Whether the backend has answered, and wants to be asked for something else."""
    return is_about_length(flaw) or flaw.status in REFUSALS
