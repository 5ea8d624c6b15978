"""What a model gets of the resources and results of an MCP server. Long text and binary data are saved to files."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from parley.engine.hooks.registry import HookRegistry
from parley.engine.session.prompts import Prompt
from parley.engine.turn.result_spill import spill_text
from parley.errors import ToolError
from parley.mcp.base import PREFIX
from parley.mcp.content import IMAGE_TYPES, clean, convert_messages, qualify, text_block
from parley.mcp.server_connection import McpServer
from parley.protocol.base import Json, Message
from parley.protocol.messages.system import Informational
from parley.settings.base import printable
from parley.workspace.process.processes import ResultFile

BINARY_FIELDS = {"resource": "blob", "audio": "data", "image": "data"}
"""The field with base64 data, by the type of a content item."""
SUFFIXES = {"plain": "txt", "markdown": "md", "javascript": "js"}
"""File name suffixes that differ from the MIME subtype."""
MAX_CHARS = 500
"""Limit for the description and the argument hint of a command."""
MAX_COMMANDS = 500
"""Limit per server."""
FAILED_STATES = ("failed", "needs-auth")
MAX_INSTRUCTIONS_CHARS = 2_000


class ResourceReader:
    """The resources of one server."""

    def __init__(self, server: McpServer, max_chars: int, new_file: Callable[[str], ResultFile]) -> None:
        self._server = server
        self._max_chars = max_chars
        self._new_file = new_file

    async def resources(self) -> list[Json]:
        """Raises ToolError."""
        return await self._server.resources()

    async def directory(self, uri: str) -> list[Json]:
        """Raises ToolError."""
        return await self._server.directory(uri)

    async def read(self, uri: str) -> list[Json]:
        """Raises ToolError."""
        left, found = self._max_chars, []
        for item in await self._server.read(uri):
            text = item.get("text")
            if isinstance(item.get("blob"), str):
                found.append(save_to_file(item, self._server.spec.name, self._new_file))
            elif isinstance(text, str) and len(text) > left:
                found.append({**item, "text": spill_text(text, self._new_file)})
            else:
                left -= len(text) if isinstance(text, str) else 0
                found.append(item)
        return found


def save_to_file(item: Json, server: str, new_file: Callable[[str], ResultFile]) -> Json:
    """Save binary data and put the path of the file in its place."""
    path, note = save_binary(item["blob"], item.get("mimeType"), resource_label(item, server), new_file)
    kept = {key: value for key, value in item.items() if key != "blob"}
    return {**kept, **({} if path is None else {"blobSavedTo": str(path)}), "text": note}


def save_binary_content(answer: Json, server: str, new_file: Callable[[str], ResultFile]) -> tuple[Json, list[Json]]:
    """A tool's response with its binary content saved to files, and the text blocks that name the files."""
    content, notes = answer.get("content"), []
    if not isinstance(content, list):
        return answer, []
    items: list[Any] = []
    for item in content:
        note = save_item(item, server, new_file) if isinstance(item, dict) else None
        items.append(item if note is None else note)
        notes += [] if note is None else [note]
    return ({**answer, "content": items} if notes else answer), notes


def save_item(item: Json, server: str, new_file: Callable[[str], ResultFile]) -> Json | None:
    """Save the data of a content item that no model can read; None if there is nothing to save."""
    inner = item.get("resource") if item.get("type") == "resource" else item
    if not isinstance(inner, dict) or item.get("type") not in BINARY_FIELDS:
        return None
    data, kind = inner.get(BINARY_FIELDS[item["type"]]), inner.get("mimeType")
    if not isinstance(data, str) or kind in IMAGE_TYPES or isinstance(inner.get("text"), str):
        return None
    label = resource_label(inner, server) if item["type"] == "resource" else f"{item['type'].title()} from {server}"
    return text_block(save_binary(data, kind, label, new_file)[1])


def save_binary(data: str, kind: Any, label: str, new_file: Callable[[str], ResultFile]) -> tuple[Path | None, str]:
    """Save base64 data; returns the path, or None if that failed, and a text that says where the data is."""
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        decoded = data.encode()
    kind = kind if isinstance(kind, str) and kind else "unknown type"
    file = new_file(file_suffix(kind))
    about = f"[{label}] Binary content ({kind}, {len(decoded)} bytes)"
    error = file.write(decoded)
    return (
        (file.path, f"{about} saved to {file.path}")
        if error is None
        else (None, f"{about} could not be saved: {error}")
    )


def resource_label(resource: Json, server: str) -> str:
    return f"Resource from {server} at {resource.get('uri', '')}"


def file_suffix(kind: str) -> str:
    """The file name suffix for a MIME type."""
    word = kind.rpartition("/")[2].partition("+")[0].partition(";")[0].strip()
    return SUFFIXES.get(word, word) if word.isascii() and word.isalnum() else "bin"


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
            contexts = await hooks.events.before_expansion("mcp_prompt", name, rest.strip(), server.spec.name, text)
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


class StatusNotifier:
    def __init__(self, send: Callable[[Message], None], warn: Callable[[str], None]) -> None:
        self._send = send
        self._warn = warn
        self._announced = False
        """The first message of a turn was sent; reports are held until then."""
        self._held_messages: list[Message] = []
        self._known_to_model: dict[str, bool] = {}
        """Whether a server is connected, as the model was last told."""

    def notify(self, server: McpServer, added: list[str], removed: list[str], *, is_answered: bool = False) -> None:
        """Report a change of a server. If `is_answered`, errors are in a control response instead."""
        facts: Json = {"name": server.spec.name, "status": server.status, "source": server.spec.source}
        more = {"error": server.reason, "stderr": server.stderr, "tools_added": added, "tools_removed": removed}
        facts |= {key: value for key, value in more.items() if value}
        bad = bool(server.reason)
        text = f"MCP server {printable(server.spec.name)}: {server.status}" + (f": {server.reason}" if bad else "")
        line = Informational(content=text, level="warning" if bad else "info", mcp_server=facts)
        if server.status in FAILED_STATES:
            self._warn(printable(text + last_stderr_line(server.stderr)))
            if is_answered:
                return
        if self._announced:
            self._send(line)
        elif bad:
            self._held_messages.append(line)  # `init` says the rest

    def announce(self) -> None:
        """Send the held messages."""
        self._announced = True
        held, self._held_messages = self._held_messages, []
        for line in held:
            self._send(line)

    def for_model(self, servers: Iterable[McpServer]) -> list[str]:
        """Text about servers that disappeared or came back since the last call."""
        texts = []
        for server in servers:
            name, is_connected = server.spec.name, server.status == "connected"
            if is_connected != self._known_to_model.get(name, True):
                why = f" ({server.status}){': ' if server.reason else ''}{server.reason}"
                gone = f"is not connected{why}. Its tools cannot be called now."
                text = "is connected again." if is_connected else gone
                texts.append(f"<mcp-server name={name!r}>\nThe MCP server {name!r} {text}\n</mcp-server>")
            self._known_to_model[name] = is_connected
        return texts


def instructions(servers: Iterable[McpServer]) -> str:
    """The instructions of the servers, for the system prompt."""
    return "\n\n".join(quote_instructions(server) for server in servers if server.instructions)


def quote_instructions(server: McpServer) -> str:
    return (
        f"About the tools of the MCP server {server.spec.name!r}, in its own words:\n"
        f"{server.instructions[:MAX_INSTRUCTIONS_CHARS]}"
    )


def last_stderr_line(stderr: str) -> str:
    """The last line on a server's stderr, which usually says why it ended."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f" ({lines[-1]})" if lines else ""
