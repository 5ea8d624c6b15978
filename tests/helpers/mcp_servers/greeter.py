"""A well-behaved MCP server without the package, which takes a second to import: `greet` asks the person for a name.

It also has the tool `add`, the prompt `plan` and the page `ui://workshop/panel`, as `workshop.py` has.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
NUMBER = {"type": "integer"}


def schema(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


TOOLS = [
    {"name": "greet", "description": "Asks the person.", "inputSchema": schema()},
    {"name": "add", "description": "Add two numbers.", "inputSchema": schema(a=NUMBER, b=NUMBER)},
]
PLAN = {"name": "plan", "description": "Plan a piece of work.", "arguments": [{"name": "thing", "required": True}]}
PANEL = {"uri": "ui://workshop/panel", "name": "panel", "mimeType": "text/html"}


def send(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def initialize(params: Json) -> Json:
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "greeter", "version": "1"},
    }


def call(params: Json) -> Json:
    given = params["arguments"]
    text = greet() if params["name"] == "greet" else str(given["a"] + given["b"])
    return {"content": [{"type": "text", "text": text}]}


def greet() -> str:
    wanted = schema(name={"type": "string", "title": "Name"})
    question = {"mode": "form", "message": "What is your name?", "requestedSchema": wanted}
    send({"id": "question", "method": "elicitation/create", "params": question})
    answer = next(message for line in sys.stdin if (message := json.loads(line)).get("id") == "question")["result"]
    return f"Hello, {answer['content']['name']}." if answer["action"] == "accept" else f"({answer['action']})"


def get_prompt(params: Json) -> Json:
    text = f"Plan how to build {params['arguments']['thing']} now."
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


ANSWERS: dict[str, Callable[[Json], Json]] = {
    "initialize": initialize,
    "tools/list": lambda _: {"tools": TOOLS},
    "tools/call": call,
    "prompts/list": lambda _: {"prompts": [PLAN]},
    "prompts/get": get_prompt,
    "resources/list": lambda _: {"resources": [PANEL]},
    "resources/read": lambda _: {"contents": [{**PANEL, "text": "<p>Workshop</p>"}]},
    "resources/templates/list": lambda _: {"resourceTemplates": []},
    "ping": lambda _: {},
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        send({"id": message["id"], "result": ANSWERS[message["method"]](message.get("params", {}))})
