"""MCP clients: transports, configuration, and one server's lifecycle."""
