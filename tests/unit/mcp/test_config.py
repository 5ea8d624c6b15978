"""Parsing MCP server configurations."""

from __future__ import annotations

from typing import Any

import pytest

from parley.mcp.base import McpTimeouts, ParsedServers, ServerDeclaration, ServerParser, ServerSpec
from parley.mcp.config import build_host_specs, parse_servers


def read_one(entry: Any, **variables: str) -> ServerSpec:
    [spec] = parse_servers({"git": entry}, source="dynamic", path="here", variables=variables).specs
    return spec


def test_a_command_is_a_stdio_server() -> None:
    assert read_one({"command": "git-mcp", "args": ["-v"], "env": {"A": "b"}, "timeout": 1500}) == ServerSpec(
        name="git",
        kind="stdio",
        source="dynamic",
        command="git-mcp",
        args=("-v",),
        env={"A": "b"},
        timeout_seconds=1.5,
        shown={"type": "stdio", "command": "git-mcp", "args": ["-v"]},
    )


def test_variables_are_filled_in_everywhere_and_defaults_where_they_have_none() -> None:
    spec = read_one(
        {
            "type": "http",
            "url": "${BASE:-https://example.org}/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
            "oauth": {"clientSecret": "${TOKEN}"},
        },
        TOKEN="secret",
        EMPTY="",
    )

    assert spec.url == "https://example.org/mcp"
    assert spec.headers == {"Authorization": "Bearer secret"}
    assert spec.oauth == {"clientSecret": "secret"}
    assert spec.shown == {"type": "http", "url": "${BASE:-https://example.org}/mcp"}  # and no secret


def test_what_the_host_runs_itself_has_its_own_source() -> None:
    assert read_one({"type": "sdk", "name": "git"}).source == "sdk"
    assert [spec.timeout_seconds for spec in build_host_specs(["a", "b"], {"a": {"timeout": 2000}, "b": "odd"})] == [
        2.0,
        None,
    ]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({}, "a stdio server needs a command"),
        (
            {"type": "carrier-pigeon"},
            "unknown type 'carrier-pigeon' (choose from stdio, sse, http, streamable-http, sdk)",
        ),
        ({"type": "http", "url": "file:///etc/passwd"}, "the url must start with http:// or https://"),
        ({"command": "x", "args": "-v"}, "Expected `array`, got `str` - at `$.args`"),
        ({"command": "${NOWHERE}"}, "the variable NOWHERE is not set; set it or use ${NOWHERE:-default}"),
        ({"url": "http://x", "headers": {"A b": "c"}}, "invalid header 'A b'"),
        ({"url": "http://x", "headers": {"A": "c\r\nD: e"}}, "invalid header 'A'"),
        ({"command": "x", "timeout": -1}, "timeout must not be negative"),
        (7, "Expected `object`, got `int`"),
    ],
)
def test_a_bad_entry_is_a_failed_server_with_its_reason_and_the_rest_continues(entry: Any, reason: str) -> None:
    found = parse_servers({"bad": entry, "good": {"command": "x"}}, source="user", path="settings.json", variables={})

    assert [spec.problem for spec in found.specs] == [reason, ""]
    assert found.problems == (f"settings.json: invalid MCP server 'bad': {reason}",)


def test_what_is_not_an_object_of_servers_is_reported() -> None:
    assert parse_servers([], source="user", path="x.json", variables={}) == ParsedServers(
        problems=("x.json: mcpServers must be an object",)
    )


def test_of_servers_with_one_name_the_strongest_source_counts() -> None:
    first = ServerDeclaration(source="dynamic", path="a", servers={"git": {"command": "one"}})
    second = ServerDeclaration(source="user", path="b", servers={"git": {"command": "two"}, "mail": {"command": "m"}})

    found = ServerParser({}, {}).gather([first, second]).specs

    assert [(spec.name, spec.source, spec.command) for spec in found] == [
        ("git", "dynamic", "one"),
        ("mail", "user", "m"),
    ]


def test_the_time_of_a_call_is_the_tools_else_the_servers_else_the_sessions_and_0_is_any() -> None:
    plain = ServerSpec(name="a", kind="stdio", source="user")
    slow = ServerSpec(
        name="b", kind="stdio", source="user", timeout_seconds=7.0, tool_timeouts={"deep": 90.0, "any": 0}
    )

    patience = McpTimeouts(call_seconds=60.0)

    assert patience.for_call(plain, "deep") == 60.0
    assert [patience.for_call(slow, tool) for tool in ("plain", "deep", "any")] == [7.0, 90.0, None]


def test_a_required_server_stays_required_however_bad_its_entry_is() -> None:
    entry = {"command": "x", "env": {"TOKEN": "${NOT_SET_ANYWHERE}"}}
    found = parse_servers({"a": {**entry, "required": True}, "b": entry}, source="user", path="x", variables={})
    assert [(spec.required, "NOT_SET_ANYWHERE is not set" in spec.problem) for spec in found.specs] == [
        (True, True),
        (False, True),
    ]
