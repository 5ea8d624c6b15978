"""Policies: what settings forbid, apart from permission rules.

startup.py       settings that a session must not start with
models.py        which models and providers may be called
mcp_servers.py   which MCP servers may be used
"""
