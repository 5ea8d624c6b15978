"""Prompts of MCP servers as slash commands: `/mcp__server__prompt "first argument" second`.

The arguments are given to the prompt's parameters in their order; the last one takes the
rest. What the server makes of them stands in the conversation in the place of the command.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from parley.engine.session.prompt_queue import Prompt
from parley.errors import ToolError
from parley.mcp.base import PREFIX
from parley.mcp.content import clean, messages_of
from parley.mcp.naming import qualified
from parley.mcp.server import Server
from parley.protocol.base import Json

MOST_CHARS = 500
"""Of what is told of a command."""
MOST_COMMANDS = 500
"""Of one server."""


def commands(servers: Iterable[Server]) -> list[Json]:
    return [
        {
            "name": name,
            "description": clean(str(prompt.get("description") or ""))[:MOST_CHARS],
            "argumentHint": " ".join(f"<{clean(parameter)}>" for parameter in parameters(prompt))[:MOST_CHARS],
        }
        for name, _, prompt in listed(servers)
    ]


def listed(servers: Iterable[Server]) -> Iterator[tuple[str, Server, Json]]:
    for server in servers:
        for prompt in server.prompts[:MOST_COMMANDS]:
            yield qualified(server.spec.name, prompt["name"]), server, prompt


def parameters(prompt: Json) -> list[str]:
    known = prompt.get("arguments")
    return [name for one in known if (name := name_of(one))] if isinstance(known, list) else []


def name_of(parameter: Any) -> str:
    name = parameter.get("name") if isinstance(parameter, dict) else None
    return name if isinstance(name, str) else ""


async def expanded(prompt: Prompt, servers: Iterable[Server]) -> Prompt:
    """A prompt that is such a command, with what the server makes of it. Raises ToolError if it cannot be had."""
    first = prompt.content[0] if prompt.content else {}
    text = first.get("text", "") if first.get("type") == "text" else ""
    if prompt.verbatim or not text.startswith(f"/{PREFIX}"):
        return prompt
    name, _, rest = text[1:].partition(" ")
    for known, server, described in listed(servers):
        if known == name:
            try:
                answer = await server.prompt(described["name"], arguments(rest, parameters(described)))
            except ToolError as flaw:
                raise ToolError(f"/{name} could not be expanded: {flaw}") from None
            return msgspec.structs.replace(prompt, expansion=[*messages_of(answer), *prompt.content[1:]])
    return prompt


def arguments(text: str, names: list[str]) -> dict[str, str]:
    """The words of a command for its parameters; quotes keep words together."""
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that is not closed is a letter like others
        words = text.split()
    if len(words) > len(names) > 0:
        words = [*words[: len(names) - 1], " ".join(words[len(names) - 1 :])]
    return dict(zip(names, words, strict=False))
