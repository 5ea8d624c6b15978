"""What is read and changed outside of a session: MCP servers, plugins, keys, the worktree of `--worktree`,
decisions about tool calls.
"""
