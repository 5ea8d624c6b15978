"""The two versions we tell: our own, and the level of the protocol we speak.

Literals, because asking the installed metadata costs 44 ms at start-up.
"""

__version__ = "0.1.0"
PROTOCOL_LEVEL = "2.1.325"
"""Clients compare this with the versions of the original CLI, so it must start `X.Y.Z`."""
