"""The tools, resources, prompts and news of MCP servers, as the model and the user get them.

The model's input of a tool is sent unchanged: the server defines the schema and validates against it. The result is
cleaned, and cut to what a model can read at once. Long text and binary data are saved to files.

A tool of a server can answer permission requests instead of the client (`--permission-prompt-tool mcp__server__tool`).
It is called with `tool_name`, `input` and `tool_use_id`, and returns a text that is JSON:
`{"behavior": "allow", "updatedInput": {...}}` or `{"behavior": "deny", "message": "..."}`. The model cannot call it,
and it needs no permission itself. If it fails, the call is denied.
"""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.hooks.registry import HookRegistry
from parley.engine.session.prompts import Prompt
from parley.engine.turn.result_spill import shorten_values, spill_text
from parley.errors import ToolError
from parley.host import HostError
from parley.mcp.base import PREFIX, McpTimeouts, ServerSources
from parley.mcp.content import (
    IMAGE_TYPES,
    LEFT_OUT_KEY,
    MAX_NAME_CHARS,
    clean,
    clean_schema,
    convert_messages,
    convert_result,
    is_denied,
    normalize,
    qualify,
    text_block,
    title,
)
from parley.mcp.server_connection import McpServer
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json, Message, find_duplicate_key
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.requests import CanUseTool
from parley.protocol.messages.system import Informational
from parley.settings.base import printable
from parley.tools.base import Context, Tool, ToolOutput
from parley.workspace.base import Scope
from parley.workspace.process.processes import ResultFile

if TYPE_CHECKING:
    pass


if TYPE_CHECKING:
    from parley.engine.mcp.manager import ServerManager

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


MAX_DESCRIPTION_CHARS = 20_000
MAX_HINT_CHARS = 1_000
MAX_RESULT_CHARS = 500_000
"""Upper limit for the result size that a server requests."""
SIZE_KEY = "anthropic/maxResultSizeChars"
ALWAYS_LOAD_KEY = "anthropic/alwaysLoad"
HINT_KEY = "anthropic/searchHint"
PROGRESS_SECONDS = 1.0
"""Minimum time between progress messages."""


class ServerTool(Tool):
    def __init__(
        self, server: McpServer, listed: Json, timeouts: McpTimeouts, max_chars: int, send: Callable[..., None]
    ) -> None:
        self.server = server
        self.own_name: str = listed["name"]
        self.name = qualify(server.spec.name, self.own_name)
        self.server_name = normalize(server.spec.name)
        self.description = clean(str(listed.get("description") or ""))[:MAX_DESCRIPTION_CHARS]
        schema = listed.get("inputSchema")
        self.input_schema: Json = (
            clean_schema(schema) if isinstance(schema, dict) and schema else {"type": "object", "properties": {}}
        )
        self.hints: Json = listed["annotations"] if isinstance(listed.get("annotations"), dict) else {}
        self.reads_only = self.hints.get("readOnlyHint") is True
        meta: Json = listed["_meta"] if isinstance(listed.get("_meta"), dict) else {}
        self.problem = clean(str(meta[LEFT_OUT_KEY])) if LEFT_OUT_KEY in meta else ""
        """Why it cannot be called; empty if it can."""
        wanted = meta.get(SIZE_KEY)
        self.is_deferrable = not is_always_loaded(server.spec.always_load, meta.get(ALWAYS_LOAD_KEY))
        hint = meta.get(HINT_KEY)
        self.search_hint = clean(hint)[:MAX_HINT_CHARS] if isinstance(hint, str) else ""
        self._max_chars = min(wanted, MAX_RESULT_CHARS) if isinstance(wanted, int) else max_chars
        self.timeout_seconds = timeouts.for_call(server.spec, self.own_name)
        self._send = send
        # Made from the tool's name. The title that the server declares is not trusted for permission requests.
        self.display_name = title(clean(self.own_name))
        self.mcp_server = {"name": server.spec.name, "source": server.spec.source}
        self.call_meta = {
            "display_name": self.display_name,
            "server_display_name": server.spec.name,
            "tool_name": clean(self.own_name),
        }

    async def run(self, call: Json, context: Context, reach: Scope) -> ToolOutput:
        """Raises ToolError."""
        answer = await self.server.call(
            self.own_name,
            call,
            meta={"claudecode/toolUseId": reach.call},
            seconds=self.timeout_seconds,
            progress=ProgressReporter(self._send, reach.call, self.name, context.clock),
        )
        answer, saved = save_binary_content(answer, self.server.spec.name, context.new_result_file)
        output = convert_result(answer)
        if saved and isinstance(output.content, str) and not output.is_error:
            # Structured content replaces the blocks, but only they name the files.
            output = ToolOutput(content=[text_block(output.content), *saved], detail=output.detail)
        return limit_output(output, self._max_chars, context.new_result_file)


