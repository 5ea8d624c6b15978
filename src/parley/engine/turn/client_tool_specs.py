"""Declarations of tools that the client runs: `--client-tools`, or `clientTools` of `initialize`.

See also: `client_tools.py` for their calls.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from parley.errors import UsageError
from parley.protocol.base import Json, Struct


class ClientToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a client declares it. Names follow the rules of the model API."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    description: str = ""
    input_schema: Json = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


def parse_client_tools(tools: object) -> list[ClientToolSpec]:
    """Raises UsageError if the declarations are invalid."""
    try:
        found = msgspec.convert(tools, list[ClientToolSpec])
    except msgspec.ValidationError as exc:
        raise UsageError(f"client tools must be a list of {{name, description, input_schema}}: {exc}") from None
    names = [tool.name for tool in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"client tools must have unique names; {', '.join(twice)} is used twice")
    return found


def parse_client_tools_json(text: str) -> list[ClientToolSpec]:
    """Raises UsageError."""
    try:
        return parse_client_tools(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UsageError(f"client tools are not valid JSON: {exc}") from None
