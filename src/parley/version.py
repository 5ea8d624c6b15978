"""Two versions: Parley's own, and the version of Claude Code whose protocol it implements.

They are literals because reading the package metadata takes 44 ms at start-up.
"""

__version__ = "0.1.0"
PROTOCOL_LEVEL = "2.1.325"
"""Clients compare this with versions of Claude Code, so it must start with `X.Y.Z`."""
