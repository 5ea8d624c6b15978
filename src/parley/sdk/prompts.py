"""Prompts on their way to an engine, one or as many as a program generates."""

from __future__ import annotations

from collections.abc import AsyncIterable

import msgspec

from parley.protocol.base import Json, Message, Refused, decode
from parley.protocol.messages.conversation import User
from parley.sdk.errors import ClaudeSDKError
from parley.sdk.inbox import Inbox
from parley.sdk.link import Link
from parley.sdk.running import log
from parley.sdk.tracing import trace_context


def say(link: Link, inbox: Inbox, line: Json, verbatim: bool) -> None:
    """Send a line of the program. Raises ValueError for what is none."""
    if line.get("type") == "user":
        line = {**{name: value for name, value in trace_context().items() if name == "traceparent"}, **line}
        if verbatim:
            line = {**line, "client_composed": True}
    message: Message = decode(msgspec.json.encode(line))
    if isinstance(message, Refused):
        raise ValueError(f"the prompt is no message: {message.reason}")
    if isinstance(message, User):
        inbox.unanswered += 1
    link.send(message)


async def feed(link: Link, inbox: Inbox, prompts: AsyncIterable[Json], verbatim: bool) -> None:
    """Send what a program generates. What goes wrong in it ends it, not the session."""
    try:
        async for line in prompts:
            say(link, inbox, {"session_id": "default", **line}, verbatim)
            await link.flush()
    except ClaudeSDKError:
        log.debug("the prompts ended with the engine", exc_info=True)
    except Exception:
        log.exception("the prompts of the program failed")


def new_uuid() -> str:
    from uuid import uuid4

    return str(uuid4())
