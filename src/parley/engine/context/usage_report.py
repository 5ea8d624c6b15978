"""Report what fills the context window, by category.

Only the model's backend can count tokens exactly, and that would take one call per item. The numbers are
estimates from the number of characters. `apiUsage` has what the backend counted for the last call. The
difference is in `unattributedTokens`, which is part of the sum that decides about compaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from parley.engine.context.conversation import Conversation
from parley.engine.context.history import estimate_tokens, tokens_from_chars
from parley.engine.context.system_prompt import list_sections, render, system_blocks
from parley.models.catalog import ModelRef, model_info
from parley.protocol.base import UNSET, Json, Struct
from parley.protocol.messages.panel_requests import ContextUsage
from parley.protocol.messages.requests import AgentDefinition
from parley.settings.base import PromptTemplate

ROWS, COLUMNS = 10, 20
"""The grid that clients draw."""
MCP = "mcp__"


class RequestContents(Struct, frozen=True, kw_only=True):
    """The contents of the next model call."""

    model: ModelRef
    system: str
    memory: list[tuple[str, str, int]] = []
    """Path, kind and characters of the memory files, which are part of `system`."""
    tools: list[Json] = []
    deferred: list[Json] = []
    """The definitions that the model does not have yet."""
    sections: list[tuple[str, int]] = []
    """Name and characters of the parts of `system`, without those that have rows of their own."""
    server_notes: dict[str, int] = {}
    """Characters of what MCP servers say in `system`, by server."""
    agents: list[Json] = []
    messages: list[Json] = []
    last_usage: Json | None = None
    counted_tokens: int = 0
    """The backend's last count plus an estimate of what came after it."""
    window: int | None = None
    """The window of the session; None for the model's own."""
    threshold: int | None = None
    """The number of tokens that triggers automatic compaction; None for never."""


