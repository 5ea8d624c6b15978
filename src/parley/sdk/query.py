"""Send prompts and get all messages.

    async for message in query(prompt="What is 2 + 2?", options=Options(...)): ...

The engine's input stays open while the engine may still send a request, so callbacks are also
answered for agents that run in the background. `break` ends the engine eventually; use
`async with aclosing(...)` to end it immediately.

See also: `runtime/query_stream.py`, which is imported by the first call.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from parley.sdk.options import Options
    from parley.sdk.runtime.query_stream import QueryStream
    from parley.sdk.runtime.transport import Transport, Wire


P = ParamSpec("P")
R = TypeVar("R")


def named_only(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function name its parameters when it is called without their names."""

    @functools.wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> R:
        if given:
            name = function.__name__
            raise TypeError(f"{name}() takes no arguments without a name: write {name}(prompt=..., options=...)")
        return function(*given, **named)

    return call


@named_only
def query(
    *,
    prompt: str | AsyncIterable[dict[str, Any]],
    options: Options[Any] | None = None,
    transport: Transport | Wire | None = None,
) -> QueryStream:
    """Send one prompt, or an async iterable of them, to a new engine and yield all messages.

        async for message in query(prompt="What is 2 + 2?", options=Options(model="sonnet")):
            if isinstance(message, AssistantMessage):
                print(message.text)

    Raises ResultError after the last message if the turn failed, ProcessError if the engine fails, and TypeError
    immediately for an invalid prompt. An exception of an iterable of prompts is raised at the end. `run` returns
    only the result.
    """
    from parley.sdk.runtime.query_stream import QueryStream

    return QueryStream(prompt, options, transport)
