"""An MCP server with one of everything, written with the official package: `workshop.py stdio|sse|http [port]`."""

from __future__ import annotations

import asyncio
import os
import sys
from base64 import b64encode
from typing import Annotated

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63606060000000040001f61738"
    "550000000049454e44ae426082"
)
server = MCPServer("workshop", version="1.2.3", log_level="ERROR")
READS = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=READS, structured_output=False)
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def measure(word: str) -> dict[str, int]:
    """How long a word is, as structured content."""
    return {"letters": len(word)}


@server.tool()
def draw() -> Image:
    """A picture."""
    return Image(data=PIXEL, format="png")


@server.tool(structured_output=False)
def pack(structured: bool = False) -> CallToolResult:
    """A resource and a sound, neither of which a model can read."""
    blob = BlobResourceContents(uri="workshop://plan", mime_type="text/plain", blob=b64encode(b"A plan.").decode())
    sound = AudioContent(type="audio", data=b64encode(b"\x00knock").decode(), mime_type="audio/wav")
    packed = TextContent(type="text", text="Packed.")
    content: list[ContentBlock] = [packed, EmbeddedResource(type="resource", resource=blob), sound]
    return CallToolResult(content=content, structured_content={"parts": 2} if structured else None)


@server.tool(structured_output=False)
def fail() -> str:
    raise ValueError("the hammer broke")


@server.tool(structured_output=False)
def environment(name: str) -> str:
    return os.environ.get(name, "(not set)")


@server.tool(structured_output=False)
async def build(context: Context, steps: int, seconds: float) -> str:
    """Work that tells how far it is."""
    for step in range(steps):
        await asyncio.sleep(seconds)
        await context.report_progress(step + 1, steps, f"step {step + 1}")
    return "built"


@server.tool(structured_output=False)
async def stall() -> str:
    """Never comes to an end."""
    await asyncio.Event().wait()
    return ""


@server.tool(structured_output=False)
def flood(megabytes: int) -> str:
    return "x" * (megabytes << 20)


@server.tool(structured_output=False)
def collapse() -> str:
    """The server dies in the middle of the call."""
    sys.stderr.write("the roof came down\n")
    sys.stderr.flush()
    os._exit(3)


class Name(BaseModel):
    name: str


def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


@server.tool(structured_output=False)
async def greet(answer: Annotated[ElicitationResult[Name], Resolve(ask_name)]) -> str:
    """Asks the person, by a request or by an `input_required` result."""
    return f"Hello, {answer.data.name}." if answer.action == "accept" else f"({answer.action})"


@server.tool(structured_output=False)
async def extend(context: Context) -> str:
    """Has another tool from now on."""
    server.add_tool(lambda: "planed", name="plane", description="New")
    await context.notify_tools_changed()  # those who listen
    await context.session.send_tool_list_changed()  # those with a handshake
    return "extended"


@server.resource("workshop://rules")
def rules() -> str:
    """The rules of the house."""
    return "Wear glasses."


@server.resource("workshop://stock", mime_type="application/octet-stream")
def stock() -> bytes:
    """No text."""
    return bytes(range(256))


@server.resource("ui://workshop/panel", mime_type="text/html")
def panel() -> str:
    """A page for the client."""
    return "<p>Workshop</p>"


@server.prompt()
def plan(thing: str, when: str = "now") -> str:
    """Plan a piece of work."""
    return f"Plan how to build {thing} {when}."


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stdio"]:
            server.run("stdio")
        case ["sse", port]:
            server.run("sse", port=int(port))
        case ["http", port]:
            server.run("streamable-http", port=int(port))
