"""An engine in this process or in a worker sends the same messages as a subprocess, except for ids and times."""

from __future__ import annotations

import re
from typing import Any

import pytest

from parley import HookJSONOutput, HookMatcher, Options, PermissionResultAllow, create_sdk_mcp_server, query
from tests.helpers.sdk import ENGINES, HELLO, ClientHarness, run
from tests.process.sdk.test_callbacks import WRITE, add, calls

ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(msg|toolu|req)_[0-9a-zA-Z]{8,}|\b[ab][0-9a-z]{8,16}\b")
TIMES = frozenset(
    (
        *("timestamp", "duration_ms", "duration_api_ms", "ttft_ms", "ttft_stream_ms", "time_to_request_ms"),
        *("first_content_frame_ms", "request_sent_wall_ms", "elapsed_time_seconds", "durationMs", "totalDurationMs"),
        *("run_id", "end_time"),
    )
)


def without_ids(value: Any) -> Any:
    """A line with its ids numbered by first occurrence, and without times."""
    match value:
        case dict():
            return {key: "…" if key in TIMES else without_ids(inner) for key, inner in value.items()}
        case list():
            return [without_ids(inner) for inner in value]
        case str():
            return ID.sub("id", value)
    return value


async def lines(options: Options) -> list[Any]:
    return [list(without_ids(message.raw).items()) async for message in query(prompt="go", options=options)]


async def may(*asked: Any) -> PermissionResultAllow:
    return PermissionResultAllow()


async def watch(*told: Any) -> HookJSONOutput:
    return {}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "text": (HELLO, {}),
    "partial": (HELLO, {"include_partial_messages": True}),
    "tool": (calls("Bash", '{ command = "echo hi; exit 3" }'), {"permission_mode": "bypassPermissions"}),
    "asked": (WRITE, {"can_use_tool": may}),
    "denied": (WRITE, {}),
    "hooked": (WRITE, {"hooks": {"PreToolUse": [HookMatcher(hooks=[watch])]}, "include_hook_events": True}),
    "served": (
        calls("mcp__mine__add", "{ a = 1, b = 2 }"),
        {"mcp_servers": {"mine": create_sdk_mcp_server("mine", tools=[add])}, "allowed_tools": ["mcp__mine"]},
    ),
    "agent": (
        calls("Agent", '{ description = "d", prompt = "p", run_in_background = false }'),
        {"permission_mode": "bypassPermissions", "forward_subagent_text": True},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_both_engines_send_the_same_lines_and_keys(harness: ClientHarness, case: str) -> None:
    script, given = CASES[case]
    said = {}
    for engine in ENGINES:
        for left in (harness.folder / "work").glob("*"):
            left.unlink()
        said[engine] = run("asyncio", lines, harness.options(engine, script, **given))

    assert said["process"] == said["local"] == said["workers"]
    assert len(said["local"]) >= 3
