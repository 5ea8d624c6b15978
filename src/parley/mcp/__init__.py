"""MCP client: configuration, transports, and the lifecycle of each server."""
