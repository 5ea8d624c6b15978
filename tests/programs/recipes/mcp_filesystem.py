"""The MCP server for files."""

# /// script
# [tool.program]
# npm = ["@modelcontextprotocol/server-filesystem@2026.8.31"]
# ///
import os
from pathlib import Path

from recipe import call_mcp_tool

server = ["mcp-server-filesystem", os.getcwd()]
path = os.path.abspath("plums.txt")
call_mcp_tool(server, "write_file", {"path": path, "content": "two plums"}, "Successfully wrote")
assert Path("plums.txt").read_text() == "two plums"
call_mcp_tool(server, "read_text_file", {"path": path}, "two plums")