def is_always_loaded(by_server: bool | None, by_tool: object) -> bool:
    """Whether the model gets a tool's definition at once: as its server is configured, else as the tool declares."""
    return by_tool is not False if by_server else by_server is None and by_tool is True


class ProgressReporter:
    """Forwards progress notifications to the client."""

    def __init__(self, send: Callable[..., None], tool_use_id: str, name: str, clock: Callable[[], float]) -> None:
        self._send = send
        self._tool_use_id = tool_use_id
        self._name = name
        self._clock = clock
        self._started_at = clock()
        self._last_sent_at = float("-inf")

    def __call__(self, news: Json) -> None:
        now = self._clock()
        if now - self._last_sent_at < PROGRESS_SECONDS:
            return
        self._last_sent_at = now
        self._send(
            ToolProgress(
                tool_use_id=self._tool_use_id,
                tool_name=self._name,
                parent_tool_use_id=None,
                elapsed_time_seconds=round(now - self._started_at, 3),
            )
        )


def limit_output(result: ToolOutput, max_chars: int, new_file: Callable[[str], ResultFile]) -> ToolOutput:
    """Shorten the text of a result to what a model can read at once; the full text goes to a file."""
    content = result.content
    texts = [content] if isinstance(content, str) else [block["text"] for block in content if block["type"] == "text"]
    if sum(map(len, texts)) <= max_chars:
        return result
    short = spill_text("\n".join(texts), new_file)
    if isinstance(content, str):
        return ToolOutput(content=short, detail=shorten_values(result.detail), is_error=result.is_error)
    others = [block for block in content if block["type"] != "text"]
    return ToolOutput(content=[{"type": "text", "text": short}, *others], detail=shorten_values(result.detail))


def make_readers(
    servers: Iterable[McpServer], sources: ServerSources, new_file: Callable[[str], ResultFile]
) -> dict[str, ResourceReader]:
    """Resource readers for the connected servers, by name."""
    max_chars = sources.max_output_tokens * CHARS_PER_TOKEN
    return {
        server.spec.name: ResourceReader(server, max_chars, new_file) for server in servers if server.has("resources")
    }


def make_tools(
    servers: Iterable[McpServer], sources: ServerSources, send: Callable[..., None], warn: Callable[[str], None]
) -> dict[str, Tool]:
    """The tools of all connected servers, in the order of the servers, so that a late one changes only what follows."""
    found: dict[str, Tool] = {}
    for server in servers:
        for listed in server.tools if server.status == "connected" else ():
            tool = ServerTool(server, listed, sources.timeouts, sources.max_output_tokens * CHARS_PER_TOKEN, send)
            problem = tool.problem
            if len(tool.name) > MAX_NAME_CHARS or tool.name in found:
                problem = "its name is too long or already used"
            if problem:
                shown = f"the tool {tool.own_name[:200]!a}"
                warn(f"MCP server {server.spec.name!a}: {shown} is left out: {problem}")
            elif not is_denied(server.spec.name, tool.name, sources.denied):
                # Its attributes belong to the instance, not the class; the protocol cannot express both.
                found[tool.name] = tool
    return found


class PromptTool:
    def __init__(self, name: str, servers: ServerManager) -> None:
        self.name = name
        self._servers = servers

    async def request(self, asked: CanUseTool, request_id: str | None = None) -> Any:
        """The reply of the tool. Raises HostError."""
        await self._servers.wait_ready()
        arguments = {"tool_name": asked.tool_name, "input": asked.input, "tool_use_id": asked.tool_use_id}
        try:
            answer = await self._servers.call_hidden_tool(self.name, arguments)
        except ToolError as exc:
            raise HostError(f"the permission prompt tool {self.name} failed: {exc}") from None
        return self._read(answer)

    def _read(self, answer: Json) -> Any:
        content = answer.get("content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        if answer.get("isError") is True:
            raise HostError(f"the permission prompt tool {self.name} failed: {printable(text)}")
        try:
            decoded = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            raise HostError(f"the tool {self.name} returned an answer that is not JSON: {printable(text)!r}") from None
        if (doubled := find_duplicate_key(text)) is not None:
            raise HostError(f"the answer of the tool {self.name} is ambiguous: {doubled}")
        return decoded
