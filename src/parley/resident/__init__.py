"""A resident engine (Linux): a server with the engine's modules loaded, which forks one process per session.

`launcher.py` runs in the process that the client started. `server.py` accepts its connection and forks; in the forked
process, `admission.py` compares itself with the launcher, and `adoption.py` takes over the launcher's streams,
arguments, environment and limits. `address.py` says where the server listens, `protocol.py` what the two say.
`control.py` is what `parley resident` and `parley doctor` use.
"""
