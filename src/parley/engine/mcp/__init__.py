"""The MCP servers of a session: lifecycle, tools, prompts, resources, elicitation."""
