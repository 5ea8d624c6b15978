"""The MCP server for SQLite."""

# /// script
# dependencies = ["mcp-server-sqlite==2025.4.25", "mcp<2"]
# ///
from recipe import call_mcp_tool

server = ["mcp-server-sqlite", "--db-path", "plums.db"]
call_mcp_tool(server, "create_table", {"query": "CREATE TABLE plums (size INTEGER)"}, "created")
call_mcp_tool(server, "write_query", {"query": "INSERT INTO plums VALUES (42)"}, "affected_rows")
call_mcp_tool(server, "read_query", {"query": "SELECT size FROM plums"}, "42")
