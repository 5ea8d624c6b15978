"""An MCP server whose tool runs `claude`: the engine is the client of the server, and its child."""

# /// script
# [tool.program]
# npm = ["@steipete/claude-code-mcp@1.10.12"]
# ///
import os

from recipe import call_mcp_tool

server = {"command": "claude-code-mcp", "env": {"CLAUDE_CLI_NAME": os.environ["CLAUDE_CLI_PATH"]}}
call_mcp_tool(server, "claude_code", {"prompt": "say two plums", "workFolder": os.getcwd()}, "two plums")
