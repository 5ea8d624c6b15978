"""A resident engine (Linux): a server with the engine's modules loaded, which forks one process per session.

`launcher.py` runs in the process that the client started. `server.py` accepts its connection and forks. The forked
process compares itself with the launcher, and takes over its streams, arguments, environment and limits
(`adoption.py`). `protocol.py` says where the server listens, and what the two say. `control.py` is what `parley
resident` and `parley doctor` use.
"""
