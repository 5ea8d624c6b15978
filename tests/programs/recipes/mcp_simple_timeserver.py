"""An MCP server for the time of this machine."""

# /// script
# dependencies = ["mcp-simple-timeserver==3.3.2"]
# ///
from recipe import call_mcp_tool

call_mcp_tool(["mcp-simple-timeserver"], "get_local_time", {}, "20")
