"""A small MCP server without the package, which starts in no time and misbehaves on demand: `plain.py MANNER`.

well        does as it should: `echo`, and `which` tells the process
mute        takes every line and says nothing
deaf        never reads its input
noisy       prints what is no protocol between the lines
shut        closes its output at the first call, and lives on; started again it is well (`plain.py shut MARK`)
closed      closes its output before it has said anything, and lives on
once        dies after its first call; comes back whole
silent      answers everything but calls and its prompt `plan`
library     has resources in directories, and lists the directory `book://shelf`
archive     the same without lists of directories
restless    has a tool more, and says so, each time its tools are listed, up to five
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


manner = sys.argv[1]
TOOLS = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("echo", "which")]
BOOKS = ("book://shelf/a", "book://shelf/low/b", "book://shelf/low/c", "book://shelves/d", "book://shelf")
sys.stderr.write(f"plain in the manner {manner}\n")
sys.stderr.flush()
while manner == "deaf":
    time.sleep(60)
if manner == "closed":
    os.close(1)
    while True:
        time.sleep(60)
if manner == "shut":
    mark = pathlib.Path(sys.argv[2])
    manner = "well" if mark.exists() else manner
    mark.write_text(f"{mark.read_text() if mark.exists() else ''}{os.getpid()}\n")
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if manner == "shut" and method == "tools/call":
        os.close(1)
        while True:
            time.sleep(60)
    if manner == "mute" or "id" not in message or (manner == "silent" and method in ("tools/call", "prompts/get")):
        continue
    if manner == "noisy":
        say("Debugging is fun!\n[]\n7\nnull")
    result: dict[str, object] = {}
    if method == "initialize":
        version = "2024-11-05"
        offers: dict[str, object] = {"tools": {}, **({"prompts": {}} if manner == "silent" else {})}
        if manner in ("library", "archive"):
            offers["resources"] = {}
            offers["extensions"] = {"io.modelcontextprotocol/skills": {"directoryRead": manner == "library"}}
        result = {"protocolVersion": version, "capabilities": offers, "serverInfo": {"name": "plain"}}
        result["instructions"] = "Echo softly."
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "resources/list":
        result = {"resources": [{"uri": uri, "name": uri[-1], "size": 9} for uri in BOOKS]}
    elif method == "resources/directory/read" and manner == "library" and message["params"]["uri"] == "book://shelf":
        again = "cursor" in message["params"]
        page = {"uri": "book://shelf/low", "name": "low", "mimeType": "inode/directory", "_meta": {}}
        result = {"resources": [page]} if again else {"resources": [{"uri": BOOKS[0], "name": "a"}], "nextCursor": "2"}
    elif method == "resources/directory/read":
        error = (-32602, "not a directory") if manner == "library" else (-32601, "no such method")
        fault = {"code": error[0], "message": error[1]}
        say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": fault}))
        continue
    elif method == "prompts/list":
        result = {"prompts": [{"name": "plan"}]}
    elif method == "tools/call":
        called = message["params"]["name"]
        text = str(os.getpid()) if called == "which" else json.dumps(message["params"]["arguments"])
        result = {"content": [{"type": "text", "text": text}]}
    say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    if manner == "restless" and method == "tools/list" and len(TOOLS) < 5:
        TOOLS.append({**TOOLS[0], "name": f"tool{len(TOOLS)}"})
        say(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
    if manner == "once" and method == "tools/call":
        sys.stderr.write("one call is enough\n")
        sys.exit(1)
