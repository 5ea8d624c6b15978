"""Write `src/parley/tools/definitions.json`: what the model is told of each built-in tool.

    python scripts/gen_tools.py

Making a definition means to import the tool and to derive a JSON Schema from its input, which takes longer than a
model call.
"""

from __future__ import annotations

import msgspec
from pages import main

from parley.compose.tools import make_tool
from parley.protocol.base import Json
from parley.tools.base import tool_schema
from parley.tools.catalog import BUILT_IN


def pages() -> dict[str, str]:
    text = msgspec.json.format(msgspec.json.encode(make_definitions())).decode()
    return {"src/parley/tools/definitions.json": f"{text}\n"}


def make_definitions() -> dict[str, Json]:
    """By the name in the catalog. A tool that depends on the options is left out."""
    tools = {name: make_tool(name) for name in BUILT_IN}
    definitions = {name: tool_schema(tool) for name, tool in tools.items() if not hasattr(tool, "with_options")}
    for name, definition in definitions.items():
        if hasattr(tools[name], "with_agents"):
            definition["description"] = None  # it depends on the agents of the session
    return definitions


if __name__ == "__main__":
    raise SystemExit(main(pages()))
