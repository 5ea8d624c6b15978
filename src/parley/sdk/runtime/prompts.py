"""Prompts on their way to an engine, one or as many as a program generates."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping, Sequence

import msgspec

from parley.protocol.base import UNSET, Json, Message, Refused, decode, on_the_way_in
from parley.protocol.messages.conversation import User, UserContent
from parley.sdk.errors import ClaudeSDKError
from parley.sdk.runtime.background import log
from parley.sdk.runtime.connection import Link
from parley.sdk.runtime.message_router import Inbox
from parley.sdk.runtime.tracing import trace_context

PRIORITIES = ("now", "next", "later")
Prompt = str | Sequence[Json]
"""Text, or content blocks as the model's API has them."""


def user(prompt: Prompt, uuid: str, priority: str | None, verbatim: bool) -> User:
    """A prompt as a line. Raises TypeError for what is none, ValueError for blocks or a priority that nobody knows."""
    if not isinstance(prompt, str) and not (isinstance(prompt, list | tuple) and all(map(is_block, prompt))):
        raise TypeError(f"a prompt is text or a list of content blocks (dicts), not {prompt!r:.200}")
    if priority is not None and priority not in PRIORITIES:
        raise ValueError(f"priority must be one of {', '.join(map(repr, PRIORITIES))}, not {priority!r:.200}")
    content = prompt if isinstance(prompt, str) else list(prompt)
    return User(
        message=msgspec.convert({"role": "user", "content": content}, UserContent, dec_hook=on_the_way_in),
        parent_tool_use_id=None,
        session_id="default",
        uuid=uuid,
        priority=UNSET if priority is None else priority,
        client_composed=True if verbatim else UNSET,
        traceparent=trace_context().get("traceparent", UNSET),
    )


def is_block(given: object) -> bool:
    return isinstance(given, dict)


def must_be_prompt(prompt: object) -> None:
    """Raises TypeError for what `query` cannot send."""
    if not isinstance(prompt, str) and not hasattr(prompt, "__aiter__"):
        raise TypeError(f"prompt must be text or an async iterable of messages (dicts), not {prompt!r:.200}")


def line_of(given: object, session_id: str = "default") -> Json:
    """What a program's generator yields, as a line. Raises TypeError for what is none."""
    if not isinstance(given, Mapping):
        raise TypeError(f"the prompts must be messages (dicts with `type` and `message`), not {given!r:.200}")
    return {"session_id": session_id, **given}


def say(link: Link, inbox: Inbox, line: Json, verbatim: bool) -> None:
    """Send a line of the program. Raises ValueError for what is none."""
    if line.get("type") == "user":
        line = {**{name: value for name, value in trace_context().items() if name == "traceparent"}, **line}
        if verbatim:
            line = {**line, "client_composed": True}
    message: Message = decode(msgspec.json.encode(line))
    if isinstance(message, Refused):
        raise ValueError(f"the prompt is no message: {message.reason}")
    link.send(message)
    if isinstance(message, User):
        inbox.unanswered += 1


async def feed(link: Link, inbox: Inbox, prompts: AsyncIterable[Json], verbatim: bool) -> None:
    """Send what a program generates. What goes wrong in it ends it, not the session."""
    try:
        async for line in prompts:
            say(link, inbox, line_of(line), verbatim)
            await link.flush()
    except ClaudeSDKError:
        log.debug("the prompts ended with the engine", exc_info=True)
    except Exception:
        log.exception("the prompts of the program failed")


def new_uuid() -> str:
    from uuid import uuid4

    return str(uuid4())
