"""What fills the context window, item by item. Pure.

Nobody but the model's backend can count tokens exactly, and to ask it would cost a call
for every item. So these are estimates, by the number of characters; what the backend
counted for the last call stands beside them (`apiUsage`), and what it counted beyond them is
part of the sum (`unattributedTokens`): by that sum a conversation is compacted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from parley.engine.context.history import tokens, weight
from parley.models.catalog import Choice, facts
from parley.protocol.base import UNSET, Json, Struct
from parley.protocol.messages.requests import ContextUsage

ROWS, COLUMNS = 10, 20
"""The grid in which clients draw the window."""
MCP = "mcp__"


class Contents(Struct, frozen=True, kw_only=True):
    """What the next model call would carry."""

    model: Choice
    system: str
    memory: list[tuple[str, str, int]] = []
    """Path, kind and characters of the memory files, which are part of `system`."""
    tools: list[Json] = []
    messages: list[Json] = []
    last_usage: Json | None = None
    counted: int = 0
    """How many tokens that is as far as anybody knows: by the backend's count and what came since."""
    window: int | None = None
    """As the session sees it; None for what is known of the model."""
    threshold: int | None = None
    """From how many tokens on the conversation is compacted by itself; None for never."""


class Row(Struct, frozen=True, kw_only=True):
    """A category."""

    id: str
    name: str
    tokens: int
    color: str
    kind: str = "used"

    def json(self) -> Json:
        json: Json = msgspec.to_builtins(self)
        return json


def context_usage(contents: Contents) -> ContextUsage:
    window = contents.window or facts(contents.model.name).context_window
    memory = [{"path": path, "type": kind, "tokens": tokens(chars)} for path, kind, chars in contents.memory]
    own = [named(tool) for tool in contents.tools if not tool["name"].startswith(MCP)]
    mcp = [mcp_tool(tool) for tool in contents.tools if tool["name"].startswith(MCP)]
    breakdown = message_breakdown(contents.messages)
    around = tokens(len(contents.system)) + total(own) + total(mcp)
    # What a backend counts beyond our estimates fills the window all the same, whatever it belongs to.
    breakdown["unattributedTokens"] = max(0, contents.counted - around - said(breakdown))
    of_memory = total(memory)
    used = [
        Row(
            id="system_prompt",
            name="System prompt",
            tokens=max(0, tokens(len(contents.system)) - of_memory),
            color="promptBorder",
        ),
        Row(id="system_tools", name="System tools", tokens=total(own), color="inactive"),
        Row(id="mcp_tools", name="MCP tools", tokens=total(mcp), color="cyan"),
        Row(id="memory_files", name="Memory files", tokens=of_memory, color="blue"),
        Row(id="messages", name="Messages", tokens=said(breakdown), color="purple"),
    ]
    rows = [row for row in used if row.tokens]
    filled = sum(row.tokens for row in rows)
    held = 0 if contents.threshold is None else window - contents.threshold
    buffer = Row(id="autocompact_buffer", name="Autocompact buffer", tokens=held, color="inactive", kind="buffer")
    left = max(0, window - filled - held)
    free = Row(id="free_space", name="Free space", tokens=left, color="promptBorder", kind="free")
    return ContextUsage(
        categories=[row.json() for row in (*rows, *([buffer] if held else ()), free)],
        totalTokens=filled,
        maxTokens=window,
        rawMaxTokens=window,
        percentage=round(100 * filled / window),
        model=contents.model.shown,
        isAutoCompactEnabled=contents.threshold is not None,
        autoCompactThreshold=UNSET if contents.threshold is None else contents.threshold,
        memoryFiles=memory,
        mcpTools=mcp,
        agents=[],
        gridRows=grid(rows, free, window),
        apiUsage=api_usage(contents.last_usage),
        systemTools=own or UNSET,
        messageBreakdown=breakdown,
    )


def total(items: Iterable[Json]) -> int:
    return sum(item["tokens"] for item in items)


def named(tool: Json) -> Json:
    return {"name": tool["name"], "tokens": weight(tool)}


def mcp_tool(tool: Json) -> Json:
    server = tool["name"].removeprefix(MCP).split("__", 1)[0]
    return {"name": tool["name"], "serverName": server, "tokens": weight(tool), "isLoaded": True}


def message_breakdown(messages: list[Json]) -> Json:
    """What the conversation is made of."""
    sums: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    results: Counter[str] = Counter()
    names: dict[str, str] = {}
    for message in messages:
        for block in message["content"]:
            size, kind = weight(block), block.get("type")
            if kind == "tool_use":
                names[block["id"]] = block["name"]
                calls[block["name"]] += size
                sums["toolCallTokens"] += size
            elif kind == "tool_result":
                results[names.get(block["tool_use_id"], "unknown")] += size
                sums["toolResultTokens"] += size
            elif kind in ("image", "document"):
                sums["attachmentTokens"] += size
            else:
                sums[f"{message['role']}MessageTokens"] += size
    by_type = [
        {"name": name, "callTokens": calls[name], "resultTokens": results[name]} for name in {**calls, **results}
    ]
    fields = ("toolCallTokens", "toolResultTokens", "attachmentTokens", "assistantMessageTokens", "userMessageTokens")
    return {
        **{field: sums[field] for field in fields},
        "redirectedContextTokens": 0,
        "unattributedTokens": 0,
        "toolCallsByType": by_type,
        "attachmentsByType": [],
    }


def said(breakdown: Json) -> int:
    return sum(value for value in breakdown.values() if isinstance(value, int))


def api_usage(usage: Json | None) -> Json | None:
    """What the backend counted for the last call."""
    if usage is None:
        return None
    fields = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return {field: usage.get(field) or 0 for field in fields}


def grid(rows: list[Row], free: Row, window: int) -> list[list[Json]]:
    """The window as squares. Whatever is there has one at least; the last square of a row may be partly filled."""
    squares: list[Json] = []
    most, per_square = ROWS * COLUMNS, window / (ROWS * COLUMNS)
    for row in rows:
        wanted = row.tokens / per_square
        count = max(1, round(wanted))
        fullness = [1.0] * (count - 1) + [min(1.0, wanted - (count - 1)) if wanted < count else 1.0]
        squares += [square(row, window, full) for full in fullness]
    squares = squares[:most]
    squares += [square(free, window, 1.0, is_filled=False)] * (most - len(squares))
    return [squares[at : at + COLUMNS] for at in range(0, most, COLUMNS)]


def square(row: Row, window: int, fullness: float, *, is_filled: bool = True) -> Json:
    return {
        "color": row.color,
        "isFilled": is_filled,
        "categoryName": row.name,
        "tokens": row.tokens,
        "percentage": round(100 * row.tokens / window),
        "squareFullness": max(0.01, round(fullness, 2)),
    }
