"""The MCP server for git."""

# /// script
# dependencies = ["mcp-server-git==2026.10.19"]
# ///
import os
import subprocess

from recipe import call_mcp_tool

subprocess.run(["git", "init", "--quiet", "."], check=True)
call_mcp_tool(["mcp-server-git"], "git_status", {"repo_path": os.getcwd()}, "No commits yet")
