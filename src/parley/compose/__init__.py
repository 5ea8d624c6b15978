"""From options to a ready session: the only place that knows the varieties, and one idea a file.

registry.py          the varieties          launch_context.py         what everything is made from
models.py        tools.py   mcp.py  permissions.py   stores.py   paths.py
instructions.py  limits.py  plugins.py                composer.py   puts it all together
"""
