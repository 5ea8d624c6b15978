"""Build and send prompts: a single one, or the items of an async iterable."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, Callable, Mapping, Sequence

import msgspec

from parley.protocol.base import UNSET, Json, Message, Refused, dec_hook, decode
from parley.protocol.messages.conversation import User, UserContent
from parley.sdk.errors import ClaudeSDKError
from parley.sdk.runtime.background import is_stray, log
from parley.sdk.runtime.connection import EngineConnection
from parley.sdk.runtime.message_router import MessageRouter

PRIORITIES = ("now", "next", "later")
Prompt = str | Sequence[Json]
"""Text, or content blocks in the format of the Messages API."""


def build_user(prompt: Prompt, uuid: str, priority: str | None, verbatim: bool) -> User:
    """Build the user message of a prompt.

    Raises TypeError for an invalid prompt, ValueError for an invalid block or priority.
    """
    if not isinstance(prompt, str) and not (isinstance(prompt, list | tuple) and all(map(is_block, prompt))):
        raise TypeError(f"prompt must be a string or a list of content blocks (dicts), not {prompt!r:.200}")
    if priority is not None and priority not in PRIORITIES:
        raise ValueError(f"priority must be one of {', '.join(map(repr, PRIORITIES))}, not {priority!r:.200}")
    content = prompt if isinstance(prompt, str) else list(prompt)
    return User(
        message=msgspec.convert({"role": "user", "content": content}, UserContent, dec_hook=dec_hook),
        parent_tool_use_id=None,
        session_id="default",
        uuid=uuid,
        priority=UNSET if priority is None else priority,
        client_composed=True if verbatim else UNSET,
        traceparent=trace_context().get("traceparent", UNSET),
    )


def later(prompt: User) -> User:
    """The prompt for a turn of its own, even if the engine runs one now."""
    return msgspec.structs.replace(prompt, priority="later")


def is_block(given: object) -> bool:
    return isinstance(given, dict)


def check_prompt(prompt: object) -> None:
    """Raises TypeError for a prompt that `query` cannot send."""
    if not isinstance(prompt, str) and not hasattr(prompt, "__aiter__"):
        raise TypeError(f"prompt must be a string or an async iterable of messages (dicts), not {prompt!r:.200}")


def build_line(given: object, session_id: str = "default") -> Json:
    """Convert an item of an iterable of prompts to a message. Raises TypeError if it is not a mapping."""
    if not isinstance(given, Mapping):
        raise TypeError(f"each prompt must be a message (a dict with `type` and `message`), not {given!r:.200}")
    return {"session_id": session_id, **given}


def send_prompt(link: EngineConnection, router: MessageRouter, line: Json, verbatim: bool) -> None:
    """Send a message of the program. Raises ValueError if it is not a valid message."""
    if line.get("type") == "user":
        line = {**{name: value for name, value in trace_context().items() if name == "traceparent"}, **line}
        if verbatim:
            line = {**line, "client_composed": True}
    message: Message = decode(msgspec.json.encode(line))
    if isinstance(message, Refused):
        raise ValueError(f"the prompt is not a valid message: {message.reason}")
    link.send(message)
    if isinstance(message, User):
        router.unanswered += 1


async def send_all(
    link: EngineConnection, prompts: AsyncIterable[Json], send: Callable[[Json], None]
) -> Exception | None:
    """Send the items of an async iterable; returns the exception that it raised. Ends early if the engine exits."""
    error: Exception
    try:
        async for given in prompts:
            try:
                send(build_line(given))
                await link.flush()
            except ClaudeSDKError:
                log.debug("the engine exited before all prompts were sent", exc_info=True)
                return None
        return None
    except Exception as exc:
        error = exc
    except BaseException as exc:
        if not is_stray(exc):
            raise
        error = RuntimeError("the iterable of prompts was cancelled")
        error.__cause__ = exc
    # A program that does not read a stream to its end finds the error in the log.
    log.warning("the iterable of prompts raised an exception", exc_info=error)
    return error


def new_uuid() -> str:
    from uuid import uuid4

    return str(uuid4())


def trace_context() -> dict[str, str]:
    """Return `traceparent`, and `tracestate` if present; empty without a span."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    fields: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(fields)
    return fields
