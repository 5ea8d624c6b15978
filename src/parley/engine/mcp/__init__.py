"""The MCP servers of a session.

    ServerManager    starts, lists, calls and closes the servers (manager.py)
    ServerTool       a tool of a server (server_tool.py)
    ServerRequests   requests from a server: elicitation, roots (elicitation.py)
    StatusNotifier   reports changes (resources.py)

One server is `parley.mcp.server_connection.McpServer`.
"""
