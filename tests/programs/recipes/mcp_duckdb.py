"""An MCP server for DuckDB."""

# /// script
# dependencies = ["mcp-server-duckdb==1.1.0", "mcp<2"]
# ///
from recipe import call_mcp_tool

call_mcp_tool(["mcp-server-duckdb", "--db-path", "plums.duckdb"], "query", {"query": "SELECT 6 * 7"}, "42")
