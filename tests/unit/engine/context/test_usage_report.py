"""What fills the context window."""

from __future__ import annotations

import pytest

from parley.engine.context.usage_report import COLUMNS, ROWS, RequestContents, UsageCategory, grid, report_usage
from parley.models.catalog import resolve
from parley.protocol.base import Json
from parley.protocol.messages.panel_requests import ContextUsage

OPUS = resolve("opus")
READ: Json = {"name": "Read", "description": "d" * 1_000, "input_schema": {}}
MCP: Json = {"name": "mcp__files__list_all", "description": "d" * 400, "input_schema": {}}
TALK: list[Json] = [
    {"role": "user", "content": [{"type": "text", "text": "u" * 400}]},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "a" * 200},
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/x"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "r" * 2_000}]},
]


def unattributed(usage: ContextUsage) -> int:
    assert isinstance(usage.messageBreakdown, dict)
    return int(usage.messageBreakdown["unattributedTokens"])


def tokens(contents: RequestContents) -> dict[str, int]:
    return {row["id"]: row["tokens"] for row in report_usage(contents).categories}


def test_an_empty_context_is_all_free() -> None:
    usage = report_usage(RequestContents(model=OPUS, system=""))
    assert usage.categories == [
        {"id": "free_space", "name": "Free space", "tokens": 1_000_000, "color": "promptBorder", "kind": "free"}
    ]
    assert (usage.totalTokens, usage.percentage, usage.apiUsage) == (0, 0, None)


def test_the_categories_and_the_free_space_fill_the_window() -> None:
    contents = RequestContents(model=OPUS, system="s" * 4_000, tools=[READ, MCP], messages=TALK)
    rows = tokens(contents)
    assert list(rows) == ["system_prompt", "system_tools", "mcp_tools", "messages", "free_space"]
    assert sum(rows.values()) == 1_000_000
    assert rows["system_prompt"] == 1_000
    assert report_usage(contents).totalTokens == 1_000_000 - rows["free_space"]


def test_memory_files_are_taken_out_of_the_system_prompt_they_are_part_of() -> None:
    memory = [("/p/CLAUDE.md", "Project", 1_600)]
    rows = tokens(RequestContents(model=OPUS, system="s" * 4_000, memory=memory))
    assert (rows["system_prompt"], rows["memory_files"]) == (600, 400)
    usage = report_usage(RequestContents(model=OPUS, system="s" * 4_000, memory=memory))
    assert usage.memoryFiles == [{"path": "/p/CLAUDE.md", "type": "Project", "tokens": 400}]


def test_tools_are_listed_with_the_server_they_come_from() -> None:
    usage = report_usage(RequestContents(model=OPUS, system="", tools=[READ, MCP]))
    [tool] = usage.mcpTools
    assert (tool["name"], tool["serverName"], tool["isLoaded"]) == ("mcp__files__list_all", "files", True)
    assert [row["name"] for row in usage.systemTools] == ["Read"]


def test_the_conversation_is_broken_down_by_who_said_it_and_by_tool() -> None:
    breakdown = report_usage(RequestContents(model=OPUS, system="", messages=TALK)).messageBreakdown
    assert isinstance(breakdown, dict)
    assert (breakdown["userMessageTokens"], breakdown["assistantMessageTokens"]) == (100, 50)
    [row] = breakdown["toolCallsByType"]
    assert row["name"] == "Read"
    assert row["resultTokens"] == breakdown["toolResultTokens"] >= 500
    assert row["callTokens"] == breakdown["toolCallTokens"] > 0


def test_a_picture_counts_as_a_picture_however_many_bytes_it_has() -> None:
    picture: Json = {"type": "image", "source": {"type": "base64", "data": "x" * 1_000_000}}
    conversation: list[Json] = [{"role": "user", "content": [picture]}]
    assert tokens(RequestContents(model=OPUS, system="", messages=conversation))["messages"] == 1_600


def test_what_the_backend_counted_stands_beside_the_estimates() -> None:
    usage = report_usage(RequestContents(model=OPUS, system="", last_usage={"input_tokens": 10, "output_tokens": 5}))
    assert usage.apiUsage == {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


@pytest.mark.parametrize("sizes", [[1], [999_999], [5_000, 7_500, 2_400], [2_000_000], [1] * 300])
def test_the_grid_always_has_all_its_squares_and_one_for_whatever_is_there(sizes: list[int]) -> None:
    rows = [UsageCategory(id=str(at), name=str(at), tokens=size, color="c") for at, size in enumerate(sizes)]
    free = UsageCategory(id="free", name="free", tokens=max(0, 1_000_000 - sum(sizes)), color="c", kind="free")
    drawn = grid(rows, free, 1_000_000)
    squares = [square for line in drawn for square in line]
    assert [len(line) for line in drawn] == [COLUMNS] * ROWS
    assert {row.name for row in rows[: ROWS * COLUMNS]} <= {square["categoryName"] for square in squares}
    assert all(0 < square["squareFullness"] <= 1 for square in squares if square["isFilled"])


def test_what_the_backend_counts_beyond_our_estimates_is_part_of_the_sum() -> None:
    contents = RequestContents(model=OPUS, system="s" * 4_000, tools=[READ], messages=TALK, counted_tokens=50_000)
    usage = report_usage(contents)
    less = report_usage(RequestContents(model=OPUS, system="s" * 4_000, tools=[READ], messages=TALK, counted_tokens=10))

    assert (usage.totalTokens, usage.percentage) == (50_000, 5)
    assert tokens(contents)["free_space"] == 950_000
    assert unattributed(usage) == 50_000 - less.totalTokens
    assert unattributed(less) == 0
