"""Tools as `@tool` makes them, and MCP servers of such tools.

See also: `tool.py` for the decorator, `schema.py` for the schemas, `runtime/mcp_servers.py` for the calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from parley.protocol.base import Json
from parley.sdk import schema
from parley.sdk.types.shapes import McpSdkServerConfig

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
Handler = Callable[[Any], Awaitable[dict[str, Any]]]
HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "maxResultSizeChars")
SNAKE: dict[str, str] = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
    "max_result_size_chars": "maxResultSizeChars",
}


class ToolAnnotations:
    """Hints about a tool, in either spelling: `readOnlyHint=True` or `read_only_hint=True`."""

    def __init__(self, **hints: Any) -> None:
        self.hints = {SNAKE.get(name, name): value for name, value in hints.items() if value is not None}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "hints":
            raise AttributeError(name)
        known = SNAKE.get(name, name)
        if known not in HINTS and known not in self.hints:
            raise AttributeError(name)
        return self.hints.get(known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolAnnotations) and other.hints == self.hints

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.hints)))

    def __repr__(self) -> str:
        return f"ToolAnnotations({', '.join(f'{name}={value!r}' for name, value in self.hints.items())})"


@dataclass
class SdkMcpTool(Generic[T]):
    """A tool, as `@tool` makes it. Calling it calls its handler."""

    name: str
    description: str
    """What the model reads about it."""
    input_schema: Any
    """The JSON Schema of its input, `{name: type}`, or a type that has one."""
    handler: Callable[[T], Awaitable[dict[str, Any]]]
    """Takes the input and returns a result of the MCP: `{"content": [{"type": "text", "text": "..."}]}`."""
    annotations: Any = None
    """Hints, such as `ToolAnnotations(read_only_hint=True)`."""

    def __call__(self, arguments: T, /) -> Awaitable[dict[str, Any]]:
        return self.handler(arguments)

    def listed(self) -> Json:
        """The tool's entry in `tools/list`."""
        entry: Json = {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema.schema_of_input(self.input_schema),
        }
        hints = read_hints(self.annotations)
        size = hints.pop("maxResultSizeChars", None)
        if hints:
            entry["annotations"] = hints
        if size is not None:
            entry["_meta"] = {"anthropic/maxResultSizeChars": size}
        return entry


def read_hints(annotations: Any) -> Json:
    """Return the hints of a ToolAnnotations, a dict, or the `mcp` package's ToolAnnotations."""
    if annotations is None:
        return {}
    if isinstance(annotations, ToolAnnotations):
        return dict(annotations.hints)
    if isinstance(annotations, dict):
        return {SNAKE.get(str(name), str(name)): value for name, value in annotations.items()}
    found: Json = annotations.model_dump(by_alias=True, exclude_none=True)
    return found


class FunctionTool(SdkMcpTool[Any], Generic[P, R]):
    """A tool that is a plain function. Calling it calls the function, with its own parameters and result."""

    def __init__(
        self, function: Callable[P, R], name: str | None = None, description: str | None = None, annotations: Any = None
    ) -> None:
        """Raises TypeError for a function without a name, or with parameters that cannot be passed by name."""
        self.function = function
        self._parameters = schema.Parameters(function)
        tool_name = str(name or getattr(function, "__name__", "<nameless>"))
        if tool_name.startswith("<"):
            raise TypeError(f'{function!r} has no name; use tool("name", "description")(...) to give it one')
        text = description or inspect.getdoc(function)
        if not text:
            schema.warn_about(function, "no docstring: the model knows only its name and its parameters")
            text = tool_name
        super().__init__(tool_name, text, self._parameters.schema, self._handle, annotations)
        self.__doc__, self.__wrapped__ = function.__doc__, function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]  # as the function
        return self.function(*args, **kwargs)

    async def _handle(self, arguments: Json) -> dict[str, Any]:
        values = self._parameters.values(arguments)
        function: Callable[..., Any] = self.function
        if inspect.iscoroutinefunction(function):
            return convert_content(await function(**values))
        from anyio import to_thread

        from parley.sdk.runtime.background import maybe_await

        return convert_content(await maybe_await(await to_thread.run_sync(partial(function, **values))))


def convert_content(value: Any) -> dict[str, Any]:
    """Convert the return value of a plain function to a tool result."""
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return value
    if value is None:
        return {"content": []}
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()
    return {"content": [{"type": "text", "text": text}]}


def to_tool(given: object) -> SdkMcpTool[Any]:
    if isinstance(given, SdkMcpTool):
        return given
    if callable(given):
        return FunctionTool(given)
    raise TypeError(f"a tool must be a function or the result of @tool, not {type(given).__name__}")


def create_sdk_mcp_server(
    name: str, version: str = "1.0.0", tools: Sequence[SdkMcpTool[Any] | Callable[..., Any]] | None = None
) -> McpSdkServerConfig:
    """An MCP server in this process, for `Options.mcp_servers`. Plain functions become tools.

    Raises TypeError for an invalid tool, ValueError for two tools with the same name.
    """
    from parley.sdk.runtime.mcp_servers import SdkMcpServer

    if not isinstance(tools, Iterable | None) or isinstance(tools, str):
        raise TypeError(f"the tools of the server {name!r} must be a list, not {type(tools).__name__}")
    converted = [to_tool(given) for given in tools or ()]
    names = [each.name for each in converted]
    if duplicates := sorted({each for each in names if names.count(each) > 1}):
        raise ValueError(f"the server {name!r} has more than one tool named {duplicates[0]!r}")
    return {"type": "sdk", "name": name, "instance": SdkMcpServer(name, version, converted)}
