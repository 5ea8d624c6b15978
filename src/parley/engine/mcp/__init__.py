"""The MCP servers of a session.

    ServerManager    starts, lists, calls and closes the servers (manager.py)
    ServerTool       a tool of a server (server_tool.py)
    ServerRequests   requests from a server: elicitation, roots (requests.py)
    StatusNotifier   reports changes (server_tool.py)

One server is `parley.mcp.server_connection.McpServer`.
"""
