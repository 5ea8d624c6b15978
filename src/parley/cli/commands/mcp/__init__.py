"""`parley mcp`: configure MCP servers, check them, and serve the tools of Parley as one."""
