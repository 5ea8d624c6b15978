"""The `initialize` request, which the client sends first.

It contains what may be too long for a command line: prompts, agents, schemas, and the names of the
program's own MCP servers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec

from parley.protocol.base import UNSET, Json
from parley.protocol.messages import requests as wire
from parley.protocol.options import FIELDS
from parley.sdk.errors import CLIConnectionError
from parley.sdk.hooks import Registry
from parley.sdk.options import Options
from parley.sdk.structured import schema_of
from parley.sdk.types.agents import AgentDefinition

if TYPE_CHECKING:
    from parley.sdk.runtime.mcp_tool import SdkMcpTool

OWN_SERVER = "tools"
"""The name of the server with the program's own functions in `Options.tools`."""
INITIALIZE = {
    **{row.sdk_name: row.initialize for row in FIELDS.values() if row.initialize},
    "supported_dialog_kinds": "supportedDialogKinds",
    "tool_aliases": "toolAliases",
    "plan_mode_instructions": "planModeInstructions",
    "agent_progress_summaries": "agentProgressSummaries",
}
"""The options that are fields of the request as they are. The last ones cannot be set in another way."""


def build_initialize(options: Options[Any], hooks: Registry, servers: Mapping[str, Any]) -> wire.Initialize:
    prompt = options.system_prompt
    preset: Json = dict(prompt) if isinstance(prompt, dict) else {}
    text: Any = UNSET
    if prompt is None:
        text = [""]
    elif isinstance(prompt, str):
        text = prompt
    elif prompt["type"] == "custom":
        text = prompt["prompt"]
    given: Json = {
        INITIALIZE[each.name]: bool(value) if isinstance(each.default, bool) else value
        for each in fields(options)
        if each.name in INITIALIZE and (value := getattr(options, each.name)) not in (None, each.default)
    }
    return wire.Initialize(
        hooks=hooks.matchers or None,
        agents=convert_agents(options.agents),
        systemPrompt=text,
        appendSystemPrompt=preset.get("append", UNSET),
        excludeDynamicSections=preset.get("exclude_dynamic_sections", UNSET),
        systemPromptSnapshot=preset.get("snapshot", UNSET),
        skills=options.skills if isinstance(options.skills, list) else UNSET,
        jsonSchema=json_schema(options),
        sdkMcpServers=list(servers) or UNSET,
        **given,
    )


def convert_agents(given: Mapping[str, AgentDefinition] | None) -> Any:
    if given is None:
        return UNSET
    return {
        name: wire.AgentDefinition(
            **{each.name: value for each in fields(one) if (value := getattr(one, each.name)) is not None}
        )
        for name, one in given.items()
    }


def json_schema(options: Options[Any]) -> Any:
    output_format = options.output_format
    if output_format is not None:
        return output_format["schema"] if output_format.get("type") == "json_schema" else UNSET
    return UNSET if options.output_type is None else schema_of(options.output_type)


def parse_object(given: str | os.PathLike[str], name: str) -> Json:
    """Parse an option that is a JSON object, or the path of a file with one. Raises CLIConnectionError."""
    text = os.fspath(given).strip()
    if not text.startswith("{"):
        try:
            with open(given, encoding="utf-8") as file:
                text = file.read()
        except OSError as exc:
            raise CLIConnectionError(f"{name}: cannot read {given}: {exc.strerror}") from None
    try:
        found: Json = msgspec.json.decode(text.encode(), type=dict)
    except msgspec.DecodeError as exc:
        raise CLIConnectionError(f"{name} must be a JSON object: {exc}") from None
    return found


def split_mcp_servers(options: Options[Any]) -> tuple[Json, dict[str, Any]]:
    """Split the servers into configurations for the engine and instances that run in this process."""
    given = options.mcp_servers
    config: Json = {}
    own: dict[str, Any] = {}
    if not isinstance(given, dict):
        found = parse_object(given, "mcp_servers")
        config = found.get("mcpServers", found)
    else:
        own = {name: server["instance"] for name, server in given.items() if server.get("type") == "sdk"}  # type: ignore[typeddict-item]  # only "sdk" servers have it
        config = {name: dict(server) for name, server in given.items() if name not in own}
    if tools := own_tools(options):
        if OWN_SERVER in config or OWN_SERVER in own:
            raise ValueError(
                f"mcp_servers: the name {OWN_SERVER!r} is reserved for the functions in `tools`; use another name"
            )
        from parley.sdk.runtime.mcp_tool import create_sdk_mcp_server

        own[OWN_SERVER] = create_sdk_mcp_server(OWN_SERVER, tools=tools)["instance"]
    return config, own


def own_tools(options: Options[Any]) -> list[SdkMcpTool[Any]]:
    """The program's own functions in `tools`."""
    if not isinstance(options.tools, list | tuple) or all(isinstance(each, str) for each in options.tools):
        return []
    from parley.sdk.runtime.mcp_tool import to_tool

    return [to_tool(each) for each in options.tools if not isinstance(each, str)]


def stream_close_seconds(env: dict[str, str]) -> float:
    """Return the handshake timeout from the official SDK's environment variable, which is in milliseconds."""
    given = env.get("CLAUDE_CODE_STREAM_CLOSE_TIMEOUT") or os.environ.get("CLAUDE_CODE_STREAM_CLOSE_TIMEOUT") or "0"
    try:
        seconds = float(given) / 1000
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0
