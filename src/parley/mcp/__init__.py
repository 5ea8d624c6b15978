"""The Model Context Protocol: servers that a session uses, and Parley as a server.

base.py                the types, and the servers of a session from all sources
config.py              configurations, parsed
server_connection.py   the lifecycle of one server
client.py              requests to a server, in both kinds of revisions
stdio.py, remote.py, host_transport.py      connections: a process, a URL, the client of the session
oauth.py               logins
content.py             what servers return, and the names of their tools
tool_server.py         the other side: a server of tools
"""