class UsageCategory(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    tokens: int
    color: str
    kind: str = "used"

    def json(self) -> Json:
        json: Json = msgspec.to_builtins(self)
        return json


def report_context(conversation: Conversation, server_notes: Mapping[str, str] | None = None) -> ContextUsage:
    """Report what the next model call of a conversation would contain.

    `server_notes` is what the MCP servers say in the system prompt; None leaves it in the row of the prompt.
    """
    deferral = conversation.find_deferral()
    # Before the first turn nothing was sent, and a report must not write to the log.
    rendered = conversation.journal.system_text or render(conversation.instructions)
    system = "\n\n".join(block["text"] for block in system_blocks(rendered))
    return report_usage(
        RequestContents(
            model=conversation.model,
            system=system,
            sections=[(name, len(text)) for name, text in list_sections(conversation.instructions) if text in system],
            server_notes={name: len(text) for name, text in (server_notes or {}).items() if text in system},
            agents=[describe_agent(*found) for found in conversation.config.agents.registry.custom()],
            memory=conversation.instructions.memory_files(),
            tools=conversation.tool_schemas(),
            deferred=[] if deferral is None or conversation.model.is_fake else deferral.withheld_schemas(),
            messages=conversation.journal.history.render(),
            last_usage=conversation.ledger.last_usage,
            counted_tokens=conversation.context_tokens(),
            window=conversation.window,
            threshold=conversation.compacts_at,
        )
    )


def report_usage(contents: RequestContents) -> ContextUsage:
    window = contents.window or model_info(contents.model.name).context_window
    memory = [{"path": path, "type": kind, "tokens": tokens_from_chars(chars)} for path, kind, chars in contents.memory]
    own = [describe_tool(tool) for tool in contents.tools if not tool["name"].startswith(MCP)]
    mcp = [describe_mcp_tool(tool) for tool in contents.tools if tool["name"].startswith(MCP)]
    own_deferred = [describe_tool(tool) for tool in contents.deferred if not tool["name"].startswith(MCP)]
    mcp_deferred = [
        {**describe_mcp_tool(tool), "isLoaded": False} for tool in contents.deferred if tool["name"].startswith(MCP)
    ]
    breakdown = message_breakdown(contents.messages)
    around = tokens_from_chars(len(contents.system)) + total_tokens(own) + total_tokens(mcp)
    # Tokens that the backend counts beyond the estimates fill the window too.
    breakdown["unattributedTokens"] = max(0, contents.counted_tokens - around - sum_breakdown(breakdown))
    of_memory = total_tokens(memory)
    of_servers = [
        {"serverName": name, "tokens": tokens_from_chars(size)} for name, size in contents.server_notes.items()
    ]
    used = [
        UsageCategory(
            id="system_prompt",
            name="System prompt",
            tokens=max(0, tokens_from_chars(len(contents.system)) - of_memory - total_tokens(of_servers)),
            color="promptBorder",
        ),
        UsageCategory(id="system_tools", name="System tools", tokens=total_tokens(own), color="inactive"),
        UsageCategory(id="mcp_tools", name="MCP tools", tokens=total_tokens(mcp), color="cyan"),
        UsageCategory(id="mcp_instructions", name="MCP instructions", tokens=total_tokens(of_servers), color="cyan"),
        UsageCategory(id="memory_files", name="Memory files", tokens=of_memory, color="blue"),
        UsageCategory(id="messages", name="Messages", tokens=sum_breakdown(breakdown), color="purple"),
    ]
    rows = [row for row in used if row.tokens]
    filled = sum(row.tokens for row in rows)
    held = 0 if contents.threshold is None else window - contents.threshold
    buffer = UsageCategory(
        id="autocompact_buffer", name="Autocompact buffer", tokens=held, color="inactive", kind="buffer"
    )
    withheld = list(deferred_rows(total_tokens(own_deferred), total_tokens(mcp_deferred)))
    left = max(0, window - filled - held)
    free = UsageCategory(id="free_space", name="Free space", tokens=left, color="promptBorder", kind="free")
    return ContextUsage(
        categories=[row.json() for row in (*rows, *withheld, *([buffer] if held else ()), free)],
        totalTokens=filled,
        maxTokens=window,
        rawMaxTokens=window,
        percentage=round(100 * filled / window),
        model=contents.model.display_name,
        isAutoCompactEnabled=contents.threshold is not None,
        autoCompactThreshold=UNSET if contents.threshold is None else contents.threshold,
        memoryFiles=memory,
        mcpTools=[*mcp, *mcp_deferred],
        deferredBuiltinTools=[{**tool, "isLoaded": False} for tool in own_deferred] or UNSET,
        agents=contents.agents,
        gridRows=grid(rows, free, window),
        apiUsage=api_usage(contents.last_usage),
        mcpInstructions=of_servers or UNSET,
        systemPromptSections=[{"name": name, "tokens": tokens_from_chars(size)} for name, size in contents.sections]
        or UNSET,
        systemTools=own or UNSET,
        messageBreakdown=breakdown,
    )


def deferred_rows(own: int, mcp: int) -> Iterator[UsageCategory]:
    """The definitions that are not in the window."""
    if own:
        yield UsageCategory(
            id="system_tools_deferred", name="System tools (deferred)", tokens=own, color="inactive", kind="deferred"
        )
    if mcp:
        yield UsageCategory(
            id="mcp_tools_deferred", name="MCP tools (deferred)", tokens=mcp, color="inactive", kind="deferred"
        )


def total_tokens(items: Iterable[Json]) -> int:
    return sum(item["tokens"] for item in items)


def describe_tool(tool: Json) -> Json:
    return {"name": tool["name"], "tokens": estimate_tokens(tool)}


def describe_agent(name: str, kind: AgentDefinition, source: str) -> Json:
    """An agent as the description of the Agent tool has it."""
    return {"agentType": name, "source": source, "tokens": tokens_from_chars(len(name) + len(kind.description))}


def describe_template(template: PromptTemplate) -> Json:
    """A skill or command as the description of the Skill tool has it."""
    found: Json = {
        "name": template.name,
        "source": template.source,
        "tokens": tokens_from_chars(len(template.name) + len(template.description)),
    }
    if template.source == "plugin":
        found["pluginName"] = template.name.partition(":")[0]
    return {**found, "path": template.path} if template.path else found


def report_templates(templates: Iterable[PromptTemplate], offered: Sequence[PromptTemplate]) -> tuple[Json, Json]:
    """The skills and the commands of a session. Those that are offered are part of the Skill tool's description."""
    kinds = Counter(template.kind for template in templates)
    skills = [describe_template(template) for template in offered if template.kind == "skill"]
    commands = [describe_template(template) for template in offered if template.kind == "command"]
    return (
        {
            "totalSkills": kinds["skill"],
            "includedSkills": len(skills),
            "tokens": total_tokens(skills),
            "skillFrontmatter": skills,
        },
        {"totalCommands": kinds["command"], "includedCommands": len(commands), "tokens": total_tokens(commands)},
    )


def describe_mcp_tool(tool: Json) -> Json:
    server = tool["name"].removeprefix(MCP).split("__", 1)[0]
    return {"name": tool["name"], "serverName": server, "tokens": estimate_tokens(tool), "isLoaded": True}


def message_breakdown(messages: list[Json]) -> Json:
    """What the conversation is made of."""
    sums: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    results: Counter[str] = Counter()
    names: dict[str, str] = {}
    for message in messages:
        for block in message["content"]:
            size, kind = estimate_tokens(block), block.get("type")
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


def sum_breakdown(breakdown: Json) -> int:
    return sum(value for value in breakdown.values() if isinstance(value, int))


def api_usage(usage: Json | None) -> Json | None:
    """The backend's count of the last call."""
    if usage is None:
        return None
    fields = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return {field: usage.get(field) or 0 for field in fields}


def grid(rows: list[UsageCategory], free: UsageCategory, window: int) -> list[list[Json]]:
    """The window as squares. Each category has at least one; its last square can be partly filled."""
    squares: list[Json] = []
    most, per_square = ROWS * COLUMNS, window / (ROWS * COLUMNS)
    for row in rows:
        size = row.tokens / per_square
        count = max(1, round(size))
        fullness = [1.0] * (count - 1) + [min(1.0, size - (count - 1)) if size < count else 1.0]
        squares += [square(row, window, full) for full in fullness]
    squares = squares[:most]
    squares += [square(free, window, 1.0, is_filled=False)] * (most - len(squares))
    return [squares[at : at + COLUMNS] for at in range(0, most, COLUMNS)]


def square(row: UsageCategory, window: int, fullness: float, *, is_filled: bool = True) -> Json:
    return {
        "color": row.color,
        "isFilled": is_filled,
        "categoryName": row.name,
        "tokens": row.tokens,
        "percentage": round(100 * row.tokens / window),
        "squareFullness": max(0.01, round(fullness, 2)),
    }
