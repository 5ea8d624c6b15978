"""From options to a ready session: the only place that knows the varieties, and one idea a file.

rows.py          the varieties          basis.py         what everything is made from
models.py        tools.py   servers.py  permissions.py   sessions.py   places.py
instructions.py  limits.py  extensions.py                composer.py   puts it all together
"""
