"""The MCP server for a knowledge graph."""

# /// script
# [tool.program]
# npm = ["@modelcontextprotocol/server-memory@2026.8.31"]
# ///
import os

from recipe import call_mcp_tool

server = {"command": "mcp-server-memory", "env": {"MEMORY_FILE_PATH": os.path.abspath("graph.jsonl")}}
plum = {"name": "plum", "entityType": "fruit", "observations": ["it is blue"]}
call_mcp_tool(server, "create_entities", {"entities": [plum]}, "plum")
call_mcp_tool(server, "search_nodes", {"query": "blue"}, "it is blue")
