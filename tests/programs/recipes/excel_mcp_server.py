"""An MCP server for spreadsheets, with so many tools that they are deferred."""

# /// script
# dependencies = ["excel-mcp-server==2.2.2"]
# ///
import os
from pathlib import Path

from recipe import call_mcp_tool

server = ["excel-mcp-server", "stdio"]
path = os.path.abspath("plums.xlsx")
call_mcp_tool(server, "create_workbook", {"path": path}, "plums.xlsx")
call_mcp_tool(server, "describe_workbook", {"path": path}, "Sheet")
assert Path("plums.xlsx").exists()
