"""The MCP reference server, which uses every feature."""

# /// script
# [tool.program]
# npm = ["@modelcontextprotocol/server-everything@2026.8.31"]
# ///
from recipe import call_mcp_tool

call_mcp_tool(["mcp-server-everything"], "echo", {"message": "plums"}, "plums")
call_mcp_tool(["mcp-server-everything"], "get-sum", {"a": 40, "b": 2}, "42")
