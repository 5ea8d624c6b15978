"""The MCP server for times."""

# /// script
# dependencies = ["mcp-server-time==2026.10.19"]
# ///
from recipe import call_mcp_tool

call_mcp_tool(
    ["mcp-server-time"],
    "convert_time",
    {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
    "21:00",
)
