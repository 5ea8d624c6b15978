"""Subcommands of parley-server: `serve`, `console`, `workspace`, `host`, `cluster`, `acp` and `mcp serve`."""
