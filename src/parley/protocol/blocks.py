"""Content blocks of messages.

Blocks are defined by the model API and pass through us: between the client, the model and the disk. A block keeps its
JSON object unchanged and has typed attributes for the fields that we read:

    block = read({"type": "text", "text": "hi", "citations": []})
    block.text     -> "hi"
    block.json     -> the object, including citations

The union is open: a block of an unknown type is an `UnknownBlock`. A known type with a missing or wrong field raises
msgspec.ValidationError.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, overload

import msgspec

from parley.protocol.base import Json, JsonBacked

T = TypeVar("T")
NAMES = {str: "string", dict: "object", list: "array", bool: "boolean"}


class Key(Generic[T]):
    """A typed field of a block's object."""

    def __init__(self, *types: type[Any], default: Any = ...) -> None:
        self.types = types
        self.default = default
        self.required = default is ...
        self.name = ""

    def __set_name__(self, owner: type[Block], name: str) -> None:
        self.name = name
        owner.keys = (*owner.keys, self)

    @overload
    def __get__(self, block: None, owner: type[Block]) -> Key[T]: ...
    @overload
    def __get__(self, block: Block, owner: type[Block]) -> T: ...
    def __get__(self, block: Block | None, owner: type[Block]) -> Key[T] | T:
        if block is None:
            return self
        value: T = block.json[self.name] if self.required else block.json.get(self.name, self.default)
        return value

    def check(self, json: Json, kind: str) -> None:
        """Raise msgspec.ValidationError if the field is missing or has the wrong type."""
        if self.name not in json:
            if self.required:
                raise msgspec.ValidationError(f"a `{kind}` block needs `{self.name}`")
        elif not isinstance(json[self.name], self.types):
            expected = " or ".join(NAMES.get(kind, "null") for kind in self.types)
            raise msgspec.ValidationError(f"`{self.name}` of a `{kind}` block must be {expected}")


class Block(JsonBacked):
    """One content block."""

    __slots__ = ()
    kind: ClassVar[str] = ""
    keys: ClassVar[tuple[Key[Any], ...]] = ()

    def __init_subclass__(cls, kind: str = "") -> None:
        if kind:
            cls.kind = kind
            KINDS[kind] = cls

    @classmethod
    def read(cls, json: Any) -> Block:
        return read(json)

    @property
    def type(self) -> str:
        found: str = self.json["type"]
        return found


KINDS: dict[str, type[Block]] = {}


def read(json: Any) -> Block:
    """The block of a JSON object. Raises msgspec.ValidationError."""
    if not isinstance(json, dict):
        raise msgspec.ValidationError("a content block must be an object")
    kind = json.get("type")
    if not isinstance(kind, str):
        raise msgspec.ValidationError("a content block needs a `type`")
    cls = KINDS.get(kind, UnknownBlock)
    for key in cls.keys:
        key.check(json, kind)
    return cls(json)


class UnknownBlock(Block):
    """A block of an unknown type, passed on unchanged."""

    __slots__ = ()


class Text(Block, kind="text"):
    __slots__ = ()
    text = Key[str](str)

    @classmethod
    def of(cls, text: str) -> Text:
        return cls({"type": "text", "text": text})


class Thinking(Block, kind="thinking"):
    """Reasoning. `signature` is always sent, because the official Python SDK requires it."""

    __slots__ = ()
    thinking = Key[str](str)
    signature = Key[str](str, default="")


class RedactedThinking(Block, kind="redacted_thinking"):
    __slots__ = ()
    data = Key[str](str, default="")


class ToolUse(Block, kind="tool_use"):
    __slots__ = ()
    id = Key[str](str)
    name = Key[str](str)
    input = Key[Json](dict)


class ToolResult(Block, kind="tool_result"):
    __slots__ = ()
    tool_use_id = Key[str](str)
    content = Key[str | list[Json] | None](str, list, type(None), default=None)
    is_error = Key[bool](bool, type(None), default=False)

    @classmethod
    def of(cls, tool_use_id: str, content: str | list[Json], is_error: bool | None = None) -> ToolResult:
        json: Json = {"tool_use_id": tool_use_id, "type": "tool_result", "content": content}
        return cls(json if is_error is None else {**json, "is_error": is_error})


class Image(Block, kind="image"):
    __slots__ = ()
    source = Key[Json](dict)


class Document(Block, kind="document"):
    __slots__ = ()
    source = Key[Json](dict)


class ServerToolUse(Block, kind="server_tool_use"):
    """A call of a tool that runs on the model's server."""

    __slots__ = ()
    id = Key[str](str)
    name = Key[str](str)
    input = Key[Json](dict)


class ServerToolResult(Block):
    """The result of a server tool. It has several types."""

    __slots__ = ()
    tool_use_id = Key[str](str)
    content = Key[Any](str, list, dict, type(None), default=None)


for _name in ("advisor", "web_search", "web_fetch", "code_execution", "bash_code_execution",
              "text_editor_code_execution", "tool_search"):  # fmt: skip
    KINDS[f"{_name}_tool_result"] = ServerToolResult


Content = str | list[Block]
"""The type of `message.content`."""


def text_of(content: Content) -> str:
    """The text blocks, joined by line feeds."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content if isinstance(block, Text))


def as_json(content: Content) -> list[Json]:
    """The content as the API takes it: a list of plain objects."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else [block.json for block in content]
