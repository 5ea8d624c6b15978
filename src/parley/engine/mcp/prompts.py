"""Prompts of MCP servers as slash commands: `/mcp__server__prompt "first argument" second`.

Arguments are assigned to the prompt's parameters in order; the last parameter takes the rest. The
server's answer replaces the command in the conversation.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from parley.engine.hooks.registry import HookRegistry
from parley.engine.session.prompts import Prompt
from parley.errors import ToolError
from parley.mcp.base import PREFIX
from parley.mcp.content import clean, convert_messages, qualify
from parley.mcp.server_connection import McpServer
from parley.protocol.base import Json

MAX_CHARS = 500
"""Limit for the description and the argument hint of a command."""
MAX_COMMANDS = 500
"""Limit per server."""


def list_commands(servers: Iterable[McpServer]) -> list[Json]:
    return [
        {
            "name": name,
            "description": clean(str(prompt.get("description") or ""))[:MAX_CHARS],
            "argumentHint": " ".join(f"<{clean(parameter)}>" for parameter in parameter_names(prompt))[:MAX_CHARS],
        }
        for name, _, prompt in list_prompts(servers)
    ]


def list_prompts(servers: Iterable[McpServer]) -> Iterator[tuple[str, McpServer, Json]]:
    for server in servers:
        for prompt in server.prompts[:MAX_COMMANDS]:
            yield qualify(server.spec.name, prompt["name"]), server, prompt


def parameter_names(prompt: Json) -> list[str]:
    known = prompt.get("arguments")
    return [name for one in known if (name := parameter_name(one))] if isinstance(known, list) else []


def parameter_name(parameter: Any) -> str:
    name = parameter.get("name") if isinstance(parameter, dict) else None
    return name if isinstance(name, str) else ""


async def expand_prompt(prompt: Prompt, servers: Iterable[McpServer], hooks: HookRegistry) -> Prompt:
    """Expand a prompt that is a command of a server; any other is returned unchanged. Raises ToolError."""
    first = prompt.content[0] if prompt.content else {}
    text = first.get("text", "") if first.get("type") == "text" else ""
    if prompt.verbatim or not text.startswith(f"/{PREFIX}"):
        return prompt
    name, rest = (*text[1:].split(None, 1), "")[:2]
    for known, server, described in list_prompts(servers):
        if known == name:
            dispatcher, contexts = hooks.dispatcher, list[str]()
            if dispatcher is not None:
                contexts = await dispatcher.session_hooks.before_expansion(
                    "mcp_prompt", name, rest.strip(), server.spec.name, text
                )
            try:
                answer = await server.prompt(described["name"], parse_arguments(rest, parameter_names(described)))
            except ToolError as exc:
                raise ToolError(f"/{name} could not be expanded: {exc}") from None
            said = [{"type": "text", "text": context} for context in contexts]
            return msgspec.structs.replace(prompt, expansion=[*convert_messages(answer), *prompt.content[1:], *said])
    return prompt


def parse_arguments(text: str, names: list[str]) -> dict[str, str]:
    """Assign the words of a command to its parameters; quotes keep words together."""
    try:
        words = shlex.split(text)
    except ValueError:  # an unclosed quote is taken literally
        words = text.split()
    if len(words) > len(names) > 0:
        words = [*words[: len(names) - 1], " ".join(words[len(names) - 1 :])]
    return dict(zip(names, words, strict=False))
