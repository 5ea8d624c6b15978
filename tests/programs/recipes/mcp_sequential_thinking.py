"""The MCP server for thoughts in steps."""

# /// script
# [tool.program]
# npm = ["@modelcontextprotocol/server-sequential-thinking@2026.8.31"]
# ///
from recipe import call_mcp_tool

thought = {"thought": "Count the plums.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
call_mcp_tool(["mcp-server-sequential-thinking"], "sequentialthinking", thought, "thoughtNumber")
