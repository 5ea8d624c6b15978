"""Two versions: Parley's own, and the version of Claude Code whose protocol it implements; how extras are installed.

They are literals because reading the package metadata takes 44 ms at start-up.
"""

__version__ = "0.1.0"
PROTOCOL_LEVEL = "2.1.327"
"""Clients compare this with versions of Claude Code, so it must start with `X.Y.Z`."""


def how_to_install(extra: str) -> str:
    """The command that installs an extra, for users of the package and of a checkout."""
    here = f"./packages/{extra}" if extra in ("server", "kit") else f"'.[{extra}]'"
    return f"pip install 'parley-agent[{extra}]' (in a checkout: pip install {here})"
