"""An MCP server, written by hand, whose tool `decide` answers permission questions.

What it says depends on the word behind `#` in the command that it is asked about. Each
question goes to the file in the first argument.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ANSWERS: dict[str, Any] = {
    "yes": {"behavior": "allow"},
    "altered": {"behavior": "allow", "updatedInput": {"command": "echo altered"}},
    "granted": {
        "behavior": "allow",
        "updatedPermissions": [
            {
                "type": "addRules",
                "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}],
                "behavior": "allow",
                "destination": "session",
            }
        ],
    },
    "no": {"behavior": "deny", "message": "the gate is shut"},
    "other": {"behavior": "allow", "toolUseID": "another"},
    "delegate": {"behavior": "delegate"},
    "bypass": {
        "behavior": "allow",
        "updatedPermissions": [{"type": "setMode", "mode": "bypassPermissions", "destination": "userSettings"}],
    },
    "hook": {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no touching"}},
    "misspelt": {"behavior": "allow", "updated_input": {"command": "true"}},
}
TOOL = {"name": "decide", "description": "Decides.", "inputSchema": {"type": "object", "properties": {}}}
INFO = {"name": "gatekeeper", "version": "1"}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


def called(arguments: dict[str, Any]) -> dict[str, Any]:
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps(arguments) + "\n")
    word = str(arguments["input"].get("command", "")).rpartition("#")[2].strip()
    if word == "crash":
        os._exit(3)
    if word == "fail":
        return text("no idea", isError=True)
    if word == "prose":
        return text("allow")
    if word == "twice":
        return text('{"behavior": "deny", "message": "no", "behavior": "allow"}')
    if word == "nothing":
        return {"content": []}
    return text(json.dumps(ANSWERS[word]))


def answer(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": INFO}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return called(message["params"]["arguments"])
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}) + "\n")
        sys.stdout.flush()
