"""Where a request has cache markers, so that the next ones read what they have in common with it.

    tools, system = mark_prefix(tools, system, ttl)
    messages = mark_messages(messages, ttl)

A server keeps the prefixes that end at a marker, and finds one at most 20 blocks before a marker of a later request. A
request can have four markers. Ours are at the end of:

1. what all sessions of a program share: the tools, and the system prompt up to what names the machine or the folder
2. the system prompt
3. the request before: however many parallel calls and results came since, they are not between two markers
4. the messages

Markers that a client has put into a prompt are removed (`history.py`), because four is the limit of a request.
"""

from __future__ import annotations

from functools import lru_cache

from parley.models.base import DEFER, SettledMessages
from parley.protocol.base import Json

MARKER = "cache_control"


@lru_cache(maxsize=16)
def cache_marker(ttl: str | None) -> Json:
    """`ttl` is how long the cache lives; None for the server's default. The result must not be changed."""
    return {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}


def mark_prefix(tools: list[Json], system: list[Json], ttl: str | None = None) -> tuple[list[Json], list[Json]]:
    """Mark the blocks of the system prompt. If there are fewer than two, mark the last tool too."""
    marked = [{**block, MARKER: cache_marker(ttl)} for block in system]
    last = max((at for at, tool in enumerate(tools) if DEFER not in tool), default=None)
    if len(system) > 1 or last is None:
        return tools, marked
    return [*tools[:last], {**tools[last], MARKER: cache_marker(ttl)}, *tools[last + 1 :]], marked


def mark_messages(messages: list[Json], ttl: str | None = None) -> list[Json]:
    """Mark the end of the messages, and that of the request before: what came before the last answer.

    Returns a new list, except for `SettledMessages`, which may be long: that list itself is changed.
    """
    if not messages:
        return messages
    ends = [len(messages) - 1]
    if messages[-1]["role"] == "user":
        answer = next((at for at in range(len(messages) - 2, 0, -1) if messages[at]["role"] == "assistant"), 0)
        before = next((at for at in range(answer - 1, -1, -1) if messages[at]["role"] == "user"), None)
        ends += [] if before is None else [before]
    if isinstance(messages, SettledMessages):
        messages.settled = min(messages.settled, *ends)
    else:
        messages = messages.copy()
    for at in ends:
        *blocks, block = messages[at]["content"]
        messages[at] = {**messages[at], "content": [*blocks, {**block, MARKER: cache_marker(ttl)}]}
    return messages
