"""A server of FastMCP, on a pipe and over HTTP."""

# /// script
# dependencies = ["fastmcp==3.0.2"]
# ///
import socket
import subprocess
import sys
import time
from pathlib import Path

from recipe import call_mcp_tool

SERVER = """
import sys
from fastmcp import FastMCP

server = FastMCP("sums")

@server.tool
def add(a: int, b: int) -> str:
    return f"the sum is {a + b}"

if len(sys.argv) > 1:
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
else:
    server.run(show_banner=False)
"""


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


Path("server.py").write_text(SERVER)
call_mcp_tool([sys.executable, "server.py"], "add", {"a": 40, "b": 2}, "the sum is 42")

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
with subprocess.Popen([sys.executable, "server.py", str(port)]) as running:
    try:
        while not is_open(port):
            assert running.poll() is None
            time.sleep(0.05)
        url = f"http://127.0.0.1:{port}/mcp"
        call_mcp_tool({"type": "http", "url": url}, "add", {"a": 1, "b": 2}, "the sum is 3")
    finally:
        running.kill()
