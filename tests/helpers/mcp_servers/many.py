"""An MCP server with many tools, written by hand so that it starts in no time: `many.py [count] [always]`.

Each tool has a description and a schema of the usual length, so that their definitions together are large.
"""

from __future__ import annotations

import json
import sys
from typing import Any

THINGS = ("invoice", "customer", "shipment", "ticket", "contract", "report", "schedule", "budget", "vehicle", "sensor")
VERBS = ("create", "read", "update", "delete", "search", "export", "import", "archive", "approve", "assign")


def describe(number: int) -> dict[str, Any]:
    verb, thing = VERBS[number % 10], THINGS[number // 10 % 10]
    fields = {
        "id": {"type": "string", "description": f"The identifier of the {thing}, as the search tool gives it"},
        "note": {"type": "string", "description": "What to record about this step, in a sentence or two"},
        "options": {"type": "object", "description": "Further options, by name", "additionalProperties": True},
    }
    tool = {
        "name": f"{verb}_{thing}_{number}",
        "description": f"{verb.capitalize()} a {thing} in department {number}. "
        "Returns what has changed, and its version.",
        "inputSchema": {"type": "object", "properties": fields, "required": ["id"], "additionalProperties": False},
    }
    always = number == 7 and "always" in sys.argv
    return {**tool, "_meta": {"anthropic/alwaysLoad": True}} if always else tool


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "many", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [describe(number) for number in range(COUNT)]}
        case "tools/call":
            text = f"{params['name']}: {params.get('arguments', {}).get('id')}"
            return {"content": [{"type": "text", "text": text}]}
    return {}


COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 250
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params", {}))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()
