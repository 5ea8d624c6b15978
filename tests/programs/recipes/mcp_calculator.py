"""An MCP server for sums."""

# /// script
# dependencies = ["mcp-server-calculator==0.2.1"]
# ///
from recipe import call_mcp_tool

call_mcp_tool(["mcp-server-calculator"], "calculate", {"expression": "6 * 7"}, "42")
