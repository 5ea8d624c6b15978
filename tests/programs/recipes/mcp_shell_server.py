"""An MCP server for commands."""

# /// script
# dependencies = ["mcp-shell-server==1.1.14"]
# ///
import os

from recipe import call_mcp_tool

server = {"command": "mcp-shell-server", "env": {"ALLOW_COMMANDS": "echo"}}
call_mcp_tool(server, "shell_execute", {"command": ["echo", "two plums"], "directory": os.getcwd()}, "two plums")
